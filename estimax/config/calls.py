"""The call that a section describes, as an expression.

    call_of(AdamConfig(learning_rate=0.1))     # estimax.optimizers.Adam(…)

The section says what it calls and which key is which argument (`schema/derive.py`), so
this one function builds optimizers, schedules, heads, hooks and servers alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from estimax.config.decode import CodeName, fields_of
from estimax.config.expressions import Call, Reference


def call_of(section: Any, *, variable: str = "", **given: Any) -> Call:
    """Return the call of what a derived section describes.

    Values that are the default of the function are left out.

    Args:
      section: A section that `derive` made.
      variable: The variable of a script for the result.
      **given: More arguments, or other values for those of the section.
    """
    about = section.DESCRIBES[-1]
    kind: Any = type(section)
    fields = {field.name: field for field in fields_of(kind).values()}
    arguments = {}
    for argument, key in about.keys.items():
        field = fields[key]
        value = getattr(section, key)
        if argument not in given and (field.required or value != field.default):
            arguments[argument] = expression_of(value)
    return Call(about.calls, {**arguments, **given}, name=variable)


def expression_of(value: Any) -> Any:
    """Return a value of a section as an expression: sections become calls."""
    if hasattr(value, "DESCRIBES"):
        return call_of(value)
    if isinstance(value, CodeName):
        return Reference(str(value))
    if isinstance(value, tuple | list):
        return type(value)(expression_of(item) for item in value)
    if isinstance(value, Mapping):
        return {key: expression_of(item) for key, item in value.items()}
    return value
