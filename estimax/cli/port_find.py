"""Find the names of TensorFlow in a program: which to replace, which a person replaces.

    found = find(text, "train.py")
    found.changes    # new expressions by node
    found.remaining  # Remaining(line, column, name, advice) for each that is left

A name counts as replaced only if the new name exists in estimax and accepts the
arguments of the call.
"""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax.cli.port_imports import Imports, dotted, read_imports
from estimax.cli.port_neighbours import neighbours_with_tensorflow
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
            whole = dotted(node) or ""
            root, _, rest = whole.partition(".")
            if root in aliases:
                self._translate(node, whole, root, rest)
                return False
            if root in found.imports.ours:
                path_of_ours = f"{found.imports.ours[root]}.{rest}".lstrip(".")
                left.extend(_refused(node, parents[node], whole, path_of_ours))
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
                left.extend(_refused_arguments(node, node.func.value, known))

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


def _refused(
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
    return _refused_arguments(parent, written, known)


def _refused_arguments(
    call: libcst.Call, written: str, known: migration.Counterpart
) -> list[tuple[Any, str, str]]:
    """Return the arguments of a call that the counterpart does not accept."""
    try:
        signature = inspect.signature(known.value).parameters
    except (TypeError, ValueError):
        return []
    kinds = {parameter.kind for parameter in signature.values()}
    accepted = _accepted_names(known.value, signature)
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


def _accepted_names(value: Any, signature: Any) -> set[str] | None:
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
