"""The built-in page: models, their state, load, and a form to try a prediction.

page()                           # one HTML file without anything from outside
state(manager, totals)           # what the page asks for every two seconds
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
from estimax.export import TensorInfo
from estimax.export.signature import input_name
from estimax.serving.describe import versions_json
from estimax.serving.lifecycle import Version
from estimax.serving.manager import ModelManager
from estimax.staging.trace import Origin


@cache
def page() -> bytes:
    """Return the page."""
    return (resources.files("estimax.serving") / "page.html").read_bytes()


def state(
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
                {**_info(spec), "example": _example(loaded.example, spec)}
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
