"""Status and metadata of models, as JSON and as messages.

    status_json(manager, Target("ctr"))
    metadata_json(manager, Target("ctr"))

int64 numbers are strings in this JSON, as protobuf's JSON format has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from estimax.export import CLASSIFY, REGRESS, TensorInfo
from estimax.export.signature import DEFAULT_SIGNATURE, PREDICT, Signature
from estimax.serving.inference import Target
from estimax.serving.lifecycle import Model, Version
from estimax.serving.manager import ModelManager
from estimax.serving.status import Code
from estimax.serving.tensors import dtype_name

# The input of a signature over serialized Examples.
_EXAMPLES = TensorInfo("inputs", "string", (None,))


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


def versions_json(model: Model) -> dict[str, Any]:
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
