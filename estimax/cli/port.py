"""`estimax port`: rewrite the names of a tf.estimator program.

Names that estimax has are replaced; the rest is listed by line with what to write. The
layout and the comments of the program stay, because libcst keeps all of its text.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax.cli.screen import note, say
from estimax.core.errors import ConfigError, InputError, MissingFileError
from estimax.wire import atomic

if TYPE_CHECKING:
    import libcst

_MODULES = ("tensorflow", "tensorflow.compat.v1")


@dataclass(frozen=True, order=True)
class Remaining:
    """A name that a person has to replace."""

    line: int
    column: int
    name: str
    advice: str


@dataclass
class Ported:
    """A rewritten program, and the names of TensorFlow that remain in it."""

    text: str
    replaced: int = 0
    remaining: list[Remaining] = field(default_factory=list)


def port(path: Path, output: Path | None, *, in_place: bool) -> None:
    """Rewrite a program and list the names that remain."""
    if in_place and output is not None:
        raise ConfigError(
            "--in-place: the file itself is rewritten; leave --output out"
        )
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such file.")
    target = path if in_place else output or path.with_name(f"{path.stem}_estimax.py")
    if target.exists() and output is None and not in_place:
        raise ConfigError(
            f"{target} exists already. Name another file with --output, or remove it."
        )
    ported = ported_text(path.read_text(encoding="utf-8"), str(path))
    atomic.write_bytes(target, ported.text.encode())
    for found in sorted(ported.remaining):
        say(f"{target}:{found.line}:{found.column}: {found.name}: {found.advice}")
    left = len(ported.remaining)
    note(
        f"{target}: {ported.replaced} names replaced, {left} to do by hand"
        + (" (listed above)" if left else "")
    )
    if left:
        note(f"then try: python {shlex.quote(str(target))}", "cyan")


def ported_text(text: str, name: str = "program") -> Ported:
    """Return a program with the names of estimax.

    Args:
      text: The program.
      name: What messages call it.

    Raises:
      ConfigError: libcst is not installed.
      InputError: The text is not a Python program.
    """
    try:
        import libcst as cst
    except ImportError:
        raise ConfigError(
            "port: libcst is not installed; pip install 'estimax[port]'."
        ) from None
    found = _find(text, name)

    class Change(cst.CSTTransformer):
        def leave_Attribute(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
            return found.changes.get(original_node, updated_node)

        def leave_Call(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
            names = [a.keyword.value for a in original_node.args if a.keyword]
            if original_node.func not in found.v1_classes or "compat" in names:
                return updated_node
            return updated_node.with_changes(args=_with_compat(updated_node.args))

    new = found.module.visit(Change())
    if found.changes:
        keeps = any(not left.name.startswith(".") for left in found.remaining)
        new = _with_import(new, keeps_tensorflow=keeps)
    # Read once more, for the lines of the new text.
    left = _find(new.code, name).remaining
    return Ported(new.code, len(found.changes), left)


@dataclass
class _Found:
    """The changes to make in a program, and the names that remain."""

    module: libcst.Module
    changes: dict[Any, Any] = field(default_factory=dict)  # by node
    v1_classes: set[Any] = field(default_factory=set)  # nodes that take compat="v1"
    remaining: list[Remaining] = field(default_factory=list)


def _find(text: str, name: str) -> _Found:
    """Find the names of TensorFlow in a program."""
    import libcst as cst

    from estimax.cli.port_names import METHODS, RENAMED_METHODS, counterpart

    try:
        wrapper = cst.MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        raise InputError(
            f"{name}, line {error.raw_line}: this is not Python 3: "
            f"{error.message.splitlines()[0][:200]}. Correct it; convert a program of "
            "Python 2 first."
        ) from None
    aliases = _aliases(wrapper.module)
    positions = wrapper.resolve(cst.metadata.PositionProvider)
    found = _Found(wrapper.module)

    def remain(node: Any, what: str, advice: str) -> None:
        start = positions[node].start
        place = Remaining(start.line, start.column + 1, what, advice)
        found.remaining.append(place)

    class Find(cst.CSTVisitor):
        def visit_Attribute(self, node: libcst.Attribute) -> bool:  # noqa: N802
            whole = _dotted(node) or ""
            root, _, rest = whole.partition(".")
            if root in aliases:
                self._translate(node, whole, aliases[root] + rest)
                return False
            method = node.attr.value
            if method in METHODS and root != "ex":
                remain(node, f".{method}", METHODS[method])
            if method in RENAMED_METHODS:
                new = cst.Name(RENAMED_METHODS[method])
                found.changes[node] = node.with_changes(attr=new)
            return True

        def _translate(self, node: Any, written: str, full: str) -> None:
            known = counterpart(full)
            if known.name is None:
                remain(node, written, known.advice)
                return
            found.changes[node] = cst.parse_expression(known.name)
            if known.takes_compat:
                found.v1_classes.add(node)

        def visit_ImportFrom(self, node: libcst.ImportFrom) -> bool:  # noqa: N802
            module = _dotted(node.module) or ""
            if module.split(".")[0] == "tensorflow" and not _imported_modules(node):
                advice = "write import estimax as ex, and ex.NAME for each name"
                remain(node, f"from {module} import", advice)
            return False

        def visit_Import(self, node: libcst.Import) -> bool:  # noqa: N802
            return False

    wrapper.module.visit(Find())
    return found


def _with_compat(arguments: Any) -> list[Any]:
    """Return the arguments of a call with compat="v1", laid out as the others are."""
    import libcst as cst

    call = cst.parse_expression('f(a, compat="v1")')
    assert isinstance(call, cst.Call)
    added = call.args[1]
    if not arguments:
        return [added]
    *before, last = arguments
    between = before[-1].comma if before else call.args[0].comma
    return [
        *before,
        last.with_changes(comma=between),
        added.with_changes(comma=last.comma),
    ]


def _dotted(node: Any) -> str | None:
    """Return `a.b.c` of an expression of names; None for another expression."""
    import libcst as cst

    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


def _aliases(module: libcst.Module) -> dict[str, str]:
    """Return the names of TensorFlow's modules, with the prefix they stand for.

    `import tensorflow.compat.v1 as tf` gives {"tf": "compat.v1."}.
    """
    import libcst as cst
    import libcst.matchers as m

    found: dict[str, str] = {}
    for node in m.findall(module, m.Import() | m.ImportFrom()):
        if isinstance(node, cst.Import):
            for item in node.names:
                name = _dotted(item.name) or ""
                short = item.asname.name if item.asname else None
                if name in _MODULES and isinstance(short, cst.Name):
                    prefix = "compat.v1." if name.endswith("v1") else ""
                    found[short.value] = prefix
                elif name.split(".")[0] == "tensorflow" and short is None:
                    found["tensorflow"] = ""
        elif isinstance(node, cst.ImportFrom) and node.module is not None:
            found |= _imported_modules(node)
    return found


def _imported_modules(node: libcst.ImportFrom) -> dict[str, str]:
    """Return the aliases that `from tensorflow[.compat] import …` makes."""
    import libcst as cst

    module = _dotted(node.module) if node.module else None
    if module not in ("tensorflow", "tensorflow.compat") or isinstance(
        node.names, cst.ImportStar
    ):
        return {}
    found = {}
    for item in node.names:
        name = _dotted(item.name) or ""
        short = item.asname.name if item.asname else item.name
        if isinstance(short, cst.Name) and (name.islower() or name == "v1"):
            is_v1 = module == "tensorflow.compat"
            found[short.value] = "compat.v1." if is_v1 else f"{name}."
    return found


def _with_import(module: libcst.Module, *, keeps_tensorflow: bool) -> libcst.Module:
    """Replace the first import of TensorFlow, or add ours behind it."""
    import libcst as cst

    ours = cst.parse_statement("import estimax as ex\n")
    body: list[Any] = []
    is_placed = False
    for statement in module.body:
        if not _imports_tensorflow(statement):
            body.append(statement)
            continue
        if keeps_tensorflow:
            body.append(statement)
        if not is_placed:
            is_placed = True
            lines = getattr(statement, "leading_lines", ())
            kept = ours if keeps_tensorflow else ours.with_changes(leading_lines=lines)
            body.append(kept)
    return module.with_changes(body=body)


def _imports_tensorflow(statement: Any) -> bool:
    import libcst as cst

    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    item = statement.body[0]
    if isinstance(item, cst.Import):
        names = [_dotted(name.name) or "" for name in item.names]
        return all(name.split(".")[0] == "tensorflow" for name in names)
    if isinstance(item, cst.ImportFrom) and item.module is not None:
        return (_dotted(item.module) or "").split(".")[0] == "tensorflow"
    return False
