"""A bundle of trees is served where LightGBM cannot be imported."""

import numpy as np
import pytest
from serving.servers import running_server

import estimax as ex

pytest.importorskip("lightgbm")
fc = ex.feature_columns


def export(folder):
    """Export trees, and return the probabilities of a row without an age."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, 200).astype(np.float32)
    age[::7] = np.nan
    city = rng.choice([b"Oslo", b"Rome"], 200)
    features = {"age": age, "city": city}
    words = fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
    model = ex.BoostedTreesClassifier(
        [fc.numeric_column("age"), words],
        model_dir=str(folder / "model"),
        n_trees=8,
        config=ex.RunConfig(save_summary_steps=0),
    )
    model.train(lambda: (features, (city == b"Rome") ^ (age > 40)))
    model.export_saved_model(str(folder / "trees"))
    row = {"age": np.float32([np.nan]), "city": np.array([b"Rome"])}
    (answer,) = model.predict(lambda: iter([row]))
    return [float(value) for value in answer["probabilities"]]


def test_trees_are_served_without_lightgbm(tmp_path, monkeypatch):
    expected = export(tmp_path)
    # Found before the installed package, in the process of the server.
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "lightgbm.py").write_text("raise ImportError('blocked')\n")
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    with running_server(tmp_path, f"trees={tmp_path / 'trees'}") as server:
        body = {"signature_name": "predict", "instances": [{"city": "Rome"}]}
        status, found, _ = server.request("/v1/models/trees:predict", body)
    assert status == 200, found
    assert found["predictions"][0]["probabilities"] == pytest.approx(expected, rel=1e-6)
