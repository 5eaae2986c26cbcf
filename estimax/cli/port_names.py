"""Find the names of TensorFlow in a program: which to replace, which a person replaces.

    found = find(text, "train.py")
    found.changes    # new expressions by node
    found.remaining  # Remaining(line, column, name, advice) for each that is left

A name counts as replaced only if the new name exists in estimax and accepts the
arguments of the call. The file has three parts: the names of a program, its imports of
TensorFlow, and the modules beside it that use TensorFlow.
"""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.core.errors import InputError

if TYPE_CHECKING:
    import libcst


@dataclass(frozen=True, order=True)
class Remaining:
    """A name that a person has to replace."""

    line: int
    column: int
    name: str
    advice: str


@dataclass
class Found:
    """The changes to make in a program, and the names that remain."""

    module: libcst.Module
    imports: Imports
    changes: dict[Any, Any] = field(default_factory=dict)  # by node
    v1_classes: set[Any] = field(default_factory=set)  # nodes that take compat="v1"
    remaining: list[Remaining] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)  # aliases of TensorFlow still in use


def find(text: str, name: str, path: Path | None = None) -> Found:
    """Find the names of TensorFlow in a program.

    Args:
      text: The program.
      name: What messages call it.
      path: Where the program is; None leaves the modules beside it out.

    Raises:
      InputError: The text is not a Python program.
    """
    import libcst as cst

    try:
        wrapper = cst.MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        raise InputError(
            f"{name}, line {error.raw_line}: this is not Python 3: "
            f"{error.message.splitlines()[0][:200]}. Correct it; convert a program of "
            "Python 2 first."
        ) from None
    found = Found(wrapper.module, read_imports(wrapper.module))
    parents = wrapper.resolve(cst.metadata.ParentNodeProvider)
    positions = wrapper.resolve(cst.metadata.PositionProvider)
    for node, what, advice in _left(found, parents, path):
        start = positions[node].start
        found.remaining.append(Remaining(start.line, start.column + 1, what, advice))
    return found


def _left(found: Found, parents: Any, path: Path | None) -> list[tuple[Any, str, str]]:
    """Fill `found.changes`; return (node, name, advice) for what a person replaces."""
    import libcst as cst

    aliases = found.imports.aliases
    left: list[tuple[Any, str, str]] = []

    class Find(cst.CSTVisitor):
        def visit_Attribute(self, node: libcst.Attribute) -> bool:  # noqa: N802
            whole = full_name(node) or ""
            root, _, rest = whole.partition(".")
            if root in aliases:
                self._translate(node, whole, root, rest)
                return False
            if root in found.imports.ours:
                path_of_ours = f"{found.imports.ours[root]}.{rest}".lstrip(".")
                left.extend(_find_problems(node, parents[node], whole, path_of_ours))
                return False
            method = node.attr.value
            if method in migration.METHODS and root not in found.imports.others:
                left.append((node, f".{method}", migration.METHODS[method]))
            if method in migration.RENAMED_METHODS:
                new = cst.Name(migration.RENAMED_METHODS[method])
                found.changes[node] = node.with_changes(attr=new)
            return True

        def _translate(self, node: Any, written: str, root: str, rest: str) -> None:
            full = ".".join(part for part in (aliases[root], rest) if part)
            known = migration.counterpart(full)
            is_assigned = root in found.imports.assigned
            module = migration.counterpart(aliases[root]) if is_assigned else None
            if known.name is None:
                found.kept.add(root)
                # `flags = tf.flags` says what to do with all of its names.
                if module is None or module.advice != known.advice:
                    left.append((node, written, known.advice))
                return
            # Not `fc.numeric_column`, after `fc = ex.feature_columns`.
            if module is None or known.name != f"{module.name}.{rest}":
                found.changes[node] = cst.parse_expression(known.name)
            if known.takes_compat:
                found.v1_classes.add(node)

        def visit_Name(self, node: libcst.Name) -> None:  # noqa: N802
            if node.value not in found.imports.modules or _is_bound(
                node, parents[node]
            ):
                return
            advice = (
                "this is a module of TensorFlow; write the names that are used of it"
            )
            left.append((node, node.value, advice))
            found.kept.add(node.value)

        def visit_Call(self, node: libcst.Call) -> None:  # noqa: N802
            known = found.imports.members.get(getattr(node.func, "value", ""))
            if isinstance(node.func, cst.Name) and known and known.name:
                if known.takes_compat:
                    found.v1_classes.add(node.func)
                left.extend(_find_wrong_arguments(node, node.func.value, known))

        def visit_ImportFrom(self, node: libcst.ImportFrom) -> bool:  # noqa: N802
            return self._import(node)

        def visit_Import(self, node: libcst.Import) -> bool:  # noqa: N802
            return self._import(node)

        def _import(self, node: Any) -> bool:
            left.extend((node, *item) for item in found.imports.left.get(node, ()))
            for file in neighbours_with_tensorflow(node, path) if path else ():
                advice = "this module uses TensorFlow as well; port it too"
                left.append((node, str(file), advice))
            return False

    found.module.visit(Find())
    return left


def _is_bound(node: Any, parent: Any) -> bool:
    """Return whether a name is an attribute, an argument's name or a target."""
    import libcst as cst

    if isinstance(parent, cst.Attribute):
        return parent.attr is node
    if isinstance(parent, cst.Arg):
        return parent.keyword is node
    return isinstance(
        parent, cst.Param | cst.AssignTarget | cst.NameItem | cst.ImportAlias
    )


def _find_problems(
    node: Any, parent: Any, written: str, path: str
) -> list[tuple[Any, str, str]]:
    """Return what is wrong with `ex.path`: it does not exist, or its arguments."""
    import libcst as cst

    try:
        value = migration.look_up(path)
    except AttributeError as error:
        return [(node, written, str(error).partition(": ")[2] or str(error))]
    if not isinstance(parent, cst.Call) or parent.func is not node:
        return []
    known = migration.Counterpart(f"ex.{path}", value=value)
    return _find_wrong_arguments(parent, written, known)


def _find_wrong_arguments(
    call: libcst.Call, written: str, known: migration.Counterpart
) -> list[tuple[Any, str, str]]:
    """Return the arguments of a call that the counterpart does not accept."""
    try:
        signature = inspect.signature(known.value).parameters
    except (TypeError, ValueError):
        return []
    kinds = {parameter.kind for parameter in signature.values()}
    accepted = _argument_names(known.value, signature)
    reserved = migration.ARGUMENTS.get(known.name or "", {})
    refused: list[tuple[Any, str, str]] = []
    for argument in call.args:
        if argument.keyword is None:
            continue
        name = argument.keyword.value
        is_none = getattr(argument.value, "value", "") == "None"
        if name in reserved and not is_none:
            refused.append((argument, f"{written}({name}=)", reserved[name]))
        elif accepted is not None and name not in accepted:
            advice = f"{known.name} has no argument {name!r}: leave it out"
            refused.append((argument, f"{written}({name}=)", advice))
    given = [a for a in call.args if a.keyword is None]
    positional = [p for p in signature.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    is_open = inspect.Parameter.VAR_POSITIONAL in kinds or any(a.star for a in given)
    if len(given) > len(positional) and not is_open:
        advice = f"{known.name} has {len(positional)} positional arguments: name them"
        refused.append((call, f"{written}(…)", advice))
    return refused


def _argument_names(value: Any, signature: Any) -> set[str] | None:
    """Return the names of all arguments, or None if a function takes any name."""
    names = set(signature)
    for parameter in signature.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            try:  # **options: Unpack[OptimizerOptions]
                hint = typing.get_type_hints(value)[parameter.name]
            except (KeyError, NameError, TypeError):
                return None
            options = next(iter(typing.get_args(hint)), None)
            if not typing.is_typeddict(options):
                return None
            names |= set(options.__annotations__)
    return names


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
    for name, target in _aliases_by_assignment(module, found).items():
        if target.startswith("ex."):
            found.ours[name] = target[3:]
        elif name not in found.aliases:
            found.aliases[name] = target
            found.assigned.add(name)
    return found


def _aliases_by_assignment(module: libcst.Module, found: Imports) -> dict[str, str]:
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
    root, _, rest = (full_name(node) or "").partition(".")
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
        name = full_name(item.name) or ""
        root, _, rest = name.partition(".")
        short = full_name(item.asname.name) if item.asname else None
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

    module = (full_name(node.module) or "") if node.module and not node.relative else ""
    root, _, rest = module.partition(".")
    if _needs_tensorflow(root):
        found.left.setdefault(node, []).append(_left_package(root))
        return
    if root == "estimax" and not isinstance(node.names, cst.ImportStar):
        for item in node.names:
            _read_ours(
                ".".join(p for p in (rest, full_name(item.name)) if p), item, found
            )
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
        full = ".".join(part for part in (rest, full_name(item.name)) if part)
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
    module = (full_name(node.module) or "") if node.module and not node.relative else ""
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
                stays.append(_format_import(item))
        elif known is not None and _is_importable(known):
            package, _, last = f"estimax.{(known.name or '')[3:]}".rpartition(".")
            alias = "" if last == name else f" as {name}"
            new.append(f"from {package} import {last}{alias}")
        else:
            stays.append(_format_import(item))
    kept_line = [f"from {module} import {', '.join(stays)}"] if stays else []
    return kept_line + (["import estimax as ex"] if needs_ours else []) + new


def _new_import(node: libcst.Import, kept: set[str]) -> list[str] | None:
    stays = []
    is_ours = False
    for item in node.names:
        root = (full_name(item.name) or "").split(".")[0]
        name = _bound_name(item) or root
        is_ours = is_ours or root == "tensorflow"
        if root != "tensorflow" or name in kept:
            stays.append(_format_import(item))
    if not is_ours:
        return None
    return [f"import {', '.join(stays)}"] * bool(stays) + ["import estimax as ex"]


def _format_import(item: libcst.ImportAlias) -> str:
    alias = f" as {full_name(item.asname.name)}" if item.asname else ""
    return f"{full_name(item.name)}{alias}"


def full_name(node: Any) -> str | None:
    """Return `a.b.c` of an expression of names; None if it is something else."""
    import libcst as cst

    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


_USES_TENSORFLOW = re.compile(rb"^\s*(?:import|from)\s+tensorflow\b", re.MULTILINE)


def neighbours_with_tensorflow(node: Any, program: Path) -> list[Path]:
    """Return the files that an import reads and that import TensorFlow.

    Args:
      node: `import …` or `from … import …`.
      program: The path of the program, which need not be in a package.
    """
    return [
        path
        for path in _files_of_import(node, program)
        if path != program and _USES_TENSORFLOW.search(path.read_bytes())
    ]


def _files_of_import(node: Any, program: Path) -> list[Path]:
    import libcst as cst

    if isinstance(node, cst.Import):
        names = [full_name(item.name) or "" for item in node.names]
        return _existing(_roots(program), names)
    module = (full_name(node.module) or "") if node.module else ""
    names = [module] if module else []
    if not isinstance(node.names, cst.ImportStar):
        items = [full_name(item.name) or "" for item in node.names]
        names += [f"{module}.{item}".lstrip(".") for item in items]
    if not node.relative:
        return _existing(_roots(program), names)
    levels = [program.parent, *program.parent.parents]
    start = levels[min(len(node.relative), len(levels)) - 1]
    return _existing([start], names)


def _roots(program: Path) -> list[Path]:
    """Return the folder of a program, and the one around the package it belongs to."""
    top = program.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return [program.parent, top]


def _existing(folders: list[Path], names: list[str]) -> list[Path]:
    """Return the files of modules, each once."""
    found: dict[Path, None] = {}
    for name in names:
        for folder in folders:
            base = folder.joinpath(*name.split("."))
            for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                if path.is_file():
                    found[path] = None
    return list(found)
