"""What a section is: a frozen dataclass whose fields are the keys of a run file.

    @calls("estimax.optimizers.SGD", {"clip_norm": "clipnorm"})
    @dataclass(frozen=True, kw_only=True)
    class SgdConfig:
        \"\"\"Stochastic gradient descent, with momentum if given.

        Args:
          momentum: Share of the last change that is repeated.
        \"\"\"

        type: Literal["sgd"] = "sgd"
        momentum: Annotated[float, Limits(at_least=0, at_most=1)] = 0.0
        clip_norm: PositiveFloat | None = None

The dataclass is the only description of its keys. A field has the name, type, limits
and default of a key; the docstring describes it. The decoder, the JSON Schema, resolved
run files and the call of what a section stands for are all made from `fields_of`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from estimax.config.nodes import join


@dataclass(frozen=True)
class Limits:
    """The limits of a number, as an annotation of `int` or `float`.

    Args:
      at_least: The smallest number allowed.
      above: Numbers must be greater than this.
      at_most: The largest number allowed.
      below: Numbers must be less than this.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None


@dataclass(frozen=True)
class Items:
    """What a list may be, as an annotation of `tuple`.

    Args:
      at_least: The smallest number of items.
      or_one: Whether a single item may be written instead of a list.
    """

    at_least: int | None = None
    or_one: bool = False


# Annotates a key that a file without a model may leave out; see `complete`.
INFERRED = "inferred"

PositiveInt = Annotated[int, Limits(at_least=1)]
NonNegativeInt = Annotated[int, Limits(at_least=0)]
PositiveFloat = Annotated[float, Limits(above=0)]
NonNegativeFloat = Annotated[float, Limits(at_least=0)]
Share = Annotated[float, Limits(at_least=0, at_most=1)]
Decay = Annotated[float, Limits(at_least=0, below=1)]
# Between 0 and 1, without both.
Fraction = Annotated[float, Limits(above=0, below=1)]
Strings = Annotated[tuple[str, ...], Items(at_least=1)]


class CodeName(str):
    """The type of a key that names code of the user: `package.module:name`."""

    __slots__ = ()


@dataclass(frozen=True)
class SectionField:
    """A field of a section."""

    name: str  # in Python
    key: str  # in YAML
    kind: Any  # a type expression
    default: Any  # dataclasses.MISSING if the key is required
    inferred: bool

    @property
    def required(self) -> bool:
        """Return whether the key must be given."""
        return self.default is dataclasses.MISSING


@functools.cache
def fields_of(section: type) -> dict[str, SectionField]:
    """Return the fields of a section by YAML key, in order."""
    hints = typing.get_type_hints(section, include_extras=True)
    found = {}
    for item in dataclasses.fields(section):
        kind = hints[item.name]
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        # `class_` and `from_`: names that Python reserves end with an underscore.
        key = item.name.removesuffix("_")
        inferred = INFERRED in getattr(kind, "__metadata__", ())
        found[key] = SectionField(item.name, key, kind, default, inferred)
    return found


# ------------------------------------------------------------------ types of the fields
def members(kind: Any) -> tuple[Any, ...]:  # type expressions
    """Return the members of a union without their annotations.

    A type that is no union is the only member.

    >>> members(PositiveInt | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    return tuple(_strip(option) for option in _union(kind))


def limits_of(kind: Any, number: type) -> Limits:
    """Return the limits of the member `int` or `float` of a type.

    >>> limits_of(PositiveInt | None, int)
    Limits(at_least=1, above=None, at_most=None, below=None)
    """
    return _annotation(kind, lambda found: found is number, Limits)


def items_of(kind: Any) -> Items:
    """Return what the list among the members of a type may be."""
    return _annotation(kind, lambda found: typing.get_origin(found) is tuple, Items)


_Annotation = TypeVar("_Annotation", Limits, Items)


def _annotation(
    kind: Any, is_meant: Callable[[Any], bool], wanted: type[_Annotation]
) -> _Annotation:
    for option in _union(kind):
        if is_meant(_strip(option)):
            for extra in getattr(option, "__metadata__", ()):
                if isinstance(extra, wanted):
                    return extra
    return wanted()


def _union(kind: Any) -> tuple[Any, ...]:
    plain = _strip(kind)
    if typing.get_origin(plain) in (typing.Union, types.UnionType):
        return typing.get_args(plain)
    return (kind,)


def _strip(kind: Any) -> Any:
    is_annotated = typing.get_origin(kind) is typing.Annotated
    return typing.get_args(kind)[0] if is_annotated else kind


def is_section(kind: Any) -> bool:  # a type expression
    """Return whether a type is a section, i.e. a dataclass."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def literals(kind: Any) -> tuple[Any, ...]:  # the values of a Literal
    """Return the values of a `Literal`; nothing for other types."""
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    return ()


def tag_of(section: type) -> tuple[str, str] | None:
    """Return key and value of a section's tag, e.g. ("type", "adam"); None without.

    The first field of a section is its tag if it is a Literal with one value.
    """
    first = next(iter(fields_of(section).values()))
    values = literals(members(first.kind)[0])
    return (first.key, values[0]) if len(values) == 1 else None


def name_of(section: type) -> str:
    """Return the short name of a section: "Adam" for `AdamConfig`."""
    return section.__name__.removesuffix("Config")


def sections_below(section: type, path: str = "") -> Iterator[tuple[str, type]]:
    """Yield the sections that the fields of a section hold, with their addresses."""
    for field in fields_of(section).values():
        here = join(path, field.key)
        for kind in members(field.kind):
            below, inner = here, kind
            if typing.get_origin(kind) is Mapping:
                below, inner = join(here, "<name>"), typing.get_args(kind)[1]
            elif typing.get_origin(kind) is tuple:
                below, inner = join(here, "<n>"), typing.get_args(kind)[0]
            for option in members(inner):
                if is_section(option):
                    yield below, option


def addresses_of(section: type, key: str, path: str = "") -> Iterator[str]:
    """Yield the addresses at which a section and the sections below it have a key.

    >>> from estimax.config.schema import Run
    >>> sorted(set(addresses_of(Run, "epochs")))
    ['data.sources.<name>.epochs']
    """
    for field in fields_of(section).values():
        if field.key == key:
            yield join(path, field.key)
    for here, found in sections_below(section, path):
        yield from addresses_of(found, key, here)


# ------------------------------------------------------------------------ descriptions
_ENTRY = re.compile(r" *(\w+): (.*)")


@functools.cache
def key_descriptions(section: type) -> dict[str, str]:
    """Return the description of each field, from the docstrings of the section.

    A base class describes the keys that its subclasses share.
    """
    found: dict[str, str] = {}
    for base in reversed(section.__mro__[:-1]):
        _, _, text = (base.__doc__ or "").partition("\n    Args:\n")
        current = ""
        for line in text.split("\n"):
            indent = len(line) - len(line.lstrip())
            if indent == 6 and (entry := _ENTRY.fullmatch(line)):
                current = entry[1]
                found[current] = entry[2]
            elif indent > 6 and current:
                found[current] += f" {line.strip()}"
    return found


# ------------------------------------------------------------------------------- calls
_Section = TypeVar("_Section", bound=type)


@dataclass(frozen=True)
class CallTarget:
    """What a section stands for: a function or class, and the argument of each key."""

    path: str
    renamed: Mapping[str, str]
    own: tuple[str, ...]

    def arguments(self, section: type) -> dict[str, SectionField]:
        """Return the field of each argument, in the order of the section."""
        tag = tag_of(section)
        own = self.own if tag is None else (*self.own, tag[0])
        return {
            self.renamed.get(key, key): field
            for key, field in fields_of(section).items()
            if key not in own
        }


def calls(
    path: str, renamed: Mapping[str, str] | None = None, *, own: tuple[str, ...] = ()
) -> Callable[[_Section], _Section]:
    """Return a decorator that says what a section stands for.

    Args:
      path: The public path of a function or class, e.g. "estimax.optimizers.Adam".
      renamed: The arguments of keys that have another name.
      own: Keys of the section that are not arguments.
    """

    def decorate(section: Any) -> Any:  # a dataclass, with a new attribute
        section.CALLS = CallTarget(path, renamed or {}, own)
        return section

    return decorate
