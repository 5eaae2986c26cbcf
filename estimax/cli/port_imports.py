"""The imports of TensorFlow in a program: what names stand for, and new imports."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from estimax.core import migration

if TYPE_CHECKING:
    import libcst

# Packages that need TensorFlow. Those whose names start with tensorflow_ do as well.
_NEED_TENSORFLOW = {"keras", "tf_slim", "tf_keras", "tflearn"}


@dataclass
class Imports:
    """What the names of a program stand for."""

    # The module of TensorFlow that a name stands for: {"tf": "", "K": "keras.backend"}.
    aliases: dict[str, str] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)  # aliases that an import makes
    assigned: set[str] = field(default_factory=set)  # those that `fc = tf.x` makes
    # Names imported by themselves: `from tensorflow.estimator import ModeKeys`.
    members: dict[str, migration.Counterpart] = field(default_factory=dict)
    ours: dict[str, str] = field(default_factory=dict)  # {"ex": "", "fc": "input"}
    replaced: int = 0  # members that estimax has
    others: set[str] = field(default_factory=set)  # names that other imports make
    # (name, advice) by statement, for what a person replaces.
    left: dict[Any, list[tuple[str, str]]] = field(default_factory=dict)


def read_imports(module: libcst.Module) -> Imports:
    """Find the names that stand for TensorFlow, its modules and its members."""
    import libcst as cst
    import libcst.matchers as m

    found = Imports()
    for node in m.findall(module, m.Import() | m.ImportFrom()):
        if isinstance(node, cst.Import):
            _read_import(node, found)
        elif isinstance(node, cst.ImportFrom):
            _read_import_from(node, found)
    for name, target in _assigned(module, found).items():
        if target.startswith("ex."):
            found.ours[name] = target[3:]
        elif name not in found.aliases:
            found.aliases[name] = target
            found.assigned.add(name)
    return found


def _assigned(module: libcst.Module, found: Imports) -> dict[str, str]:
    """Return the modules that assignments name: {"fc": "feature_column"}.

    A name that is bound to anything else somewhere in the program is left alone.
    """
    import libcst as cst

    bound: dict[str, set[str | None]] = {}

    class Read(cst.CSTVisitor):
        def visit_Param(self, node: libcst.Param) -> None:  # noqa: N802
            bound.setdefault(node.name.value, set()).add(None)

        def visit_Assign(self, node: libcst.Assign) -> None:  # noqa: N802
            for target in node.targets:
                if isinstance(target.target, cst.Name):
                    value = _module_of(node.value, found)
                    bound.setdefault(target.target.value, set()).add(value)

        def visit_For(self, node: libcst.For) -> None:  # noqa: N802
            if isinstance(node.target, cst.Name):
                bound.setdefault(node.target.value, set()).add(None)

    module.visit(Read())
    return {
        name: str(next(iter(values)))
        for name, values in bound.items()
        if len(values) == 1 and None not in values
    }


def _module_of(node: Any, found: Imports) -> str | None:
    """Return the module that an expression names, as "feature_column" or "ex.input"."""
    root, _, rest = (dotted(node) or "").partition(".")
    if root in found.ours:
        path = ".".join(part for part in (found.ours[root], rest) if part)
        return f"ex.{path}" if _is_ours(path) else None
    if root not in found.aliases or not rest:
        return None
    full = f"{found.aliases[root]}.{rest}".lstrip(".")
    return full if _is_module(full) else None


def _is_ours(path: str) -> bool:
    try:
        return isinstance(migration.look_up(path), ModuleType)
    except AttributeError:
        return False


def _read_import(node: libcst.Import, found: Imports) -> None:
    for item in node.names:
        name = dotted(item.name) or ""
        root, _, rest = name.partition(".")
        short = dotted(item.asname.name) if item.asname else None
        if root == "tensorflow":
            found.aliases[short or root] = rest if short else ""
            found.modules.add(short or root)
        elif _needs_tensorflow(root):
            found.left.setdefault(node, []).append(_left_package(root))
        elif root == "estimax":
            found.ours[short or root] = rest if short else ""
        else:
            found.others.add(short or root)


def _read_import_from(node: libcst.ImportFrom, found: Imports) -> None:
    import libcst as cst

    module = (dotted(node.module) or "") if node.module and not node.relative else ""
    root, _, rest = module.partition(".")
    if _needs_tensorflow(root):
        found.left.setdefault(node, []).append(_left_package(root))
        return
    if root == "estimax" and not isinstance(node.names, cst.ImportStar):
        for item in node.names:
            _read_ours(".".join(p for p in (rest, dotted(item.name)) if p), item, found)
        return
    if root != "tensorflow":
        if not isinstance(node.names, cst.ImportStar):
            found.others |= {_bound_name(item) for item in node.names}
        return
    if isinstance(node.names, cst.ImportStar):
        advice = "import estimax as ex, and write ex.NAME for each name"
        found.left.setdefault(node, []).append((f"from {module} import *", advice))
        return
    for item in node.names:
        full = ".".join(part for part in (rest, dotted(item.name)) if part)
        if _is_module(full):
            found.aliases[_bound_name(item)] = full
            found.modules.add(_bound_name(item))
            continue
        known = migration.counterpart(full)
        found.members[_bound_name(item)] = known
        found.replaced += _is_importable(known)
        if not _is_importable(known):
            advice = known.advice or f"write {known.name}"
            found.left.setdefault(node, []).append((f"tensorflow.{full}", advice))


def _read_ours(path: str, item: libcst.ImportAlias, found: Imports) -> None:
    name = _bound_name(item)
    if _is_ours(path):
        found.ours[name] = path
        return
    try:
        value = migration.look_up(path)
    except AttributeError:
        return  # a module that is not public: `from estimax.core import errors`
    found.members[name] = migration.Counterpart(f"ex.{path}", value=value)


def _is_module(full: str) -> bool:
    return full in ("compat", "compat.v1", "compat.v2") or migration.is_module(full)


def _needs_tensorflow(root: str) -> bool:
    return root.startswith("tensorflow_") or root in _NEED_TENSORFLOW


def _left_package(root: str) -> tuple[str, str]:
    return root, "this package needs TensorFlow; write its part with estimax or Flax"


def _bound_name(item: libcst.ImportAlias) -> str:
    import libcst as cst

    name = item.asname.name if item.asname else item.name
    return name.value if isinstance(name, cst.Name) else ""


def _is_importable(known: migration.Counterpart) -> bool:
    return known.name is not None and known.name.startswith("ex.")


def new_imports(node: Any, imports: Imports, kept: set[str]) -> list[str] | None:
    """Return the statements in place of an import, or None if it stays as it is.

    Args:
      node: `import …` or `from … import …`.
      imports: What `read_imports` found.
      kept: The names of TensorFlow that the program still uses.
    """
    import libcst as cst

    if isinstance(node, cst.Import):
        return _new_import(node, kept)
    module = (dotted(node.module) or "") if node.module and not node.relative else ""
    if module.split(".")[0] != "tensorflow" or isinstance(node.names, cst.ImportStar):
        return None
    stays, new = [], []
    needs_ours = False
    for item in node.names:
        name = _bound_name(item)
        known = imports.members.get(name)
        if name in imports.modules:
            needs_ours = True
            if name in kept:
                stays.append(_written(item))
        elif known is not None and _is_importable(known):
            package, _, last = f"estimax.{(known.name or '')[3:]}".rpartition(".")
            alias = "" if last == name else f" as {name}"
            new.append(f"from {package} import {last}{alias}")
        else:
            stays.append(_written(item))
    kept_line = [f"from {module} import {', '.join(stays)}"] if stays else []
    return kept_line + (["import estimax as ex"] if needs_ours else []) + new


def _new_import(node: libcst.Import, kept: set[str]) -> list[str] | None:
    stays = []
    is_ours = False
    for item in node.names:
        root = (dotted(item.name) or "").split(".")[0]
        name = _bound_name(item) or root
        is_ours = is_ours or root == "tensorflow"
        if root != "tensorflow" or name in kept:
            stays.append(_written(item))
    if not is_ours:
        return None
    return [f"import {', '.join(stays)}"] * bool(stays) + ["import estimax as ex"]


def _written(item: libcst.ImportAlias) -> str:
    alias = f" as {dotted(item.asname.name)}" if item.asname else ""
    return f"{dotted(item.name)}{alias}"


def dotted(node: Any) -> str | None:
    """Return `a.b.c` of an expression of names; None for another expression."""
    import libcst as cst

    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])
