"""The call that a section stands for, as an expression.

    call_of(AdamConfig(learning_rate=0.1))     # estimax.optimizers.Adam(…)

The section says what it calls and which key is which argument (`schema/section.py`), so
this one function builds optimizers, schedules, heads, hooks and servers alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from estimax.config.expressions import Call, Reference
from estimax.config.schema.section import CodeName


def call_of(section: Any, *, variable: str = "", **given: Any) -> Call:
    """Return the call of what a section stands for.

    Values that are the default of the function are left out.

    Args:
      section: A section decorated with `calls`.
      variable: The variable of a script for the result.
      **given: More arguments, or other values for those of the section.
    """
    kind: Any = type(section)
    arguments = {}
    for argument, field in kind.CALLS.arguments(kind).items():
        value = getattr(section, field.name)
        if argument not in given and (field.required or value != field.default):
            arguments[argument] = expression_of(value)
    return Call(kind.CALLS.path, {**arguments, **given}, name=variable)


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
