"""Python expressions as data: what a run file builds, to be evaluated or printed.

    rate = CallExpression("estimax.optimizers.Adam", {"learning_rate": 0.1})
    evaluate(rate)                 # the optimizer
    Script().text(rate)            # 'ex.optimizers.Adam(learning_rate=0.1)'

A run is built as one expression for the estimator and one for each spec. `build`
evaluates them; `estimax python` prints them. Both therefore mean the same program, and
making an expression imports neither jax nor the code that it names.

A section says what it calls and which key is which argument (`schema/section.py`), so
`call_of` makes the expression of optimizers, schedules, heads, hooks and servers alike.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from estimax.config.schema.section import CodeName, fields_of
from estimax.core.errors import ConfigError

Arguments = Mapping[str, Any]  # values are Expressions, containers of them, or plain


@dataclass(frozen=True, eq=False)
class Reference:
    """A public name, such as `flax.linen.relu`, or `package.module:name` of a user."""

    path: str


@dataclass(frozen=True, eq=False)
class CallExpression:
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


Expression = Reference | CallExpression | Function


# Expressions that were evaluated, with their values, by `id` of the expression. The
# expression is kept so that its id is not used for another one.
Known = dict[int, tuple[Any, Any]]


def evaluate(expression: Any, known: Known | None = None) -> Any:
    """Return the value of an expression, or of a container of expressions.

    An expression that is used in several places is evaluated once for each `known`.

    Args:
      expression: The expression.
      known: The values of expressions that were evaluated before; more are added.

    >>> evaluate([CallExpression("math.sqrt", positional=(4.0,)), 1])
    [2.0, 1]
    """
    known = {} if known is None else known
    if isinstance(expression, Mapping):
        return {key: evaluate(value, known) for key, value in expression.items()}
    if isinstance(expression, tuple | list):
        return type(expression)(evaluate(item, known) for item in expression)
    if not isinstance(expression, Reference | CallExpression | Function):
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


def call_of(section: Any, *, variable: str = "", **given: Any) -> CallExpression:
    """Return the call of what a section stands for.

    Values that are the default of the function are left out.

    Args:
      section: A section decorated with `calls`.
      variable: The variable of a script for the result.
      **given: More arguments, or other values for those of the section.
    """
    kind: Any = type(section)
    arguments = {}
    for argument, key in kind.CALLS.arguments(kind).items():
        value = getattr(section, key.name)
        if argument not in given and (key.required or value != key.default):
            arguments[argument] = expression_of(value)
    return CallExpression(kind.CALLS.path, {**arguments, **given}, name=variable)


def changed_values(section: Any, *keys: str, **arguments: str) -> dict[str, Any]:
    """Return the values of keys that differ from their defaults, by argument.

    The defaults stand in the section alone, so no builder repeats one.

    Args:
      section: A section.
      *keys: Keys whose arguments have the same name.
      **arguments: The arguments of keys that have another name.
    """
    kind: Any = type(section)
    fields = fields_of(kind)
    found = {}
    for key, argument in {**dict(zip(keys, keys, strict=True)), **arguments}.items():
        value = getattr(section, fields[key].name)
        if value != fields[key].default:
            found[argument] = expression_of(value)
    return found


def expression_of(value: Any) -> Any:
    """Return a value of a section as an expression: sections become calls."""
    if hasattr(value, "CALLS"):
        return call_of(value)
    if isinstance(value, CodeName):
        return Reference(str(value))
    if isinstance(value, tuple | list):
        return type(value)(expression_of(item) for item in value)
    if isinstance(value, Mapping):
        return {key: expression_of(item) for key, item in value.items()}
    return value
