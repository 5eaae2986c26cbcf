"""Write a run as YAML, with every default.

    load(file_with(dump(run))).run == run

`estimax show --yaml` prints this text, and `config/resolved.yaml` of a model directory
contains it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from estimax.config.nodes import SCALAR_PATTERNS, join
from estimax.config.schema import Run
from estimax.config.schema.section import fields_of


def to_plain(value: object) -> Any:  # dict, list or scalar
    """Return a section as dicts, lists and scalars.

    >>> from estimax.config.schema.data import ShuffleConfig
    >>> to_plain(ShuffleConfig(buffer_rows=10))
    {'buffer_rows': 10, 'seed': None, 'reshuffle': True}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = fields_of(type(value)).values()
        return {field.key: to_plain(getattr(value, field.name)) for field in items}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def dump(run: Run) -> str:
    """Return a run as YAML with every value."""
    return dump_plain(to_plain(run))


def dump_plain(value: object) -> str:
    """Return dicts, lists and scalars as YAML that reads back the same."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=88
    )


def dump_flow(value: object) -> str:
    """Return dicts, lists and scalars as YAML on one line.

    >>> dump_flow({"type": "adam", "words": ["no", "1"]})
    "{type: adam, words: [no, '1']}"
    """
    text: str = yaml.dump(
        value,
        Dumper=_FlowDumper,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
        default_flow_style=True,
    )
    return text.removesuffix("...\n").removesuffix("\n")


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every address with its value.

    A list of scalars is one value, and so is an empty mapping or list.

    >>> dict(leaves({"a": {"b": 1}, "c": [1, 2]}))
    {'a.b': 1, 'c': [1, 2]}
    """
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, join(path, key))
    elif isinstance(value, list) and any(isinstance(i, dict | list) for i in value):
        for i, item in enumerate(value):
            yield from leaves(item, join(path, str(i)))
    else:
        yield path, value


class _Dumper(yaml.SafeDumper):
    """A SafeDumper that quotes strings which YAML 1.2 would not read as strings."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def ignore_aliases(self, data: object) -> bool:
        return True


class _FlowDumper(_Dumper):
    """Writes mappings and lists in braces and brackets."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Escaped, so that a literal "${" is not read as a reference.
    escaped = text.replace("${", "$${")
    return dumper.represent_scalar("tag:yaml.org,2002:str", escaped)


def _represent_float(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
    text = special.get(repr(number), repr(number))
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    flat = not any(isinstance(item, dict | list) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


for _tag, _pattern in SCALAR_PATTERNS.items():
    # The dumper quotes a string that matches one of the resolvers.
    _whole = re.compile(f"(?:{_pattern.pattern})$")
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, None)
_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(float, _represent_float)
_Dumper.add_representer(list, _represent_list)
# Lists of lists are in brackets, too.
_FlowDumper.add_representer(list, yaml.SafeDumper.represent_list)
