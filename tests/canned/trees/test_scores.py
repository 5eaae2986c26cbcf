"""XLA's scores of trees equal LightGBM's own, read from golden files."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from estimax.canned.trees.arrays import arrays_of, layout_of
from estimax.canned.trees.scores import raw_scores
from estimax.core.errors import CheckpointError
from estimax.formats import lightgbm_models

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "lightgbm"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))
SIZES = (6, 70)


def read(case):
    text = (GOLDEN / f"{case}.txt").read_text()
    saved = json.loads((GOLDEN / f"{case}.json").read_text())
    rows = np.array(saved["rows"], np.float64).astype(np.float32)
    return text, rows, np.array(saved["scores"])


def scores_of(text, rows):
    forest = lightgbm_models.parse(text)
    arrays = arrays_of(forest, 3, SIZES)
    ids = np.where(np.isnan(rows[:, 3:]), -1, rows[:, 3:]).astype(np.int32)
    scores = jax.jit(raw_scores, static_argnums=(3, 4))
    return np.asarray(scores(arrays, rows[:, :3], ids, SIZES, forest.outputs))


@pytest.mark.parametrize("case", CASES)
def test_scores_equal_lightgbms(case):
    text, rows, expected = read(case)
    np.testing.assert_allclose(scores_of(text, rows), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", ["binary", "multiclass", "zero_missing"])
def test_both_layouts_give_the_same_scores(case, monkeypatch):
    text, rows, _ = read(case)
    paths = scores_of(text, rows)
    monkeypatch.setattr("estimax.canned.trees.arrays._MOST_LEAVES_OF_PATHS", 1)
    np.testing.assert_allclose(scores_of(text, rows), paths, rtol=1e-6, atol=1e-6)


def test_a_forest_without_trees_scores_0():
    none = lightgbm_models.Forest((), 2, False, ("x",), "")
    arrays = arrays_of(none, 1, ())
    rows, ids = np.ones((3, 1), np.float32), np.zeros((3, 0), np.int32)
    assert np.asarray(raw_scores(arrays, rows, ids, (), 2)).tolist() == [[0, 0]] * 3


def test_a_prefix_has_the_first_iterations():
    text, _, _ = read("multiclass")
    first = lightgbm_models.first_iterations(text, 2)
    assert len(lightgbm_models.parse(first).trees) == 6


def test_joined_models_have_the_trees_of_both():
    text, rows, _ = read("regression")
    both = lightgbm_models.join([text, text])
    np.testing.assert_allclose(
        scores_of(both, rows), 2 * scores_of(text, rows), rtol=1e-6, atol=1e-6
    )


def test_layouts_of_models_of_nearly_one_size_are_equal():
    text, _, _ = read("binary")
    shapes = []
    for count in (4, 6):
        arrays = arrays_of(lightgbm_models.parse(text), 3, SIZES, count)
        del arrays["goes_right"]  # depends on the categories that splits name
        del arrays["split_category"]
        shapes.append(
            layout_of({n: (a.shape, a.dtype.name) for n, a in arrays.items()})
        )
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_tree_per_iteration=1", "num_tree_per_iteration=4", "6 trees for 4"),
        ("num_class=1\n", "", "no 'num_class'"),
        ("num_leaves=8", "num_leaves=9", "tree of 9 leaves has 7 values"),
        ("is_linear=0", "is_linear=1", "linear trees"),
    ],
)
def test_a_damaged_model_is_an_error(old, new, words):
    text, _, _ = read("binary")
    assert old in text
    with pytest.raises(CheckpointError, match=words):
        lightgbm_models.parse(text.replace(old, new, 1))
