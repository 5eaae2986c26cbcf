"""A bundle answers in a process that never saw the model, nor any code to train."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import train_wide_deep
import xla_flags

import estimax as ex

REQUEST = {
    "age": [31.0, 17.5, 0.0, 64.25, 40.0],
    "city": ["city 3", "city 40", "never seen", "", "Zürich"],
    "device": ["phone", "fridge", "", "desk", "toaster"],
}

PROGRAM = """
import json, sys
from estimax.export import load

path, request = sys.argv[1:]
bundle = load(path)
answers = bundle.predict(json.loads(request), signature="predict")

def plain(value):
    return value.decode() if isinstance(value, bytes) else value

print(json.dumps({
    "answers": {
        name: [[plain(v) for v in row] for row in array.tolist()]
        for name, array in answers.items()
    },
    "modules": sorted(sys.modules),
}))
"""

# What trains, and the libraries that only training needs.
FORBIDDEN = [
    *(
        f"estimax.{room}"
        for room in (
            "training",
            "estimator",
            "canned",
            "hooks",
            "optimizers",
            "heads",
            "feature_columns.column",
            "feature_columns.layers",
            "staging.variables",
            "checkpoints",
            "hooks.summary",
            "config",
            "cli",
        )
    ),
    "flax",
    "optax",
    "tensorboardX",
    "train_wide_deep",
]


@pytest.fixture(scope="module")
def answer(undisturbed, tmp_path_factory):
    """What the other process printed."""
    folder = tmp_path_factory.mktemp("bundle")
    estimator = train_wide_deep.make_estimator(undisturbed)
    bundle = estimator.export_saved_model(folder / "export")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, bundle, json.dumps(REQUEST)],
        cwd=folder,
        env={**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_bundle_answers_as_the_estimator_predicts(answer, undisturbed):
    features = {name: np.array(column) for name, column in REQUEST.items()}
    data = ex.input.Dataset.from_tensor_slices(features)
    estimator = train_wide_deep.make_estimator(undisturbed)
    expected = list(estimator.predict(lambda: data.batch(5)))
    answers = answer["answers"]
    assert answers.keys() == expected[0].keys()
    for name, column in answers.items():
        rows = np.stack([row[name] for row in expected])
        if name in ("classes", "all_classes"):
            assert column == [[word.decode() for word in row] for row in rows]
        else:
            np.testing.assert_allclose(column, rows, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("module", FORBIDDEN)
def test_process_has_loaded_nothing_that_trains(answer, module):
    loaded = answer["modules"]
    assert [m for m in loaded if m == module or m.startswith(f"{module}.")] == []
