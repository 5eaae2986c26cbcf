import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brute_force import LENGTHS, STEPS

from estimax.core.errors import SpecError
from estimax.v1 import crf


def test_the_norm_is_the_sum_over_all_sequences():
    inputs, _, transitions = brute_force.example()
    found = jax.jit(crf.crf_log_norm)(inputs, LENGTHS, transitions)
    expected = [
        brute_force.log_norm(inputs[i, :length], transitions)
        for i, length in enumerate(LENGTHS)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_gradients_of_the_norm_are_expected_counts():
    inputs, _, transitions = brute_force.example()

    def total(inputs, transitions):
        return jnp.sum(crf.crf_log_norm(inputs, LENGTHS, transitions))

    by_input, by_pair = jax.grad(total, (0, 1))(inputs, transitions)
    wanted_pairs = np.zeros_like(transitions, np.float64)
    for i, length in enumerate(LENGTHS):
        wanted = np.zeros(inputs.shape[1:])
        wanted[:length], pairs = brute_force.log_norm_gradients(
            inputs[i, :length], transitions
        )
        wanted_pairs += pairs
        np.testing.assert_allclose(by_input[i], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_pair, wanted_pairs, rtol=1e-5, atol=1e-6)


def test_the_likelihoods_of_all_sequences_sum_to_one():
    inputs, _, transitions = brute_force.example()
    paths = np.array(list(brute_force.all_scores(inputs[0], transitions)))
    count = len(paths)
    same = np.broadcast_to(inputs[0], (count, *inputs[0].shape))
    found, _ = crf.crf_log_likelihood(same, paths, np.full(count, STEPS), transitions)
    np.testing.assert_allclose(jnp.sum(jnp.exp(found)), 1.0, rtol=1e-5)


def test_an_empty_sequence_is_certain_and_has_no_gradient():
    inputs, tags, transitions = brute_force.example()

    def first(inputs):
        lengths = np.zeros_like(LENGTHS)
        likelihood, _ = crf.crf_log_likelihood(inputs, tags, lengths, transitions)
        return jnp.sum(likelihood), likelihood

    gradient, likelihood = jax.grad(first, has_aux=True)(inputs)
    assert not np.any(likelihood)
    assert not np.any(gradient)


def test_one_step_is_a_softmax():
    inputs, tags, transitions = brute_force.example()
    found, _ = crf.crf_log_likelihood(
        inputs[:, :1], tags[:, :1], np.ones(len(tags)), transitions
    )
    softmax = jax.nn.log_softmax(inputs[:, 0])
    expected = np.take_along_axis(softmax, tags[:, :1], 1)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("filler", [99.0, np.nan, np.inf])
def test_padding_changes_neither_the_likelihood_nor_its_gradient(filler):
    inputs, tags, transitions = brute_force.example()

    def loss(inputs, transitions):
        likelihood, _ = crf.crf_log_likelihood(inputs, tags, LENGTHS, transitions)
        return -jnp.sum(likelihood)

    value_and_grad = jax.value_and_grad(loss, (0, 1))
    expected = value_and_grad(inputs, transitions)
    inputs[np.arange(STEPS) >= LENGTHS[:, None]] = filler
    found = value_and_grad(inputs, transitions)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("spread", [1.0, 12.0, 200.0])
def test_many_tags_give_what_a_sum_in_float64_gives(spread):
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(3, 5, 10)).astype(np.float32) * 40
    transitions = rng.normal(size=(10, 10)).astype(np.float32) * spread / 5
    lengths = np.array([5, 0, 3])

    def total(inputs, transitions):
        return jnp.sum(crf.crf_log_norm(inputs, lengths, transitions))

    value, (by_input, by_pair) = jax.value_and_grad(total, (0, 1))(inputs, transitions)
    wanted = 0.0
    for i, length in enumerate(lengths):
        alphas = inputs[i, 0].astype(np.float64)
        for row in inputs[i, 1:length]:
            alphas = np.logaddexp.reduce(alphas[:, None] + transitions, axis=0) + row
        wanted += np.logaddexp.reduce(alphas) if length else 0.0
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(np.sum(by_input, axis=(1, 2)), lengths, rtol=1e-4)
    np.testing.assert_allclose(np.sum(by_pair), 4 + 2, rtol=1e-4)


def test_forbidden_transitions_among_many_tags_are_left_out():
    forbidden = np.zeros((10, 10), np.float32)
    forbidden[:, 1:] = -np.inf
    norm = crf.crf_log_norm(np.zeros((1, 3, 10)), [3], forbidden)
    np.testing.assert_allclose(norm, [np.log(10)], rtol=1e-6)


def test_allowed_tags_among_many_are_summed_over():
    allowed = np.zeros((1, 3, 10), bool)
    allowed[..., :4] = True
    found = crf.crf_multitag_sequence_score(
        np.zeros((1, 3, 10)), allowed, [3], np.zeros((10, 10))
    )
    np.testing.assert_allclose(found, [3 * np.log(4)], rtol=1e-6)


def test_large_scores_do_not_overflow():
    inputs, _, transitions = brute_force.example()
    high = crf.crf_log_norm(inputs + 500.0, LENGTHS, transitions)
    expected = crf.crf_log_norm(inputs, LENGTHS, transitions) + 500.0 * LENGTHS
    np.testing.assert_allclose(high, expected, rtol=1e-5)


def test_allowed_tags_are_summed_over():
    inputs, _, transitions = brute_force.example()
    allowed = np.random.default_rng(1).random(inputs.shape) < 0.6
    allowed[..., 0] = True
    found = crf.crf_multitag_sequence_score(inputs, allowed, LENGTHS, transitions)
    for i, length in enumerate(LENGTHS):
        scores = brute_force.all_scores(inputs[i, :length], transitions)
        kept = [
            value
            for path, value in scores.items()
            if all(allowed[i, step, tag] for step, tag in enumerate(path))
        ]
        expected = np.log(np.sum(np.exp(kept)))
        np.testing.assert_allclose(found[i], expected, rtol=1e-5, atol=1e-6)


def test_a_bitmap_must_fit_the_scores():
    with pytest.raises(SpecError, match="tag_bitmap"):
        crf.crf_multitag_sequence_score(
            np.zeros((1, 2, 3)), np.ones((1, 2)), [2], np.zeros((3, 3))
        )


def test_transitions_are_declared_inside_of_a_model_only():
    with pytest.raises(SpecError, match=r"transitions.*outside of a model_fn"):
        crf.crf_log_likelihood(np.zeros((1, 2, 3)), np.zeros((1, 2), int), [2])
