"""The keys of a run file in words: type, limits, default and what they stand for.

`estimax schema train.max_steps` prints the entry of a key, and the documentation has a
page of all of them. Both are made from the same dataclasses as the decoder.
"""

from __future__ import annotations

import functools
import json
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from estimax.config.dump import to_plain
from estimax.config.schema import Run
from estimax.config.schema.section import (
    CodeName,
    SectionField,
    fields_of,
    is_section,
    items_of,
    key_descriptions,
    limits_of,
    literals,
    members,
    name_of,
    sections_below,
    tag_of,
)

# The part of a path that users do not write.
_PUBLIC = re.compile(r"^estimax\.((canned|estimator)\.)?")
_WORDS = {int: "integer", float: "number", str: "string", bool: "true or false"}


@dataclass(frozen=True)
class KeyEntry:
    """A key of a section.

    Args:
      key: The name of the key.
      type: The values that the key takes, with their limits.
      default: The default as YAML, or "required".
      python: The argument that the key stands for, or "" if it is not one argument.
      description: What the key does.
    """

    key: str
    type: str
    default: str
    python: str
    description: str


@dataclass(frozen=True)
class SectionEntry:
    """A section, i.e. a mapping with fixed keys.

    Args:
      name: A short name that no other section has, e.g. "Adam".
      addresses: Where a run file may have the section, e.g. "optimizers.dnn".
      tag: The key and value that choose the section among others, e.g. "type: adam".
      summary: What the section is, in one line.
      python: The function or class that the section stands for, or "".
      keys: The keys in the order of the section, without that of the tag.
      is_key: Whether the entry is one key of the section, and not the section.
    """

    name: str
    addresses: tuple[str, ...]
    tag: str
    summary: str
    python: str
    keys: tuple[KeyEntry, ...]
    is_key: bool = False


@functools.cache
def all_sections() -> tuple[SectionEntry, ...]:
    """Return every section once, in the order of a run file.

    >>> all_sections()[0].keys[0].key
    'schema'
    """
    found: dict[type, list[str]] = {Run: [""]}
    _collect(Run, "", found)
    return tuple(_section_entry(section, paths) for section, paths in found.items())


def _collect(section: type, path: str, found: dict[type, list[str]]) -> None:
    for here, below in sections_below(section, path):
        paths = found.setdefault(below, [])
        if here not in paths:
            paths.append(here)
            _collect(below, here, found)


def entries_at(address: str) -> list[SectionEntry]:
    """Return what a run file may have at an address, which may name any items.

    The entries are the sections that are possible there, and each section with the key
    of that name, without its other keys. Keys that are alike are returned once. The
    list is empty for an address that no run file has.

    >>> [entry.keys[0].default for entry in entries_at("data.sources.all.epochs")]
    ['1']
    >>> entries_at("train.steps_max")
    []
    """
    parts = address.split(".") if address else []
    sections = all_sections()
    found: dict[KeyEntry, SectionEntry] = {}
    for section in sections:
        if parts and any(_is_at(parts[:-1], a) for a in section.addresses):
            for key in section.keys:
                if key.key == parts[-1]:
                    found.setdefault(key, replace(section, keys=(key,), is_key=True))
    whole = [s for s in sections if any(_is_at(parts, a) for a in s.addresses)]
    return [*found.values(), *whole]


def known_part(address: str) -> str:
    """Return the longest part of an address that a run file may have.

    >>> known_part("train.max_step")
    'train'
    """
    while address and not entries_at(address):
        address = address.rpartition(".")[0]
    return address


def _is_at(parts: list[str], address: str) -> bool:
    """Return whether an address matches one that has `<name>` and `<n>` for items."""
    expected = address.split(".") if address else []
    return len(parts) == len(expected) and all(
        want in ("<name>", part) or (want == "<n>" and part in ("<n>", *_digits(part)))
        for part, want in zip(parts, expected, strict=True)
    )


def _digits(part: str) -> tuple[str, ...]:
    return (part,) if part.isdigit() else ()


# ---------------------------------------------------------------------------- entries
def _section_entry(section: type, addresses: list[str]) -> SectionEntry:
    # The key `schema` of a file has one value as well, but there is nothing to choose.
    tag = tag_of(section) if section is not Run else None
    target = getattr(section, "CALLS", None)
    path = target.path if target else ""
    names = {}
    if target:
        names = {f.key: name for name, f in target.arguments(section).items()}
    docs = key_descriptions(section)
    keys = tuple(
        KeyEntry(
            key,
            _kind_text(field.kind),
            _default(field),
            names.get(key, ""),
            docs[field.name],
        )
        for key, field in fields_of(section).items()
        if tag is None or key != tag[0]
    )
    return SectionEntry(
        name_of(section),
        tuple(addresses),
        f"{tag[0]}: {tag[1]}" if tag else "",
        (section.__doc__ or "").strip().split("\n")[0],
        _PUBLIC.sub("ex.", path),
        keys,
    )


def _default(field: SectionField) -> str:
    if field.required:
        inferred = ", but inferred from the data in a file without a model"
        return "required" + (inferred if field.inferred else "")
    return json.dumps(to_plain(field.default))


def _kind_text(kind: Any) -> str:  # a type expression
    if kind is Any:
        return "any value"
    options = members(kind)
    tags = [tag for o in options if is_section(o) and (tag := tag_of(o)) is not None]
    texts = [
        _option_text(kind, option)
        for option in options
        if not (is_section(option) and tag_of(option))
    ]
    for name in dict.fromkeys(name for name, _ in tags):
        values = [str(value) for key, value in tags if key == name]
        texts.append(f"mapping with {name}: {' or '.join(values)}")
    return ", or ".join(dict.fromkeys(sorted(texts, key=lambda text: text == "null")))


def _option_text(kind: Any, option: Any) -> str:
    if option is type(None):
        return "null"
    if option is CodeName:
        return "package.module:name"
    if option in _WORDS:
        return _WORDS[option] + _limit_text(kind, option)
    if is_section(option):
        return "mapping"
    if typing.get_origin(option) is tuple:
        items = items_of(kind)
        text = f"list of ({_kind_text(typing.get_args(option)[0])})"
        text += f", at least {items.at_least}" if items.at_least else ""
        return text + (", or one alone" if items.or_one else "")
    if typing.get_origin(option) is Mapping:
        return f"mapping of names to ({_kind_text(typing.get_args(option)[1])})"
    return " or ".join(_yaml(value) for value in literals(option))


def _yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _limit_text(kind: Any, number: type) -> str:
    limits = limits_of(kind, number)
    signs = {
        ">=": limits.at_least,
        ">": limits.above,
        "<=": limits.at_most,
        "<": limits.below,
    }
    found = [f"{sign} {limit:g}" for sign, limit in signs.items() if limit is not None]
    return f" {' and '.join(found)}" if found else ""


def lines_of(address: str) -> Iterator[str]:
    """Yield lines that describe what may be at an address, for a terminal.

    >>> print(*lines_of("train.max_steps"), sep="\\n")
    train.max_steps: integer >= 1, or null; default null
        Stop at this step; null stops at the end of the data.
    """
    for entry in entries_at(address):
        if entry.is_key:
            yield from _key_lines(entry.keys[0], address, "")
            continue
        tag = f" {{{entry.tag}}}" if entry.tag else ""
        python = f" In Python: {entry.python}." if entry.python else ""
        yield f"{address or 'a run file'}{tag}: {entry.summary}{python}"
        for key in entry.keys:
            yield from _key_lines(key, key.key, "  ")


def _key_lines(key: KeyEntry, name: str, indent: str) -> Iterator[str]:
    is_required = key.default.startswith("required")
    default = key.default if is_required else f"default {key.default}"
    yield f"{indent}{name}: {key.type}; {default}"
    yield f"{indent}    {key.description}"
