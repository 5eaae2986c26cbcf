"""Read the arguments of a public function or class from its source, without importing.

    arguments("optimizers/constructors.py", "Adam")["beta_1"].default      # 0.9

Importing `estimax.optimizers` imports jax, which takes seconds, and a run file is to be
checked in a fraction of one. So the signature is parsed: names, annotations, defaults,
and the description of each argument in the docstring.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[2]
REQUIRED: Any = object()  # the default of an argument that has none
# The default of an argument whose default is an expression, such as a function.
COMPUTED: Any = object()


@dataclass(frozen=True)
class Argument:
    """An argument: its name, annotation, default and description."""

    name: str
    annotation: ast.expr
    default: Any
    doc: str


@functools.cache
def arguments(file: str, name: str) -> dict[str, Argument]:
    """Return the arguments of a function, class or dataclass, in order.

    Args:
      file: A file of the package, such as "optimizers/constructors.py".
      name: The function or class.

    >>> list(arguments("optimizers/schedules.py", "exponential_decay"))
    ['learning_rate', 'decay_steps', 'decay_rate', 'staircase']
    """
    defined = _definitions(file)
    node = defined[name]
    docs = described_arguments(ast.get_docstring(node) or "")
    return {
        argument: Argument(
            argument, annotation, _value(default), docs.get(argument, "")
        )
        for argument, annotation, default in _found(node, defined)
    }


def summary(file: str, name: str) -> str:
    """Return the first line of a docstring.

    >>> summary("optimizers/constructors.py", "SGD")
    'Stochastic gradient descent, with momentum if given.'
    """
    text = ast.get_docstring(_definitions(file)[name]) or ""
    return text.split("\n")[0]


_Defined = ast.FunctionDef | ast.ClassDef


@functools.cache
def _definitions(file: str) -> dict[str, _Defined]:
    tree = ast.parse((_PACKAGE / file).read_text())
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def _found(
    node: _Defined, defined: dict[str, _Defined]
) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    if isinstance(node, ast.ClassDef):
        methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
        init = next((item for item in methods if item.name == "__init__"), None)
        if init is None:
            yield from _fields(node)
            return
        node = init
    given = node.args
    ordered = [*given.posonlyargs, *given.args]
    missing: list[ast.expr | None] = [None] * (len(ordered) - len(given.defaults))
    pairs = [
        *zip(ordered, [*missing, *given.defaults], strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if argument.arg != "self" and argument.annotation is not None:
            yield argument.arg, argument.annotation, default
    options = given.kwarg.annotation if given.kwarg else None
    # `**options: Unpack[Options]`: the keys of a TypedDict, none of them required.
    if isinstance(options, ast.Subscript) and isinstance(options.slice, ast.Name):
        typed = defined[options.slice.id]
        assert isinstance(typed, ast.ClassDef)
        for key, annotation, _ in _fields(typed):
            yield key, annotation, ast.Constant(None)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if item.target.id.startswith("_") or "ClassVar" in ast.dump(item.annotation):
            continue
        yield item.target.id, item.annotation, item.value


def _value(default: ast.expr | None) -> Any:
    if default is None:
        return REQUIRED
    try:
        return ast.literal_eval(default)
    except ValueError:
        return COMPUTED


_ENTRY = re.compile(r"  (\*{0,2}\w+): (.*)")


def described_arguments(docstring: str) -> dict[str, str]:
    """Return the descriptions in the `Args:` block of a docstring, each on one line.

    >>> described_arguments("Do.\\n\\nArgs:\\n  a: The\\n    first.\\n\\nRaises:\\n  b")
    {'a': 'The first.'}
    """
    found: dict[str, str] = {}
    current, inside = "", False
    for line in docstring.split("\n"):
        if line == "Args:":
            inside = True
        elif inside and line and not line.startswith(" "):
            break
        elif inside and (entry := _ENTRY.fullmatch(line)):
            current = entry[1]
            found[current] = entry[2]
        elif inside and current and line.startswith("    "):
            found[current] += f" {line.strip()}"
    return found
