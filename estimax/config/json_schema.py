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

from estimax.config.dump import to_plain
from estimax.config.schema import Run
from estimax.config.schema.section import (
    CodeName,
    Limits,
    SectionField,
    fields_of,
    is_section,
    items_of,
    key_descriptions,
    limits_of,
    literals,
    members,
    name_of,
    tag_of,
)

Json = dict[str, Any]  # a JSON object, whose values are of any kind

_REFERENCE: Json = {"type": "string", "pattern": r"\$\{"}
_CODE_NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$|\$\{"
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
    docs = key_descriptions(section)
    properties = {
        key: {"description": docs.get(field.name, ""), **_property(field, definitions)}
        for key, field in fields.items()
    }
    required = [k for k, f in fields.items() if f.required and not f.inferred]
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
    schema = _kind(field.kind, definitions)
    if not field.required:
        schema["default"] = to_plain(field.default)
    return schema


def _kind(kind: Any, definitions: dict[str, Json]) -> Json:
    """Return the schema of a value; `kind` is a type expression.

    Mappings and lists are chosen by `if` and `then`, not by `anyOf`: a validator then
    blames the key that is wrong, and not the whole mapping.
    """
    if kind is Any:
        return {}
    options = members(kind)
    sections = [option for option in options if is_section(option)]
    lists = [option for option in options if typing.get_origin(option) is tuple]
    mappings = [o for o in options if typing.get_origin(o) is Mapping]
    rest = [o for o in options if o not in (*sections, *lists, *mappings)]
    leaf = _leaf(kind, rest)
    if not (sections or lists or mappings):
        return leaf
    types = ["object"] if sections or mappings else []
    branches: list[Json] = []
    if mappings:
        item = _kind(typing.get_args(mappings[0])[1], definitions)
        branches.append(_if_type("object", {"additionalProperties": item}))
    elif sections:
        branches.append(_if_type("object", _variants(sections, definitions)))
    if lists:
        types.append("array")
        item, items = _kind(typing.get_args(lists[0])[0], definitions), items_of(kind)
        least = {} if items.at_least is None else {"minItems": items.at_least}
        branches.append(_if_type("array", {"items": item, **least}))
        if items.or_one:
            branches.append({"if": {"not": {"type": "array"}}, "then": item})
            return {"allOf": branches}
    several = {"not": {"type": types if len(types) > 1 else types[0]}}
    return {"allOf": [*branches, {"if": several, "then": leaf}]}


def _if_type(name: str, schema: Json) -> Json:
    return {"if": {"type": name}, "then": {"type": name, **schema}}


def _leaf(kind: Any, options: list[Any]) -> Json:
    """Return the schema of a scalar, which may always be a reference."""
    found = [_option(kind, option) for option in options]
    # Any value may be given as a reference, which is a string until it is resolved.
    if {"type": "string"} not in found:
        found.append(_REFERENCE)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _variants(sections: list[type], definitions: dict[str, Json]) -> Json:
    """Return the schema of a mapping that is one of several sections, by its tag."""
    if len(sections) == 1:
        return _reference(sections[0], definitions)
    tagged = {tag: s for s in sections if (tag := tag_of(s)) is not None}
    others = [section for section in sections if tag_of(section) is None]
    branches: list[Json] = []
    for section in others:
        first = next(iter(fields_of(section)))
        then = _reference(section, definitions)
        branches.append({"if": {"required": [first]}, "then": then})
    for (key, word), section in tagged.items():
        chosen = {"properties": {key: {"const": word}}, "required": [key]}
        branches.append({"if": chosen, "then": _reference(section, definitions)})
    firsts = [{"required": [next(iter(fields_of(section)))]} for section in others]
    needed: Json = {"anyOf": firsts}
    if tagged:
        key = next(iter(tagged))[0]
        words = {"enum": [word for _, word in tagged]}
        needed = {"properties": {key: words}, "required": [key]}
        if others:
            branches.append({"if": {"not": {"anyOf": firsts}}, "then": needed})
            return {"allOf": branches}
    return {**needed, "allOf": branches}


def _reference(section: type, definitions: dict[str, Json]) -> Json:
    name = name_of(section)
    if name not in definitions:
        definitions[name] = {}  # so that a section that contains itself ends
        definitions[name] = _section(section, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _option(kind: Any, option: Any) -> Json:
    if option is type(None):
        return {"type": "null"}
    if option is CodeName:
        return {"type": "string", "pattern": _CODE_NAME}
    if option in _TYPES:
        return {"type": _TYPES[option], **_limits(limits_of(kind, option))}
    assert literals(option), option
    return {"enum": list(literals(option))}


def _limits(limits: Limits) -> Json:
    words = {
        "minimum": limits.at_least,
        "exclusiveMinimum": limits.above,
        "maximum": limits.at_most,
        "exclusiveMaximum": limits.below,
    }
    return {word: limit for word, limit in words.items() if limit is not None}
