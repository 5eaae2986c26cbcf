"""The built-in page: models, their state, load, and a form to try a prediction.

page()                           # one HTML file without anything from outside
state(manager, totals)           # what the page asks for every two seconds
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from estimax.export import TensorInfo
from estimax.serving.describe import versions_json
from estimax.serving.lifecycle import Version
from estimax.serving.manager import ModelManager


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
            "inputs": [_info(spec) for spec in signature.inputs],
            "outputs": [_info(spec) for spec in signature.outputs],
        }
        for name, signature in loaded.bundle.signatures.items()
    }


def _info(spec: TensorInfo) -> dict[str, Any]:
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "kind": spec.kind,
    }
