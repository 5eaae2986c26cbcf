"""Sequence columns beyond the golden cases."""

import jax
import numpy as np
import pytest

from estimax import feature_columns as fc
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

KEY = jax.random.key(0)


def _words(key="words"):
    return fc.sequence_categorical_column_with_vocabulary_list(key, ["a", "b"])


def test_a_sequence_is_for_sequence_layers_only():
    numbers = fc.sequence_numeric_column("x")
    for column in (numbers, fc.indicator_column(_words())):
        with pytest.raises(ValueError, match="SequenceFeatures"):
            fc.DenseFeatures([column])
        with pytest.raises(ValueError, match="SequenceFeatures"):
            fc.LinearModel([column])
    with pytest.raises(ValueError, match="SequenceFeatures"):
        fc.LinearModel([_words()])


def test_a_sequence_can_be_neither_weighted_nor_crossed():
    with pytest.raises(ValueError, match="is a sequence column"):
        fc.weighted_categorical_column(_words(), "weight")
    with pytest.raises(ValueError, match="is a sequence column"):
        fc.crossed_column([_words(), "city"], 10)


def test_a_sequence_of_ids_must_be_wrapped():
    with pytest.raises(ValueError, match="embedding_column"):
        fc.SequenceFeatures([_words()])


def test_columns_built_alike_are_equal():
    assert _words() == _words()
    assert hash(_words()) == hash(_words())
    assert fc.sequence_numeric_column("x") == fc.sequence_numeric_column("x")


def test_dense_text_has_the_length_of_its_last_word():
    layer = fc.SequenceFeatures([fc.indicator_column(_words())])
    given = Strings.of([["a", "", "b"], ["", "", ""]])
    block, lengths = layer.apply({}, {"words": given})
    assert lengths.tolist() == [3, 0]
    assert block.sum(axis=(1, 2)).tolist() == [2, 0]


def test_a_default_must_be_a_number():
    with pytest.raises(ValueError, match="default_value"):
        fc.sequence_numeric_column("x", default_value=[1.0])


def test_many_ids_in_many_buckets_are_counted_at_their_step():
    many = fc.sequence_categorical_column_with_identity("n", 500)
    given = Sparse(
        np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]),
        np.array([3, 3, 499, 7]),
        (1, 2, 2),
    )
    layer = fc.SequenceFeatures([fc.indicator_column(many)])
    counts = np.asarray(layer.apply({}, {"n": given})[0])
    assert counts.shape == (1, 2, 500)
    assert counts[0, 0, 3] == 2
    assert counts[0, 1, 499] == counts[0, 1, 7] == 1
    assert counts.sum() == 4


def test_missing_numbers_are_not_normalized():
    column = fc.sequence_numeric_column("x", normalizer_fn=lambda x: x + 100)
    given = Sparse(np.array([[0, 1]]), np.array([1]), (1, 2))
    block, _ = fc.SequenceFeatures([column]).apply({}, {"x": given})
    assert block.tolist() == [[[0.0], [101.0]]]


def test_a_context_must_be_flat():
    with pytest.raises(ValueError, match="context_input"):
        fc.concatenate_context_input(np.ones((1, 2, 3), np.float32), np.ones((1, 2, 3)))
