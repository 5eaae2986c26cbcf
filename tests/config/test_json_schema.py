"""The JSON Schema agrees with the loader, as far as a schema can."""

import json
import re
from pathlib import Path

import pytest
import yaml

from estimax.config.json_schema import json_schema

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SCHEMA = json_schema()


def errors(value, schema, path=""):
    """A small validator: just the keywords that our schema uses."""
    if "$ref" in schema:
        target = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        return errors(value, target, path)
    if "anyOf" in schema:
        found = [errors(value, option, path) for option in schema["anyOf"]]
        return [] if [] in found else [f"{path}: fits no alternative of {found}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path}: not in {schema['enum']}"]
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    kind = schema.get("type")
    if kind and not isinstance(value, kinds[kind]):
        return [f"{path}: not {kind}"]
    if isinstance(value, bool) and kind in ("integer", "number"):
        return [f"{path}: not {kind}"]
    if kind == "object":
        return _object_errors(value, schema, path)
    if kind == "array":
        found = [e for i, v in enumerate(value) for e in errors(v, schema["items"], i)]
        few = len(value) < schema.get("minItems", 0)
        return found + ([f"{path}: too few"] if few else [])
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [f"{path}: does not match"]
    return [] if value is None else _limit_errors(value, schema, path)


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
