"""An OpenAPI description of the REST API, made from the signatures of the models.

    openapi(manager, version="0.1.0", has_token=False)["paths"]

A generator of clients reads it from `/openapi.json`. The features and outputs are those
of "serving_default" in the version that answers; a body may name another signature.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Final

from estimax.export import TensorInfo
from estimax.export.signature import DEFAULT_SIGNATURE, STRING, Signature
from estimax.serving.lifecycle import ServedModel
from estimax.serving.manager import ModelManager

_TYPES: Final = {"b": "boolean", "i": "integer", "u": "integer"}
_ERROR: Final[dict[str, Any]] = {
    "description": "What was expected, and what was found.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}
_OBJECT: Final = {"type": "object"}


def openapi(manager: ModelManager, version: str, has_token: bool) -> dict[str, Any]:
    """Return the description of the API with all models that answer now.

    Args:
      manager: The models.
      version: The version of estimax.
      has_token: Whether requests need a bearer token.
    """
    paths: dict[str, Any] = {
        "/livez": {"get": _question("Whether the process lives.", "live")},
        "/readyz": {"get": _question("Whether every model answers.", "ready")},
    }
    for name, model in manager.models().items():
        paths |= _paths_of(name, model)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "estimax serve", "version": version},
        "paths": paths,
    }
    if has_token:
        bearer = {"type": "http", "scheme": "bearer"}
        described["components"] = {"securitySchemes": {"token": bearer}}
        described["security"] = [{"token": []}]
    return described


def _paths_of(name: str, model: ServedModel) -> dict[str, Any]:
    path = f"/v1/models/{urllib.parse.quote(name, safe='')}"
    found = {
        path: {"get": _question("The versions and their states.", f"{name}_status")},
        f"{path}/metadata": {
            "get": _question("The signatures.", f"{name}_metadata", _OBJECT)
        },
    }
    available = model.available()
    loaded = available[-1].loaded if available else None
    if loaded is None:
        return found
    signatures = loaded.bundle.signatures
    signature = signatures.get(DEFAULT_SIGNATURE)
    if signature is not None:
        found[f"{path}:predict"] = {"post": _predict(name, signature, list(signatures))}
    return found


def _predict(name: str, signature: Signature, signatures: list[str]) -> dict[str, Any]:
    row = _object_of(signature.inputs, is_row=True)
    columns = _object_of(signature.inputs, is_row=False)
    common = {"signature_name": {"type": "string", "enum": signatures}}
    rows = {"instances": {"type": "array", "items": row}}
    answers = {
        "predictions": {
            "type": "array",
            "items": _answer_of(signature.outputs, is_row=True),
        },
        "outputs": _answer_of(signature.outputs, is_row=False),
    }
    return {
        "operationId": f"{name}_predict",
        "summary": f"Predictions of {name} for rows, or for columns.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "oneOf": [
                            _required_object({**common, **rows}, "instances"),
                            _required_object({**common, "inputs": columns}, "inputs"),
                        ]
                    }
                }
            },
        },
        "responses": {
            "200": {
                "description": "`predictions` for rows, `outputs` for columns.",
                "content": {
                    "application/json": {
                        "schema": {"type": "object", "properties": answers}
                    }
                },
            },
            "default": _ERROR,
        },
    }


def _required_object(properties: dict[str, Any], required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}


def _object_of(specs: tuple[TensorInfo, ...], *, is_row: bool) -> dict[str, Any]:
    properties = {spec.name: _schema_of(spec, is_row=is_row) for spec in specs}
    return {"type": "object", "properties": properties}


def _answer_of(specs: tuple[TensorInfo, ...], *, is_row: bool) -> dict[str, Any]:
    """Return the schema of an answer, in which an only output has no name."""
    if len(specs) == 1:
        return _schema_of(specs[0], is_row=is_row)
    return _object_of(specs, is_row=is_row)


def _schema_of(spec: TensorInfo, *, is_row: bool) -> dict[str, Any]:
    """Return the schema of a value of one row, or of a column."""
    sizes = spec.tail if is_row else spec.shape
    schema: dict[str, Any] = {"type": [_type_of(spec), "null"]}
    for size in reversed(sizes):
        schema = {"type": "array", "items": schema}
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return schema


def _type_of(spec: TensorInfo) -> str:
    if spec.dtype == STRING:
        return "string"
    return next((t for k, t in _TYPES.items() if spec.dtype.startswith(k)), "number")


def _question(
    summary: str, name: str, schema: dict[str, str] | None = None
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": summary}
    if schema is not None:
        answer["content"] = {"application/json": {"schema": schema}}
    responses = {"200": answer, "default": _ERROR}
    return {"operationId": name, "summary": summary, "responses": responses}
