"""Adam on tables, in its compiled pass and in XLA: one result, one checkpoint."""

import jax
import numpy as np
import pytest

import estimax as ex

RNG = np.random.default_rng(0)
WORDS = RNG.integers(0, 60, 256)
LABELS = (WORDS + RNG.integers(0, 9, 256)) % 2


def input_fn():
    rows = ex.input.Dataset.from_tensor_slices(({"word": WORDS}, LABELS))
    return rows.repeat().batch(8)


def model(model_dir):
    fc = ex.feature_columns
    word = fc.categorical_column_with_identity("word", 100)
    return ex.DNNClassifier(
        [4],
        [fc.embedding_column(word, 3)],
        model_dir=model_dir,
        optimizer=ex.optimizers.Adam(0.05),
        config=ex.RunConfig(tf_random_seed=1),
    )


def values(estimator):
    names = estimator.get_variable_names()
    return {name: estimator.get_variable_value(name) for name in names}


@pytest.mark.usefixtures("native_on")
def test_a_run_gives_the_same_with_and_without_the_kernel(tmp_path, monkeypatch):
    model(tmp_path / "on").train(input_fn, steps=40)
    monkeypatch.setattr("estimax.native.loading.setting", "off")
    model(tmp_path / "off").train(input_fn, steps=40)
    ours, theirs = values(model(tmp_path / "on")), values(model(tmp_path / "off"))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("native_on")
def test_a_run_without_the_kernel_is_continued_with_it(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("estimax.native.loading.setting", "off")
        model(tmp_path / "mixed").train(input_fn, max_steps=20)
    mixed = model(tmp_path / "mixed")
    mixed.evaluate(input_fn, steps=2)
    mixed.train(input_fn, max_steps=40)
    whole = model(tmp_path / "whole")
    whole.train(input_fn, max_steps=20)
    whole.train(input_fn, max_steps=40)
    ours, theirs = values(mixed), values(whole)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-3, atol=1e-5)
