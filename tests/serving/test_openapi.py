"""The OpenAPI description is valid, and describes real requests and answers."""

import jsonschema
import openapi_spec_validator
import pytest

ROW = {"age": 1.5, "hours": 2, "city": "Oslo", "tags": ["a"]}
COLUMNS = {"age": [1.5], "hours": [2], "city": ["Oslo"], "tags": [["a"]]}


@pytest.fixture(scope="module")
def described(server):
    status, found, _ = server.request("/openapi.json")
    assert status == 200
    return found


def schema_of(content):
    return content["content"]["application/json"]["schema"]


def test_the_description_is_valid(described):
    openapi_spec_validator.validate(described)
    assert "security" not in described


@pytest.mark.parametrize("body", [{"instances": [ROW]}, {"inputs": COLUMNS}])
def test_requests_and_answers_fit_their_schemas(server, described, body):
    predict = described["paths"]["/v1/models/clicks:predict"]["post"]
    jsonschema.validate(body, schema_of(predict["requestBody"]))
    status, answer, _ = server.request("/v1/models/clicks:predict", body)
    assert status == 200
    jsonschema.validate(answer, schema_of(predict["responses"]["200"]))


def test_a_text_for_a_number_does_not_fit(described):
    predict = described["paths"]["/v1/models/clicks:predict"]["post"]
    body, schema = (
        {"instances": [{**ROW, "age": "x"}]},
        schema_of(predict["requestBody"]),
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, schema)


def test_errors_fit_their_schema(server, described):
    predict = described["paths"]["/v1/models/clicks:predict"]["post"]
    status, answer, _ = server.request("/v1/models/clicks:predict", {"x": []})
    assert status == 400
    jsonschema.validate(answer, schema_of(predict["responses"]["default"]))


def test_every_path_without_a_body_answers(server, described):
    for path, methods in described["paths"].items():
        if "get" in methods:
            assert server.request(path)[0] == 200
