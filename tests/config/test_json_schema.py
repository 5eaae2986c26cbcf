"""The JSON Schema agrees with the loader, as far as a schema can."""

import json
import re
from pathlib import Path

import pytest
import yaml

from estimax.config.json_schema import json_schema

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
assert CONFIGS[0].stem == "flights_wide_deep"
SCHEMA = json_schema()


KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def errors(value, schema, path=""):
    """A small validator: just the keywords that our schema uses."""
    if "$ref" in schema:
        target = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        return errors(value, target, path)
    found = []
    for branch in schema.get("allOf", ()):
        if not errors(value, branch["if"], path):
            found += errors(value, branch["then"], path)
    if "not" in schema and not errors(value, schema["not"], path):
        found.append(f"{path}: is excluded")
    if "anyOf" in schema:
        options = [errors(value, option, path) for option in schema["anyOf"]]
        if [] not in options:
            found.append(f"{path}: fits no alternative of {options}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: not in {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: not {schema['const']}")
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds and not any(_is(value, kind) for kind in kinds):
        return [*found, f"{path}: not {kinds}"]
    if isinstance(value, dict):
        found += _object_errors(value, schema, path)
    if isinstance(value, list):
        items = schema.get("items", {})
        for i, item in enumerate(value):
            found += errors(item, items, f"{path}.{i}")
        if len(value) < schema.get("minItems", 0):
            found.append(f"{path}: too few")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{path}: does not match")
    return found + _limit_errors(value, schema, path)


def _is(value, kind):
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind])


def _object_errors(value, schema, path):
    known = schema.get("properties", {})
    found = [
        f"{path}.{k}: missing" for k in schema.get("required", ()) if k not in value
    ]
    for key, item in value.items():
        rest = schema.get("additionalProperties", {})
        if key in known:
            found += errors(item, known[key], f"{path}.{key}")
        elif rest is False:
            found.append(f"{path}.{key}: unknown")
        else:
            found += errors(item, rest, f"{path}.{key}")
    return found


def _limit_errors(value, schema, path):
    low = schema.get("minimum", float("-inf"))
    above = schema.get("exclusiveMinimum", float("-inf"))
    if isinstance(value, int | float) and not (value >= low and value > above):
        return [f"{path}: out of range"]
    return []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_run_satisfies_the_schema(path):
    assert errors(yaml.safe_load(path.read_text()), SCHEMA) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda run: run.update(trian={}),
        lambda run: run.pop("schema"),
        lambda run: run["train"].update(max_steps="many"),
        lambda run: run["train"].update(max_steps=0),
        lambda run: run["model"].update(type="dnn_linear"),
        lambda run: run["features"]["carrier"].update(type="vocab"),
        lambda run: run["optimizers"]["dnn"].update(learning_rate=-1),
    ],
)
def test_the_schema_sees_mistakes_too(spoil):
    run = yaml.safe_load(CONFIGS[0].read_text())
    spoil(run)
    assert errors(run, SCHEMA)


def spoiled(**changes):
    run = yaml.safe_load(CONFIGS[0].read_text())
    for path, value in changes.items():
        *keys, last = path.split("__")
        inner = run
        for key in keys:
            inner = inner[key]
        inner[last] = value
    return run


@pytest.mark.parametrize(
    ("changes", "blamed"),
    [
        ({"model__dnn__hiden_units": [1]}, [".model.dnn.hiden_units: unknown"]),
        ({"model__head": {"type": "binary", "treshold": 1}}, [".model.head.treshold"]),
        ({"optimizers__dnn__type": "adamm"}, [".optimizers.dnn.type: not in"]),
        ({"optimizers__dnn__epsilom": 1}, [".optimizers.dnn.epsilom: unknown"]),
        (
            {"optimizers__dnn__learning_rate": {"schedule": "cosine", "initial": 1}},
            [".optimizers.dnn.learning_rate.decay_steps: missing"],
        ),
        ({"features__carrier__from_data": {"min": 1}}, [".features.carrier.from_data"]),
        ({"data__sources__train__shufle": 1}, [".data.sources.train.shufle: unknown"]),
        ({"export": [{"type": "best", "keeep": 1}]}, [".export.0.keeep: unknown"]),
        ({"train__hooks": [{"type": "nan", "x": 1}]}, [".train.hooks.0.x: unknown"]),
    ],
)
def test_the_schema_blames_the_key_and_not_the_block(changes, blamed):
    found = errors(spoiled(**changes), SCHEMA)
    assert len(found) == len(blamed), found
    for message, start in zip(found, blamed, strict=True):
        assert message.startswith(start)


def test_a_reference_is_allowed_where_a_number_is_expected():
    run = yaml.safe_load(CONFIGS[0].read_text())
    run["train"]["max_steps"] = "${vars.steps}"
    assert errors(run, SCHEMA) == []


def test_every_reference_inside_the_schema_leads_somewhere():
    text = json.dumps(SCHEMA)
    for name in set(re.findall(r"#/\$defs/(\w+)", text)):
        assert SCHEMA["$defs"][name]["properties"]


def test_every_key_is_described():
    for section in [SCHEMA, *SCHEMA["$defs"].values()]:
        for key, value in section["properties"].items():
            assert value["description"], key
