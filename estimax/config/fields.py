"""How a dataclass field says what it accepts, and how that is read back.

    @dataclass(frozen=True, kw_only=True)
    class Train:
        max_steps: Annotated[int | None, About("Stop after.", at_least=1)] = None

    fields_of(Train)["max_steps"].about.at_least     # 1

The YAML decoder, the JSON Schema and the documentation all read these fields, so that
they cannot disagree. A trailing underscore is dropped in YAML: `class_` is `class`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class About:
    """What a field is for, and the limits of its value."""

    doc: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    min_items: int | None = None
    # A lone item may be written where a list of them is meant.
    one_or_many: bool = False


@dataclass(frozen=True)
class Field:
    """One field of a section, as YAML sees it."""

    name: str  # in Python
    key: str  # in YAML
    kind: Any  # a type expression
    about: About
    default: Any  # dataclasses.MISSING when required

    @property
    def required(self) -> bool:
        """Whether the key must be written."""
        return self.default is dataclasses.MISSING


@functools.cache
def fields_of(section: type) -> dict[str, Field]:
    """The fields of a section by their YAML key, in order."""
    hints = typing.get_type_hints(section, include_extras=True)
    found = {}
    for item in dataclasses.fields(section):
        kind, about = _split(hints[item.name])
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        key = item.name.removesuffix("_")
        found[key] = Field(item.name, key, kind, about, default)
    return found


def _split(hint: Any) -> tuple[Any, About]:  # a type expression
    if typing.get_origin(hint) is typing.Annotated:
        kind, *extras = typing.get_args(hint)
        for extra in extras:
            if isinstance(extra, About):
                return kind, extra
        return kind, About("")
    return hint, About("")


def members(kind: Any) -> tuple[Any, ...]:  # type expressions
    """The alternatives of a union; the type itself when it is none.

    >>> members(int | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def is_section(kind: Any) -> bool:  # a type expression
    """Whether a type is one of our dataclasses."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def literals(kind: Any) -> tuple[Any, ...]:  # the values of a Literal
    """The values of a `Literal`, or nothing."""
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    return ()


def tag_of(section: type) -> tuple[str, str] | None:
    """The key and value that tell a variant from its siblings; None when untagged.

    The first field of a variant is its tag when it is a Literal of one value.
    """
    first = next(iter(fields_of(section).values()))
    values = literals(first.kind)
    return (first.key, values[0]) if len(values) == 1 else None
