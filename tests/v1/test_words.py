import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import FeatureError, SpecError
from estimax.v1.lookup import index_to_string, string_to_index


def test_the_index_has_the_shape_of_the_words():
    words = np.array([[["a", "b"]], [["c", ""]]])
    assert string_to_index(words, ["b", "a"]).tolist() == [[[1, 0]], [[-1, -1]]]
    assert string_to_index(["b"], ["b", "a"]).dtype == jnp.int32


def test_the_empty_word_is_a_word_like_others():
    assert string_to_index(["", "a"], ["", "a"]).tolist() == [0, 1]


def test_unknown_words_get_the_buckets_of_tensorflow():
    # tf.lookup.index_table_from_tensor(["emerson", "lake", "palmer"], 4) in TF 2.15.
    found = string_to_index(
        ["emerson", "lake", "and", "palmer", "x", ""],
        ["emerson", "lake", "palmer"],
        num_oov_buckets=4,
    )
    assert found.tolist() == [0, 1, 4, 2, 5, 6]


def test_unknown_words_get_the_default_without_buckets():
    assert string_to_index(["a", "z"], ["a"], default_value=7).tolist() == [0, 7]


def test_integers_are_looked_up_in_a_vocabulary_of_integers():
    found = string_to_index(np.array([2**40, 3]), [3, 2**40])
    assert found.tolist() == [1, 0]


def test_a_file_is_read_line_by_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("be\nto\nor\n")
    assert string_to_index(["or", "be"], path).tolist() == [2, 0]
    assert string_to_index(["or"], str(path), vocabulary_size=2).tolist() == [-1]
    assert np.asarray(index_to_string(np.array([2, 3]), path)).tolist() == [
        b"or",
        b"UNK",
    ]


def test_a_sparse_feature_becomes_padded_ids():
    found = string_to_index(ex.Sparse.of_rows([["b", "a", "x"], []]), ["a", "b"])
    assert found.ids.tolist() == [[1, 0, -1, -1], [-1, -1, -1, -1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"vocabulary": ["a", "a"]}, "listed twice"),
        ({"vocabulary": "no/such/file"}, "cannot be read"),
        ({"vocabulary": ["a"], "vocabulary_size": 2}, "fewer than"),
        ({"vocabulary": [1]}, "takes integers, got strings"),
        ({"vocabulary": ["a"], "num_oov_buckets": 1, "default_value": 0}, "not both"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_is_refused(arguments, words):
    with pytest.raises((FeatureError, SpecError), match=words):
        string_to_index(["a"], **arguments)


def test_indices_outside_of_the_vocabulary_get_the_default_word():
    found = index_to_string(np.array([[0, -1], [2, 1]]), ["a", b"b"], "none")
    assert np.asarray(found).tolist() == [[b"a", b"none"], [b"none", b"b"]]


def test_indices_must_be_integers():
    with pytest.raises(TypeError, match="integers, got float32"):
        index_to_string(np.ones(2, np.float32), ["a"])
