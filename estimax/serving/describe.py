"""Status and metadata of models as JSON, and the built-in page.

    status_json(manager, Target("ctr"))
    metadata_json(manager, Target("ctr"))
    page()                           # one HTML file without anything from outside
    page_state(manager, totals)      # what the page asks for every two seconds

int64 numbers are strings in the JSON of status and metadata, because protobuf's JSON
format writes them so and clients of TensorFlow Serving expect it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from estimax.core.sparse import Sparse
from estimax.export import CLASSIFY, REGRESS, TensorInfo
from estimax.export.signature import DEFAULT_SIGNATURE, PREDICT, Signature, input_name
from estimax.feature_columns.transforms import Vocabulary
from estimax.serving.inference import Target
from estimax.serving.lifecycle import ServedModel, Version
from estimax.serving.manager import ModelManager
from estimax.serving.status import Code
from estimax.serving.tensors import dtype_name
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import Origin

# The input of a signature over serialized Examples.
_EXAMPLES = TensorInfo("inputs", "string", (None,))
_MOST_WORDS = 100  # of a vocabulary that the page proposes


def status_json(manager: ModelManager, target: Target) -> dict[str, Any]:
    """Return the states of the versions of a model."""
    versions = manager.versions(target.name, target.version, target.label)
    return {"model_version_status": [_version_json(version) for version in versions]}


def models_json(manager: ModelManager) -> dict[str, Any]:
    """Return all models with the states of their versions."""
    return {
        "models": [
            {
                "name": name,
                "base_path": model.config.base_path,
                "labels": {k: str(v) for k, v in model.config.version_labels.items()},
                # Why its folder cannot be read; new versions are not seen meanwhile.
                **({} if error is None else {"error": str(error)}),
                **versions_json(model),
            }
            for name, model in manager.models().items()
            for error in [model.listing_error]
        ]
    }


def versions_json(model: ServedModel) -> dict[str, Any]:
    """Return the states of all versions of a model, newest first."""
    versions = sorted(model.versions.values(), key=lambda version: -version.number)
    return {"model_version_status": [_version_json(version) for version in versions]}


def metadata_json(manager: ModelManager, target: Target) -> dict[str, Any]:
    """Return the signatures of a version."""
    with manager.acquire(target.name, target.version, target.label) as served:
        bundle = served.loaded.bundle
        signatures = {
            name: {
                "inputs": _infos_json(inputs_of(signature)),
                "outputs": _infos_json(signature.outputs),
                "method_name": method_of(signature),
                "defaults": {},
            }
            for name, signature in bundle.signatures.items()
        }
        return {
            "model_spec": {
                "name": target.name,
                "signature_name": "",
                "version": str(served.number),
            },
            "metadata": {"signature_def": {"signature_def": signatures}},
        }


def inputs_of(signature: Signature) -> tuple[TensorInfo, ...]:
    """Return the inputs that metadata shows.

    A signature for classification or regression takes serialized Examples in
    TensorFlow. "serving_default" shows its raw features, as clients of REST send them.
    """
    is_raw = signature.name == DEFAULT_SIGNATURE or signature.method_name == PREDICT
    return signature.inputs if is_raw else (_EXAMPLES,)


def method_of(signature: Signature) -> str:
    """Return the method that metadata shows."""
    takes_examples = signature.method_name in (CLASSIFY, REGRESS)
    if takes_examples and signature.name == DEFAULT_SIGNATURE:
        return PREDICT
    return signature.method_name


def error_of(version: Version) -> tuple[Code, str]:
    """Return the status code and the message of a version."""
    if version.error is None:
        return Code.OK, ""
    return version.error.code, str(version.error)


def _version_json(version: Version) -> dict[str, Any]:
    code, text = error_of(version)
    return {
        "version": str(version.number),
        "state": version.state.name,
        "status": {"error_code": code.name, "error_message": text},
    }


def _infos_json(infos: tuple[TensorInfo, ...]) -> Mapping[str, Any]:
    return {
        info.name: {
            "dtype": dtype_name(info.dtype),
            "tensor_shape": {
                "dim": [
                    {"size": str(-1 if n is None else n), "name": ""}
                    for n in info.shape
                ],
                "unknown_rank": False,
            },
            "name": f"{info.name}:0",
        }
        for info in infos
    }


@cache
def page() -> bytes:
    """Return the page."""
    return (resources.files("estimax.serving") / "page.html").read_bytes()


def page_state(
    manager: ModelManager, totals: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Return the models, their signatures and their counters as JSON values."""
    return {
        "time": time.time(),
        "models": [
            {
                "name": name,
                "base_path": model.config.base_path,
                "labels": dict(model.config.version_labels),
                "totals": totals.get(name, {}),
                "versions": versions_json(model)["model_version_status"],
                "error": str(model.listing_error or ""),
                "signatures": _signatures(model.available()),
            }
            for name, model in manager.models().items()
        ],
    }


def _signatures(available: list[Version]) -> dict[str, Any]:
    """Return the signatures of the version that answers by default."""
    if not available or available[-1].loaded is None:
        return {}
    loaded = available[-1].loaded
    return {
        name: {
            "inputs": [
                {
                    **_info(spec),
                    "example": _example(loaded.example, spec),
                    "words": _words(loaded.bundle.plan, spec),
                }
                for spec in signature.inputs
            ],
            "outputs": [_info(spec) for spec in signature.outputs],
        }
        for name, signature in loaded.bundle.signatures.items()
    }


def _example(example: Mapping[Origin, Any], spec: TensorInfo) -> Any:
    """Return the value of a feature in the first row of the bundle's example."""
    for origin, value in example.items():
        if input_name(origin) == spec.name:
            first = value.rows(0, 1).values if isinstance(value, Sparse) else value[:1]
            plain = np.asarray(first).tolist()
            return _text(plain if isinstance(value, Sparse) else plain[0])
    return None


def _words(plan: HostPlan, spec: TensorInfo) -> list[Any]:
    """Return the first words of the vocabulary that a feature is looked up in."""
    for call in plan.calls:
        source = getattr(call.transform, "source", call.transform)
        names = [input_name(origin) for origin in call.inputs]
        if isinstance(source, Vocabulary) and names == [spec.name]:
            words: list[Any] = source.words.words[:_MOST_WORDS].tolist()
            return [_text(word) for word in words]
    return []


def _text(value: Any) -> Any:
    """Return a value with bytes as text, and with numbers that JSON lacks as text."""
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value).replace("inf", "Infinity")
    return value


def _info(spec: TensorInfo) -> dict[str, Any]:
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "kind": spec.kind,
    }
