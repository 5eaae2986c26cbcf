"""`estimax port`: rewrite the names of a tf.estimator program.

Names that estimax has are replaced; the rest is listed by line with what to write. The
layout and the comments of the program stay, because libcst keeps all of its text.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from estimax.cli.console import note, say
from estimax.core.errors import ConfigError, MissingFileError
from estimax.core.migration import meanings
from estimax.storage import atomic


@dataclass
class Ported:
    """A rewritten program, and the names of TensorFlow that remain in it."""

    text: str
    replaced: int = 0
    remaining: list[Any] = field(default_factory=list)  # port_find.Remaining


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
    ported = port_text(path.read_text(encoding="utf-8"), str(path), path)
    atomic.write_bytes(target, ported.text.encode())
    for found in sorted(ported.remaining):
        say(f"{target}:{found.line}:{found.column}: {found.name}: {found.advice}")
    left = len(ported.remaining)
    used = {text for found in ported.remaining for text in meanings(found.advice)}
    if used:
        note(f"({'; '.join(sorted(used))})")
    note(
        f"{target}: {ported.replaced} names replaced, {left} to do by hand"
        + (" (listed above)" if left else "")
    )
    note(f"then try: python {shlex.quote(str(target))}", "cyan")


def port_text(text: str, name: str = "program", path: Path | None = None) -> Ported:
    """Return a program with the names of estimax.

    Args:
      text: The program.
      name: What messages call it.
      path: Where it is, to find modules beside it that use TensorFlow as well.

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
    from estimax.cli.port_names import find, new_imports

    found = find(text, name)
    is_placed = False  # whether a statement of the module has imported estimax

    class Change(cst.CSTTransformer):
        def leave_Attribute(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
            return found.changes.get(original_node, updated_node)

        def leave_Call(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
            names = [a.keyword.value for a in original_node.args if a.keyword]
            if original_node.func not in found.v1_classes or "compat" in names:
                return updated_node
            return updated_node.with_changes(args=_with_compat(updated_node.args))

        def leave_SimpleStatementLine(  # noqa: N802
            self, original_node: Any, updated_node: Any
        ) -> Any:
            nonlocal is_placed
            item = original_node.body[0]
            if not isinstance(item, cst.Import | cst.ImportFrom):
                return updated_node
            lines = new_imports(item, found.imports, found.kept)
            if lines is None or len(original_node.body) > 1:
                return updated_node
            # Once in the module; within a block always, which may not become empty.
            if original_node in found.module.body:
                if is_placed or not found.changes:
                    lines = [line for line in lines if line != _OURS]
                is_placed = is_placed or _OURS in lines
            if not lines:
                return cst.RemoveFromParent()
            first, *rest = [cst.parse_statement(line) for line in lines]
            first = first.with_changes(
                leading_lines=updated_node.leading_lines,
                trailing_whitespace=updated_node.trailing_whitespace,
            )
            return cst.FlattenSentinel([first, *rest])

    new = found.module.visit(Change())
    # Read once more, for the lines of the new text.
    remaining = find(new.code, name, path).remaining
    return Ported(new.code, len(found.changes) + found.imports.replaced, remaining)


_OURS = "import estimax as ex"


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
