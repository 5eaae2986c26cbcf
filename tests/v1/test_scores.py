import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brute_force import LENGTHS, STEPS, TAGS

from estimax.core.errors import LabelError, SpecError
from estimax.v1 import crf


def test_the_score_of_tags_is_the_sum_over_steps_and_neighbours():
    inputs, tags, transitions = brute_force.example()
    found = crf.crf_sequence_score(inputs, tags, LENGTHS, transitions)
    expected = [
        brute_force.score(inputs[i, :length], tags[i, :length], transitions)
        for i, length in enumerate(LENGTHS)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_parts_of_a_score_by_hand():
    inputs = [[[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]]]
    transitions = [[0.0, 0.5], [0.25, 0.0]]
    assert crf.crf_unary_score([[0, 1, 0]], [3], inputs).tolist() == [25.0]
    assert crf.crf_binary_score([[0, 1, 0]], [3], transitions).tolist() == [0.75]
    assert crf.crf_binary_score([[0, 1, 0]], [1], transitions).tolist() == [0.0]


def test_a_tag_out_of_range_is_named_with_its_place():
    tags = np.zeros((2, 3), int)
    tags[1, 2] = 5
    with pytest.raises(LabelError, match="found 5 in sequence 1, step 2"):
        crf.crf_unary_score(tags, [3, 3], np.zeros((2, 3, 5)))


@pytest.mark.parametrize("tag", [-1, TAGS])
def test_a_tag_out_of_range_inside_jit_makes_only_its_score_nan(tag):
    inputs, tags, transitions = brute_force.example()
    tags[3, 1] = tag
    found = jax.jit(crf.crf_sequence_score)(inputs, tags, LENGTHS, transitions)
    assert np.flatnonzero(np.isnan(found)).tolist() == [3]


def test_tags_of_padding_may_be_anything():
    inputs, tags, transitions = brute_force.example()
    expected = crf.crf_sequence_score(inputs, tags, LENGTHS, transitions)
    tags[np.arange(STEPS) >= LENGTHS[:, None]] = -1
    found = crf.crf_sequence_score(inputs, tags, LENGTHS, transitions)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.zeros((2, 3))}, r"\[B, T, K\].*got \[2, 3\]"),
        ({"inputs": np.zeros((2, 0, 4))}, "at least one step"),
        ({"tag_indices": np.zeros((2, 2), int)}, r"integers \[2, 3\]"),
        ({"tag_indices": np.zeros((2, 3))}, "integers .*float32"),
        ({"sequence_lengths": [3]}, r"must be \[2\]"),
        ({"transition_params": np.zeros((4, 3))}, r"\[4, 4\], got \[4, 3\]"),
        ({"transition_params": np.zeros((5, 5))}, r"4 tags"),
    ],
)
def test_shapes_that_do_not_fit_are_an_error(change, message):
    right = {
        "inputs": np.zeros((2, 3, 4)),
        "tag_indices": np.zeros((2, 3), int),
        "sequence_lengths": jnp.array([3, 3]),
        "transition_params": np.zeros((4, 4)),
    }
    crf.crf_sequence_score(**right)
    with pytest.raises((SpecError, LabelError), match=message):
        crf.crf_sequence_score(**{**right, **change})
