"""Class names among predictions: words kept on the host, ids on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from estimax.core.host_values import Words


def words_of(n_classes: int, vocabulary: tuple[str, ...] | None) -> tuple[str, ...]:
    """The name of every class: its word, or its id in decimal digits.

    >>> words_of(3, None), words_of(2, ("no", "yes"))
    (('0', '1', '2'), ('no', 'yes'))
    """
    if vocabulary is None:
        return tuple(map(str, range(n_classes)))
    # A word is missing only in a BinaryClassHead of one word; TensorFlow says UNK.
    return (*vocabulary, *("UNK",) * (n_classes - len(vocabulary)))


def all_class_ids(logits: jax.Array, n_classes: int) -> jax.Array:
    """Every class id in every row, [D0, n_classes]; axes between are left out."""
    ids = jnp.arange(n_classes, dtype=jnp.int32)
    return jnp.broadcast_to(ids, (logits.shape[0], n_classes))


def all_classes(logits: jax.Array, words: tuple[str, ...]) -> Words:
    """Every class name in every row, [D0, len(words)]."""
    return Words(all_class_ids(logits, len(words)), words)
