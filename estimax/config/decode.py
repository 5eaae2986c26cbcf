"""Decode nodes to the dataclasses of `schema`; collect every mistake with its position.

    decoder = Decoder(problems)
    run = decoder.section(tree, Run, "")
    problems.raise_if_any()

Decoding is strict: types are not converted, and unknown keys are errors. It continues
after a problem. A value that could not be read becomes `BROKEN`, which later checks
ignore, so that one mistake gives one message.

No library does this: msgspec stops at the first mistake, and pydantic returns no object
if there is any, so that the checks across sections could not run on the rest.
"""

from __future__ import annotations

import difflib
import itertools
import math
import operator
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from estimax.config.nodes import (
    ConfigNode,
    ListNode,
    MapNode,
    Problems,
    ScalarNode,
    Unresolved,
    ValueOrigin,
    format_value,
    join,
    plain,
)
from estimax.config.schema.section import (
    CodeName,
    Items,
    Limits,
    SectionField,
    addresses_of,
    fields_of,
    is_section,
    items_of,
    limits_of,
    literals,
    members,
    tag_of,
)
from estimax.core.errors import did_you_mean

_CODE_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Broken:
    """A placeholder for a value that could not be read.

    It is an empty sequence, and its attributes and items are `Broken` as well, so that
    checks can use it like any other value.
    """

    def __getattr__(self, name: str) -> Broken:
        return self

    def __call__(self, *args: object) -> Broken:
        return self

    def __getitem__(self, key: object) -> Broken:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


# Any, because it replaces a value of any type. `load` raises an error before a run that
# contains it is returned.
BROKEN: Any = Broken()


def is_broken(value: object) -> bool:
    """Return whether a value could not be read; its annotation does not tell."""
    return isinstance(value, Broken)


class Decoder:
    """Decodes sections, and collects the origin of each key and value in `origins`."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.origins: dict[str, ValueOrigin] = {}
        self._root: type | None = None  # the section that is decoded first

    def section(self, node: ConfigNode, section: type, path: str) -> Any:  # a `section`
        """Decode a mapping to a dataclass."""
        self._root = self._root or section
        if not isinstance(node, MapNode):
            return self._wrong(node, path, "a mapping")
        self.origins.setdefault(path, node.origin)
        known = fields_of(section)
        near = self._unknown_keys(node, known, path)
        values = {}
        for field in known.values():
            values[field.name] = self._field(node, field, path, near)
        return section(**values)

    def _unknown_keys(
        self, node: MapNode, known: Mapping[str, SectionField], path: str
    ) -> set[str]:
        """Report unknown keys; return the keys that were probably meant."""
        near = set()
        # Suggest keys that are absent first: a key that is there was not misspelled.
        absent = [key for key in known if key not in node.entries]
        for key, entry in node.entries.items():
            if key in known:
                continue
            meant = difflib.get_close_matches(key, absent, n=1)
            near.update(meant)
            hint = did_you_mean(key, meant or known)
            is_misspelt = meant or difflib.get_close_matches(key, known, n=1)
            if not is_misspelt and (places := self._places(key, join(path, key))):
                hint = f"; did you mean {' or '.join(places)}?"
            self.problems.add(entry.key_origin, join(path, key), f"unknown key{hint}")
        return near

    def _places(self, key: str, here: str) -> list[str]:
        """Return the addresses of sections that have a key; nothing if many do.

        An address that is that of the key itself, in another variant, is left out.
        """
        assert self._root is not None
        # Also the plural: `optimizer` may mean `optimizers`.
        found = [*addresses_of(self._root, key)] or addresses_of(self._root, f"{key}s")
        places = [p for p in dict.fromkeys(found) if not _is_same(p, here)]
        # A model of several has the keys of a single one; name the short address.
        top = [place for place in places if ".<name>." not in place]
        ends = tuple(f".{place.partition('.')[2]}" for place in top)
        places = [p for p in places if p in top or not p.endswith(ends)]
        if len(places) > _MOST_PLACES:
            # A few models have keys that sections have for most others.
            places = [p for p in places if not p.startswith("model.")] or places
        if len({place.partition(".")[0] for place in places}) == 1:
            return places[:_MOST_PLACES]
        return places if len(places) <= _MOST_PLACES else []

    def _field(
        self, node: MapNode, field: SectionField, path: str, near: set[str]
    ) -> Any:
        here = join(path, field.key)
        entry = node.entries.get(field.key)
        if entry is None:
            if not field.required:
                return field.default
            if field.key not in near:
                self.problems.add(node.origin, here, "required key is missing")
            return BROKEN
        self.origins[here] = entry.key_origin
        return self.value(entry.node, field.kind, here)

    def value(self, node: ConfigNode, kind: Any, path: str) -> Any:
        """Decode a node to a value of the type `kind`."""
        self.origins.setdefault(path, node.origin)
        options = members(kind)
        if isinstance(node, ScalarNode) and isinstance(node.value, Unresolved):
            return BROKEN
        if isinstance(node, ScalarNode) and node.value is None:
            if type(None) in options or kind is Any:
                return None
            return self._wrong(node, path, describe(kind))
        if kind is Any:
            return plain(node)
        sections = [option for option in options if is_section(option)]
        if isinstance(node, MapNode):
            return self._map(node, kind, sections, path)
        sequence = next((o for o in options if typing.get_origin(o) is tuple), None)
        scalars = {str, int, float, bool, CodeName} & set(options)
        is_list = isinstance(node, ListNode)
        if sequence is not None and (is_list or not (scalars or _words(options))):
            return self._list(node, sequence, items_of(kind), path)
        if isinstance(node, ListNode):
            return self._wrong(node, path, describe(kind))
        return self._scalar(node, kind, path)

    def _map(self, node: MapNode, kind: Any, sections: list[type], path: str) -> Any:
        if sections:
            return self._variant(node, sections, path)
        for option in members(kind):
            if typing.get_origin(option) is Mapping:
                return self._mapping(node, typing.get_args(option)[1], path)
            if typing.get_origin(option) is tuple and items_of(kind).or_one:
                return self._list(node, option, items_of(kind), path)
        return self._wrong(node, path, describe(kind))

    def _mapping(self, node: MapNode, kind: Any, path: str) -> dict[str, Any]:
        found = {}
        for key, entry in node.entries.items():
            here = join(path, key)
            self.origins[here] = entry.key_origin
            found[key] = self.value(entry.node, kind, here)
        return found

    def _list(self, node: ConfigNode, kind: Any, items: Items, path: str) -> Any:
        item_kind = typing.get_args(kind)[0]
        if not isinstance(node, ListNode):
            if not items.or_one:
                return self._wrong(node, path, describe(kind), (kind,))
            return (self.value(node, item_kind, path),)
        if items.at_least is not None and len(node.items) < items.at_least:
            noun = "item" if items.at_least == 1 else "items"
            few = f"needs at least {items.at_least} {noun}, has {len(node.items)}"
            self.problems.add(node.origin, path, few)
            return BROKEN
        return tuple(
            self.value(item, item_kind, join(path, str(i)))
            for i, item in enumerate(node.items)
        )

    def _variant(self, node: MapNode, sections: list[type], path: str) -> Any:
        """Decode a mapping to the section that its tag names."""
        if len(sections) == 1:
            return self.section(node, sections[0], path)
        tagged = {tag: s for s in sections if (tag := tag_of(s)) is not None}
        key = next(iter(tagged))[0] if tagged else ""
        entry = node.entries.get(key)
        if entry is None:
            return self._decode_untagged(
                node, sections, key, [t for _, t in tagged], path
            )
        known = {tag: section for (_, tag), section in tagged.items()}
        word = entry.node.value if isinstance(entry.node, ScalarNode) else None
        if isinstance(word, Unresolved):
            return BROKEN
        if not isinstance(word, str) or word not in known:
            hint = did_you_mean(str(word), known)
            text = f"unknown {key} {format_value(plain(entry.node))}{hint}"
            self.problems.add(entry.node.origin, join(path, key), text)
            return BROKEN
        return self.section(node, known[word], path)

    def _decode_untagged(
        self, node: MapNode, sections: list[type], key: str, tags: list[str], path: str
    ) -> Any:
        for section in sections:
            if (
                tag_of(section) is None
                and next(iter(fields_of(section))) in node.entries
            ):
                return self.section(node, section, path)
        if not tags:
            firsts = [next(iter(fields_of(section))) for section in sections]
            text = f"expected a mapping with one of the keys {', '.join(firsts)}"
            self.problems.add(node.origin, path, text)
            return BROKEN
        text = f"required key is missing; one of: {', '.join(tags)}"
        self.problems.add(node.origin, join(path, key), text)
        return BROKEN

    def _scalar(self, node: ScalarNode, kind: Any, path: str) -> Any:
        value = node.value
        options = members(kind)
        words = _words(options)
        if isinstance(value, str):
            if value in words or str in options:
                return value
            if CodeName in options and (_CODE_NAME.fullmatch(value) or not words):
                return self._code_name(value, node, path)
            if words and not set(options) & {int, float, bool}:
                hint = did_you_mean(value, words)
                self.problems.add(
                    node.origin, path, f"unknown value {format_value(value)}{hint}"
                )
                return BROKEN
        if isinstance(value, bool):
            if bool in options:
                return value
            return self._wrong(node, path, describe(kind), options)
        if isinstance(value, int) and int in options:
            return self._check_limits(value, node, limits_of(kind, int), path)
        if isinstance(value, int | float) and float in options:
            number = float(value)
            return self._check_limits(number, node, limits_of(kind, float), path)
        return self._wrong(node, path, describe(kind), options)

    def _code_name(self, value: str, node: ConfigNode, path: str) -> Any:
        if _CODE_NAME.fullmatch(value):
            return CodeName(value)
        self.problems.add(node.origin, path, 'expected "package.module:name"')
        return BROKEN

    def _check_limits(
        self, value: float, node: ConfigNode, limits: Limits, path: str
    ) -> Any:
        limit = _broken_limit(value, limits)
        if limit is not None:
            text = f"must be {limit}, got {_number(value)}"
            self.problems.add(node.origin, path, text)
            return BROKEN
        return value

    def _wrong(
        self,
        node: ConfigNode,
        path: str,
        expected: str,
        options: tuple[Any, ...] = (),
    ) -> Any:
        hint = _section_hint(node, options) or _hint(node, expected)
        text = f"expected {expected}, got {_describe_node(node)}{hint}"
        self.problems.add(node.origin, path, text)
        return BROKEN


def _is_same(place: str, path: str) -> bool:
    """Return whether an address is one that a place such as `a.<name>.b` means."""
    pairs = itertools.zip_longest(place.split("."), path.split("."))
    return all(a == b or a in ("<name>", "<n>") for a, b in pairs)


def _words(options: tuple[Any, ...]) -> list[Any]:
    """Return the values of all Literals among the members of a type."""
    return [word for option in options for word in literals(option)]


_MOST_PLACES = 2


def _section_hint(node: ConfigNode, options: tuple[Any, ...]) -> str:
    """Return how to write a section of which only the type was given, or `true`."""
    if not isinstance(node, ScalarNode):
        return ""
    is_list = any(typing.get_origin(option) is tuple for option in options)
    items = [typing.get_args(o)[0] if is_list else o for o in options if o is not None]
    for section in (s for item in items for s in members(item) if is_section(s)):
        tag = tag_of(section)
        needed = [f.key for f in fields_of(section).values() if f.required]
        if tag is not None and node.value == tag[1]:
            more = "".join(f", {key}: …" for key in needed if key != tag[0])
            text = f"{{{tag[0]}: {tag[1]}{more}}}"
            return f"; write {f'[{text}]' if is_list else text}"
        if tag is None and node.value is True and not needed:
            return "; write {} for its defaults"
        if tag is None and isinstance(node.value, str) and len(needed) == 1:
            return f"; write {{{needed[0]}: {node.value}}}"
    return ""


# Models compute in float32. A larger number would be infinite there, and a smaller one
# zero, because XLA flushes subnormal numbers to zero.
_FLOAT32_MAX = 3.4028234663852886e38
_FLOAT32_TINY = 1.1754943508222875e-38


# The fields of `Limits`: attribute, comparison that must hold, sign in a message.
_LIMITS: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
    ("at_least", operator.ge, ">="),
    ("above", operator.gt, ">"),
    ("at_most", operator.le, "<="),
    ("below", operator.lt, "<"),
)


def _broken_limit(value: float, limits: Limits) -> str | None:
    """Return the limit that a number breaks, e.g. "> 0"; None if it breaks none."""
    if not math.isfinite(value):
        return "a finite number"
    if isinstance(value, float) and abs(value) > _FLOAT32_MAX:
        return "between -3.4e38 and 3.4e38 (float32)"
    for name, holds, sign in _LIMITS:
        limit = getattr(limits, name)
        if limit is not None and not holds(value, limit):
            return f"{sign} {_number(limit)}"
    if limits.above == 0 and isinstance(value, float) and value < _FLOAT32_TINY:
        return ">= 1.2e-38 (float32)"
    return None


def _number(value: float) -> str:
    """Return a number as text; an integer with all its digits."""
    return str(value) if isinstance(value, int) else f"{value:g}"


_NAMES = {
    int: "int",
    float: "float",
    str: "str",
    bool: "true or false",
    CodeName: '"package.module:name"',
}


def describe(kind: Any) -> str:
    """Return a type as messages name it.

    >>> describe(int | None), describe(tuple[str, ...])
    ('int or null', 'a list')
    """
    words = []
    for option in members(kind):
        if option in _NAMES:
            words.append(_NAMES[option])
        elif option is type(None):
            words.append("null")
        elif literals(option):
            words.extend(repr(value) for value in literals(option))
        elif typing.get_origin(option) is tuple:
            words.append("a list")
        elif "a mapping" not in words:
            words.append("a mapping")
    return " or ".join(words)


def _describe_node(node: ConfigNode) -> str:
    if isinstance(node, MapNode):
        return "a mapping"
    if isinstance(node, ListNode):
        return "a list"
    if node.value is None:
        return "null"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    if isinstance(node.value, float):
        return f"float {node.value:g}"
    return f"{type(node.value).__name__} {format_value(node.value)}"


def _hint(node: ConfigNode, expected: str) -> str:
    """Return a hint how to write the value that was probably meant."""
    if not isinstance(node, ScalarNode):
        return ""
    value = node.value
    if isinstance(value, str) and len(value) > 60:
        return ""
    wants = expected.split(" or ")
    if "int" in wants and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    if "str" in wants and value is not None:
        return f"; quote it: '{str(value).lower() if value is True else value}'"
    if "a list" in wants and value is not None:
        return f"; write [{value}]"
    if isinstance(value, str) and ("int" in wants or "float" in wants):
        unquoted = value.replace("_", "")
        try:
            float(unquoted)
        except ValueError:
            return ""
        return f"; write {unquoted} without quotes"
    return ""
