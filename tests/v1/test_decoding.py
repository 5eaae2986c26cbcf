import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brute_force import LENGTHS, STEPS

from estimax.core.errors import SpecError
from estimax.v1 import crf


def best_by_enumeration(inputs, transitions):
    scores = brute_force.all_scores(inputs, transitions)
    return max(scores.items(), key=lambda item: item[1])


@pytest.mark.parametrize("seed", range(3))
def test_decoding_finds_the_best_of_all_sequences(seed):
    inputs, _, transitions = brute_force.example(seed)
    tags, scores = jax.jit(crf.crf_decode)(inputs, transitions, LENGTHS)
    assert tags.dtype == jnp.int32
    for i, length in enumerate(LENGTHS):
        path, score = best_by_enumeration(inputs[i, :length], transitions)
        padding = (0,) * (STEPS - length)
        assert tuple(tags[i].tolist()) == path + padding
        np.testing.assert_allclose(scores[i], score, rtol=1e-5, atol=1e-6)


def test_padding_does_not_influence_the_tags():
    inputs, _, transitions = brute_force.example()
    expected = crf.crf_decode(inputs, transitions, LENGTHS)
    inputs[np.arange(STEPS) >= LENGTHS[:, None]] = np.nan
    found = crf.crf_decode(inputs, transitions, LENGTHS)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_first_of_equal_tags_is_taken():
    tags, _ = crf.crf_decode(np.zeros((1, 3, 4)), np.zeros((4, 4)), [3])
    assert tags.tolist() == [[0, 0, 0]]


def test_one_sequence_in_numpy_gives_the_same_tags():
    inputs, _, transitions = brute_force.example()
    batch_tags, batch_scores = crf.crf_decode(inputs, transitions, LENGTHS)
    for i, length in enumerate(LENGTHS):
        if length:
            tags, score = crf.viterbi_decode(inputs[i, :length], transitions)
            assert tags == batch_tags[i, :length].tolist()
            np.testing.assert_allclose(score, batch_scores[i], rtol=1e-5)


def test_decoding_in_numpy_inside_jit_says_what_to_use():
    with pytest.raises(SpecError, match="crf_decode"):
        jax.jit(crf.viterbi_decode)(np.zeros((2, 3)), np.zeros((3, 3)))


def test_decoding_in_numpy_checks_shapes():
    with pytest.raises(SpecError, match=r"\[2, 3\] and \[2, 2\]"):
        crf.viterbi_decode(np.zeros((2, 3)), np.zeros((2, 2)))
