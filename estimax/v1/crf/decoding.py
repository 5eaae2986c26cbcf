"""The best sequence of tags: the Viterbi algorithm.

tags, score = crf_decode(logits, transitions, lengths)        # in a model, batched
tags, score = viterbi_decode(scores, transitions)             # in NumPy, one sequence
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core.errors import SpecError
from estimax.v1.crf.scores import Step, checked_inputs, checked_transitions, later_steps


def crf_decode(
    potentials: ArrayLike, transition_params: ArrayLike, sequence_length: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Return the tags with the highest score, for a batch of sequences.

    Use it in a `model_fn` for predictions and metrics; it works inside `jit` and in
    exported bundles.

    Args:
      potentials: Unary scores, [B, T, K]; usually the logits of a network.
      transition_params: Scores of a tag (row) followed by another (column), [K, K].
      sequence_length: The number of steps of each sequence, [B]; 0 is allowed.

    Returns:
      A pair: tags, int32 [B, T], 0 after the end of a sequence; and their scores,
      float32 [B], 0 for a sequence of length 0.

    Raises:
      SpecError: The shapes do not fit each other.

    Example:
      >>> potentials = [[[1.0, 0.0], [0.9, 1.0], [0.0, 0.0]]]
      >>> tags, score = crf_decode(potentials, [[0.5, 0.0], [0.0, 0.5]], [2])
      >>> tags.tolist(), round(float(score[0]), 4)  # 0, 1 is worse by 0.4
      ([[0, 0, 0]], 2.4)
    """
    scores, mask = checked_inputs("crf_decode", potentials, sequence_length)
    table = checked_transitions("crf_decode", transition_params, scores.shape[-1])

    def forward(best: jax.Array, given: Step) -> tuple[jax.Array, jax.Array]:
        unary, inside = given
        following = jnp.max(best[:, :, None] + table, axis=1) + unary
        return jnp.where(inside[:, None], following, best), best

    # No pointers are kept on the way forward: an argmax over all pairs of tags takes
    # ten times as long as the max, and on the way back one tag for each row is enough.
    def backward(
        tag: jax.Array, given: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        best, inside = given
        paths = best + table.T[tag]  # [B, K]: from each tag to the one that follows
        before = jnp.where(inside, jnp.argmax(paths, axis=-1), tag)
        return before, before

    later = later_steps(scores, mask)
    best, before_each = jax.lax.scan(forward, scores[:, 0], later)
    last = jnp.argmax(best, axis=-1)
    _, before = jax.lax.scan(backward, last, (before_each, later[1]), reverse=True)
    tags = jnp.moveaxis(jnp.concatenate([before, last[None]]), 0, 1)
    score = jnp.where(mask[:, 0], jnp.max(best, axis=-1), 0.0)
    return jnp.where(mask, tags, 0).astype(jnp.int32), score


def viterbi_decode(
    score: ArrayLike, transition_params: ArrayLike
) -> tuple[list[int], float]:
    """Return the tags with the highest score of one sequence, with NumPy.

    Use it on the predictions of a model, outside of the `model_fn`. For batches, and
    inside of a `model_fn`, use `crf_decode`.

    Args:
      score: Unary scores of one sequence without padding, [T, K].
      transition_params: Scores of a tag (row) followed by another (column), [K, K].

    Returns:
      A pair: the list of tags, and their score.

    Raises:
      SpecError: The shapes do not fit each other, or the call is inside `jit`.

    Example:
      >>> viterbi_decode([[1.0, 0.0], [0.75, 1.0]], [[0.5, 0.0], [0.0, 0.5]])
      ([0, 0], 2.25)
    """
    if isinstance(score, jax.core.Tracer) or isinstance(
        transition_params, jax.core.Tracer
    ):
        raise SpecError(
            "viterbi_decode runs in NumPy, after the model. Inside of a model_fn use "
            "ex.crf.crf_decode(logits, transitions, lengths)."
        )
    unary, table = np.asarray(score), np.asarray(transition_params)
    if unary.ndim != 2 or not len(unary) or table.shape != (unary.shape[-1],) * 2:
        raise SpecError(
            "viterbi_decode: expected scores [T, K] with at least one step and "
            f"transitions [K, K], got {list(unary.shape)} and {list(table.shape)}."
        )
    best, pointers = unary[0], []
    for row in unary[1:]:
        paths = best[:, None] + table
        pointers.append(np.argmax(paths, axis=0))
        best = np.max(paths, axis=0) + row
    tags = [int(np.argmax(best))]
    for came_from in reversed(pointers):
        tags.append(int(came_from[tags[-1]]))
    return tags[::-1], float(np.max(best))
