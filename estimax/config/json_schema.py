"""The JSON Schema of run files, with which editors complete and check a file.

    estimax schema > estimax-run.v1.schema.json
    # yaml-language-server: $schema=estimax-run.v1.schema.json

The schema is made from the same dataclasses as the decoder. It covers types, limits and
choices, but not references between sections; `estimax check` checks those as well.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from estimax.config.decode import (
    About,
    SectionField,
    fields_of,
    is_section,
    literals,
    members,
    tag_of,
)
from estimax.config.dump import to_plain
from estimax.config.schema import Run

Json = dict[str, Any]  # a JSON object, whose values are of any kind

_REFERENCE: Json = {"type": "string", "pattern": r"\$\{"}
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def json_schema() -> Json:
    """Return the JSON Schema of a run file.

    >>> json_schema()["properties"]["name"]["type"]
    'string'
    """
    definitions: dict[str, Json] = {}
    root = _section(Run, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "estimax run, version 1",
        **root,
        "$defs": definitions,
    }


def _section(section: type, definitions: dict[str, Json]) -> Json:
    tag = tag_of(section)
    fields = fields_of(section)
    properties = {key: _property(f, definitions) for key, f in fields.items()}
    required = [key for key, field in fields.items() if field.required]
    if tag is not None:
        required = sorted({tag[0], *required})
    schema: Json = {
        "type": "object",
        "description": _first_line(section),
        "properties": properties,
        "additionalProperties": False,
    }
    return {**schema, "required": required} if required else schema


def _first_line(section: type) -> str:
    return (section.__doc__ or "").strip().split("\n")[0]


def _property(field: SectionField, definitions: dict[str, Json]) -> Json:
    schema = _kind(field.kind, field.about, definitions)
    schema = {"description": field.about.doc, **schema}
    if not field.required:
        schema["default"] = to_plain(field.default)
    return schema


def _kind(kind: Any, about: About, definitions: dict[str, Json]) -> Json:
    """Return the schema of a value; `kind` is a type expression."""
    if kind is Any:
        return {}
    options = [_option(option, about, definitions) for option in members(kind)]
    # Any value may be given as a reference, which is a string until it is resolved.
    if not any(option.get("type") == "string" for option in options):
        options.append(_REFERENCE)
    return options[0] if len(options) == 1 else {"anyOf": options}


def _option(option: Any, about: About, definitions: dict[str, Json]) -> Json:
    if option is type(None):
        return {"type": "null"}
    if option in _TYPES:
        return {"type": _TYPES[option], **_limits(option, about)}
    if literals(option):
        return {"enum": list(literals(option))}
    if is_section(option):
        definitions.setdefault(_name(option), {})
        if not definitions[_name(option)]:
            definitions[_name(option)] = _section(option, definitions)
        return {"$ref": f"#/$defs/{_name(option)}"}
    if typing.get_origin(option) is tuple:
        return _list(option, about, definitions)
    assert typing.get_origin(option) is Mapping, option
    item = _kind(typing.get_args(option)[1], About(""), definitions)
    return {"type": "object", "additionalProperties": item}


def _name(section: type) -> str:
    """Return the name of a section's definition: `AdamConfig` is "Adam"."""
    return section.__name__.removesuffix("Config")


def _list(option: Any, about: About, definitions: dict[str, Json]) -> Json:
    item = _kind(typing.get_args(option)[0], about, definitions)
    schema: Json = {"type": "array", "items": item}
    if about.min_items is not None:
        schema["minItems"] = about.min_items
    return {"anyOf": [schema, item]} if about.one_or_many else schema


def _limits(option: type, about: About) -> Json:
    if option not in (int, float):
        return {}
    limits = {
        "minimum": about.at_least,
        "exclusiveMinimum": about.above,
        "maximum": about.at_most,
        "exclusiveMaximum": about.below,
    }
    return {key: limit for key, limit in limits.items() if limit is not None}
