"""Python expressions as data: what a run file builds, to be evaluated or printed.

    rate = Call("estimax.optimizers.Adam", {"learning_rate": 0.1})
    evaluate(rate)                 # the optimizer
    Script().text(rate)            # 'ex.optimizers.Adam(learning_rate=0.1)'

A run is built as one expression for the estimator and one for each spec. `build`
evaluates them; `estimax python` prints them. Both therefore mean the same program, and
making an expression imports neither jax nor the code that it names.
"""

from __future__ import annotations

import importlib
import json
import keyword
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from estimax.core.errors import ConfigError

Arguments = Mapping[str, Any]  # values are Expressions, containers of them, or plain


@dataclass(frozen=True, eq=False)
class Reference:
    """A public name, such as `flax.linen.relu`, or `package.module:name` of a user."""

    path: str


@dataclass(frozen=True, eq=False)
class Call:
    """A call of what a path names, or of a method of another expression.

    Args:
      path: The dotted path of a function or class; of a method, its name.
      named: Keyword arguments.
      positional: Positional arguments.
      of: The object whose method is called; None for a function.
      name: The variable that a script assigns the result to; "" writes it in place.
    """

    path: str
    named: Arguments = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    of: Any = None
    name: str = ""


@dataclass(frozen=True, eq=False)
class Function:
    """A function without arguments that returns the value of an expression."""

    name: str
    body: Any


Expression = Reference | Call | Function


# Expressions that were evaluated, with their values, by `id` of the expression. The
# expression is kept so that its id is not used for another one.
Known = dict[int, tuple[Any, Any]]


def evaluate(expression: Any, known: Known | None = None) -> Any:
    """Return the value of an expression, or of a container of expressions.

    An expression that is used in several places is evaluated once for each `known`.

    Args:
      expression: The expression.
      known: The values of expressions that were evaluated before; more are added.

    >>> evaluate([Call("math.sqrt", positional=(4.0,)), 1])
    [2.0, 1]
    """
    known = {} if known is None else known
    if isinstance(expression, Mapping):
        return {key: evaluate(value, known) for key, value in expression.items()}
    if isinstance(expression, tuple | list):
        return type(expression)(evaluate(item, known) for item in expression)
    if not isinstance(expression, Reference | Call | Function):
        return expression
    if id(expression) not in known:
        known[id(expression)] = (expression, _evaluate(expression, known))
    return known[id(expression)][1]


def _evaluate(expression: Expression, known: Known) -> Any:
    if isinstance(expression, Reference):
        return find(expression.path)
    if isinstance(expression, Function):
        # A new dictionary for each call: every call opens the data again.
        return _named(lambda: evaluate(expression.body, {}), expression.name)
    positional = [evaluate(item, known) for item in expression.positional]
    named = {key: evaluate(value, known) for key, value in expression.named.items()}
    if expression.of is None:
        return find(expression.path)(*positional, **named)
    return getattr(evaluate(expression.of, known), expression.path)(
        *positional, **named
    )


def _named(function: Callable[[], Any], name: str) -> Callable[[], Any]:
    function.__name__ = function.__qualname__ = name
    return function


def find(path: str) -> Any:
    """Import what a path names: `package.module.name` or `package.module:name`.

    Raises:
      ConfigError: The module or the name does not exist.

    >>> find("math.pi"), find("os.path:join").__name__
    (3.141592653589793, 'join')
    """
    module, _, attribute = path.partition(":")
    if not attribute:
        module, _, attribute = path.rpartition(".")
    try:
        value = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{path}: cannot be imported: {error}.") from None
    return value


_WIDTH = 72  # of a line, before it is indented


class Script:
    """Writes expressions as a Python script, with its imports and variables.

    >>> script = Script()
    >>> script.text(Call("math.floor", positional=(2.5,), name="low"))
    'low'
    >>> script.lines
    ['low = math.floor(2.5)']
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._taken: set[str] = {"ex"}
        self._kept: list[Any] = []  # so that no id is used for another expression

    def text(self, value: Any) -> str:
        """Return an expression as Python; assign its named parts to variables first."""
        if isinstance(value, str):
            # With double quotes, which JSON and Python read alike.
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, Mapping):
            items = [f"{self.text(k)}: {self.text(v)}" for k, v in value.items()]
            return _group("{", items, "}")
        if isinstance(value, list):
            return _group("[", [self.text(item) for item in value], "]")
        if isinstance(value, tuple):
            items = [self.text(item) for item in value]
            return f"({items[0]},)" if len(items) == 1 else _group("(", items, ")")
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, Reference):
            return self._path(value.path)
        if isinstance(value, Function):
            return self._function(value)
        if isinstance(value, Call):
            return self._call(value)
        return repr(value)

    def _call(self, call: Call) -> str:
        if id(call) in self._names:
            return self._names[id(call)]
        if call.path == "__getitem__":
            return f"{self.text(call.of)}[{self.text(call.positional[0])}]"
        if call.of is None:
            target = self._path(call.path)
        else:
            target = f"{self.text(call.of)}.{call.path}"
        arguments = [self.text(item) for item in call.positional]
        arguments += [f"{k}={self.text(v)}" for k, v in call.named.items()]
        text = _group(f"{target}(", arguments, ")")
        if not call.name:
            return text
        name = self._variable(call, call.name)
        self.lines.append(f"{name} = {text}")
        return name

    def _function(self, function: Function) -> str:
        if id(function) in self._names:
            return self._names[id(function)]
        name = self._variable(function, function.name)
        body = textwrap.indent(f"return {self.text(function.body)}", "    ")
        self.lines.append(f"\n\ndef {name}():\n{body}\n\n")
        return name

    def _variable(self, value: Expression, wanted: str) -> str:
        clean = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        if clean[0].isdigit() or keyword.iskeyword(clean):
            clean = f"_{clean}"
        name, number = clean, 2
        while name in self._taken:
            name, number = f"{clean}_{number}", number + 1
        self._taken.add(name)
        self._names[id(value)] = name
        self._kept.append(value)
        return name

    def _path(self, path: str) -> str:
        """Return a dotted path as the script writes it, and note its import."""
        if path.startswith("estimax.") and ":" not in path:
            package, _, name = path.removeprefix("estimax.").partition(".")
            public = importlib.import_module("estimax").__all__
            return f"ex.{package}.{name}" if package in public else f"ex.{name}"
        module, colon, attribute = path.partition(":")
        if not colon:
            module, _, attribute = path.rpartition(".")
        if module == "builtins":
            return attribute
        self.imports.add(f"import {module}")
        return f"{module}.{attribute}"


def _group(start: str, items: list[str], end: str) -> str:
    """Return items in brackets, on one line if they fit, else on lines of their own."""
    line = ", ".join(items)
    used = len(start.rpartition("\n")[2]) + len(end)
    if len(line) + used <= _WIDTH and "\n" not in line:
        return f"{start}{line}{end}"
    if all(len(item) < 20 and "\n" not in item for item in items):
        items = _filled(items)
    inside = textwrap.indent(",\n".join(items), "    ")
    return f"{start}\n{inside},\n{end}"


def _filled(items: list[str]) -> list[str]:
    """Join short items to lines."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= _WIDTH - 4:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines
