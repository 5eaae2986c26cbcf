"""Words to indices and back, for a hand-written `model_fn`.

    ids = ex.lookup.string_to_index(features["words"], "words.txt", num_oov_buckets=1)
    tags = ex.lookup.index_to_string(best_ids, ["O", "PER", "LOC"])

They take the place of TensorFlow's lookup tables. There is nothing to initialize: the
words are read when the model is traced, and an exported bundle contains them. A device
holds no text. So `string_to_index` is a host transform of a raw feature, and
`index_to_string` returns ids with their words, which become text on the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from estimax import staging
from estimax.core import migration
from estimax.core.device_dtypes import Words
from estimax.core.errors import FeatureError, SpecError
from estimax.feature_columns.transforms import (
    Vocabulary,
    WordList,
    count_words,
    load_words,
)

__all__ = ["index_to_string", "string_to_index"]


# Words or integers, or the path of a file with one word per line.
WordsOrFile = Iterable[str | bytes | int] | str | os.PathLike[str]


def string_to_index(
    values: Any,
    vocabulary: WordsOrFile,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    vocabulary_size: int | None = None,
) -> Any:
    """Return the position of every word in a vocabulary.

    Use it in a `model_fn` whose features or labels are text, in place of
    `tf.lookup.index_table_from_tensor`, `index_table_from_file` or
    `StaticVocabularyTable`. It runs on the host in the input thread; an exported bundle
    contains the vocabulary.

    Args:
      values: A feature or label as the `model_fn` got it, or an array outside of a
        model: text of any shape, or integers for a vocabulary of integers.
      vocabulary: The words in the order of their ids, or the path of a text file with
        one word per line.
      num_oov_buckets: The number of ids behind the words for values that are not in the
        vocabulary, chosen by TensorFlow's Fingerprint64 hash.
      default_value: The id of such values if there are no buckets.
      vocabulary_size: How many words of the vocabulary to use; None uses all.

    Returns:
      An int32 array of the shape of `values`. For a sparse feature, `Ids` whose `ids`
      are [B, L], -1 where a row has no more.

    Raises:
      FeatureError: A word is listed twice, the file cannot be read, or `values` was
        computed by the model and is no raw feature.
      SpecError: Both `num_oov_buckets` and `default_value` are given.

    Example:
      >>> string_to_index([["to", "be"], ["to", "me"]], ["be", "to"]).tolist()
      [[1, 0], [1, -1]]
      >>> string_to_index(["me"], ["be", "to"], num_oov_buckets=1).tolist()
      [2]
    """
    if num_oov_buckets < 0 or (num_oov_buckets and default_value != -1):
        raise SpecError(
            "string_to_index: give num_oov_buckets, at least 0, or default_value, not "
            f"both; got {num_oov_buckets} and {default_value}."
        )
    trace = staging.current()
    origin = None if trace is None else trace.origin(values)
    key = "values" if origin is None else origin.short_name or origin.part
    words = _word_list(vocabulary, vocabulary_size)
    words.check_distinct()
    source = Vocabulary(key, words, num_oov_buckets, default_value)
    return staging.stage(source, {key: values})


def index_to_string(
    ids: Any,
    vocabulary: WordsOrFile,
    default_value: str = "UNK",
    vocabulary_size: int | None = None,
) -> Any:
    """Return the word of every id, as a prediction of a model.

    Use it in a `model_fn` that answers with words, in place of
    `tf.lookup.index_to_string_table_from_tensor` or `index_to_string_table_from_file`.
    `predict` and exported bundles return the words as bytes.

    Args:
      ids: An integer array of any shape.
      vocabulary: The words in the order of their ids, or the path of a text file with
        one word per line.
      default_value: The word for ids outside of the vocabulary.
      vocabulary_size: How many words of the vocabulary to use; None uses all.

    Returns:
      A value for `EstimatorSpec(predictions=…)` or `export_outputs`. It has a `shape`;
      `np.asarray` makes an array of bytes of it outside of a model.

    Raises:
      FeatureError: The file cannot be read, or a word is not UTF-8.
      TypeError: `ids` are not integers.

    Example:
      >>> words = index_to_string(np.array([[1, 0], [1, 7]]), ["be", "to"])
      >>> np.asarray(words).tolist()
      [[b'to', b'be'], [b'to', b'UNK']]
    """
    ids = jnp.asarray(ids)
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(f"index_to_string: ids must be integers, got {ids.dtype}.")
    words = _texts(_word_list(vocabulary, vocabulary_size))
    is_known = (ids >= 0) & (ids < len(words))
    return Words(jnp.where(is_known, ids, len(words)), (*words, default_value))


def _word_list(given: WordsOrFile, size: int | None) -> WordList:
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        return load_words(path, size=count_words(path) if size is None else size)
    words = given.tolist() if isinstance(given, np.ndarray) else list(given)
    if size is not None and size > len(words):
        raise FeatureError(
            f"vocabulary: it has {len(words)} words, fewer than the vocabulary_size of "
            f"{size}."
        )
    return WordList.of(words[:size])


def _texts(words: WordList) -> tuple[str, ...]:
    try:
        return tuple(
            word.decode() if isinstance(word, bytes) else str(word)
            for word in words.words.tolist()
        )
    except UnicodeDecodeError as error:
        raise FeatureError(f"vocabulary: a word is not UTF-8 ({error}).") from None


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.lookup", name, __all__)
