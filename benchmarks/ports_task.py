"""The ports: programs of examples/ in two versions, and the data that both train on."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacing import JsonSetup

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TAGGER = EXAMPLES / "sequence_tagger"
CENSUS, DEEPFM = EXAMPLES / "ports" / "census", EXAMPLES / "ports" / "deepfm"

# TensorFlow's and estimax's version of each port.
VERSIONS = {
    "census": (CENSUS / "tensorflow_version.py", CENSUS / "estimax_version.py"),
    "deepfm": (DEEPFM / "tensorflow_version.py", DEEPFM / "estimax_version.py"),
    "tagger": (TAGGER / "tensorflow_version.py", TAGGER / "tagger.py"),
}
BATCH_SIZES = {"census": 40, "deepfm": 256, "tagger": 64}


@dataclass(frozen=True)
class Setup(JsonSetup):
    """One port, its data file, and values of its params that differ."""

    port: str
    path: str
    rows: int = 20_000
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    warmup: int = 300


def load(path: Path) -> Any:
    """Import a file of the examples, with its folder on the path."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_port", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_data(setup: Setup) -> None:
    """Write the data file of the port; the tagger draws its sentences itself."""
    if setup.port == "census":
        load(CENSUS / "people.py").write(setup.path, setup.rows)
    elif setup.port == "deepfm":
        load(DEEPFM / "clicks.py").write(setup.path, setup.rows)


def build(setup: Setup, program: Any, model_dir: str) -> tuple[Any, Callable[[], Any]]:
    """The estimator of a version, and its endless input as the program writes it."""
    size = BATCH_SIZES[setup.port]
    if setup.port == "tagger":
        tagged = program.sentences(2000, seed=1)
        words = program.vocabulary(tagged)
        data = program.as_arrays(tagged, words)
        estimator = program.build_estimator(model_dir, len(words))
        return estimator, lambda: program.train_input_fn(data)
    estimator = program.build_estimator(model_dir, **setup.changes)
    if setup.port == "census":
        return estimator, lambda: program.input_fn(setup.path, None, True, size)
    return estimator, lambda: program.input_fn(setup.path, size, None, True)
