"""The score of given tags: unary scores of the steps, binary scores of neighbours.

    crf_sequence_score(inputs, tags, lengths, transitions)                       # [B]

B is the batch, T the steps, K the tags. Steps from `sequence_lengths` on are padding:
whatever they hold, NaN included, changes neither a result nor a gradient.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core.errors import LabelError, SpecError

# The unary scores of one step [B, K], and whether it is inside of its sequence [B].
Step = tuple[jax.Array, jax.Array]


def crf_sequence_score(
    inputs: ArrayLike,
    tag_indices: ArrayLike,
    sequence_lengths: ArrayLike,
    transition_params: ArrayLike,
) -> jax.Array:
    """Return the score of a sequence of tags, before normalization.

    It is the sum of `crf_unary_score` and `crf_binary_score`.

    Args:
      inputs: Unary scores, [B, T, K]; usually the logits of a network.
      tag_indices: The tags to score, [B, T], integers from 0 to K - 1.
      sequence_lengths: The number of steps of each sequence, [B]; 0 is allowed.
      transition_params: Scores of a tag (row) followed by another (column), [K, K].

    Returns:
      Scores, float32 [B]; 0 for a sequence of length 0.

    Raises:
      SpecError: The shapes do not fit each other.
      LabelError: A tag is out of range. Inside `jit`, where values cannot be checked,
        the score of its sequence is NaN instead.

    Example:
      >>> inputs = [[[1.0, 0.0], [0.0, 2.0]]]
      >>> crf_sequence_score(inputs, [[0, 1]], [2], [[0.0, 0.5], [0.0, 0.0]]).tolist()
      [3.5]
    """
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    size = np.shape(inputs)[-1]
    table = checked_transitions("crf_sequence_score", transition_params, size)
    return unary + crf_binary_score(tag_indices, sequence_lengths, table)


def crf_unary_score(
    tag_indices: ArrayLike, sequence_lengths: ArrayLike, inputs: ArrayLike
) -> jax.Array:
    """Return the sum of the unary scores of given tags.

    Args:
      tag_indices: The tags to score, [B, T], integers from 0 to K - 1.
      sequence_lengths: The number of steps of each sequence, [B].
      inputs: Unary scores, [B, T, K].

    Returns:
      Scores, float32 [B].

    Raises:
      SpecError: The shapes do not fit each other.
      LabelError: A tag is out of range; the score is NaN instead inside `jit`.

    Example:
      >>> crf_unary_score([[0, 1]], [2], [[[1.0, 0.0], [0.0, 2.0]]]).tolist()
      [3.0]
    """
    scores, mask = checked_inputs("crf_unary_score", inputs, sequence_lengths)
    tags = _checked_tags("crf_unary_score", tag_indices, mask, scores.shape[-1])
    # A tag of -1 or K fills its score with NaN.
    chosen = jnp.take_along_axis(scores, tags[..., None], axis=-1, mode="fill")
    return jnp.sum(jnp.where(mask, chosen[..., 0], 0.0), axis=-1)


def crf_binary_score(
    tag_indices: ArrayLike, sequence_lengths: ArrayLike, transition_params: ArrayLike
) -> jax.Array:
    """Return the sum of the transition scores between given tags.

    Args:
      tag_indices: The tags to score, [B, T], integers from 0 to K - 1.
      sequence_lengths: The number of steps of each sequence, [B].
      transition_params: Scores of a tag (row) followed by another (column), [K, K].

    Returns:
      Scores, float32 [B]; 0 for sequences of one step.

    Raises:
      SpecError: The shapes do not fit each other.
      LabelError: A tag is out of range; the score is NaN instead inside `jit`.

    Example:
      >>> crf_binary_score([[0, 1, 1]], [3], [[0.0, 0.5], [0.0, 2.0]]).tolist()
      [2.5]
    """
    function = "crf_binary_score"
    table = checked_transitions(function, transition_params)
    shape = np.shape(tag_indices)
    if len(shape) != 2:
        raise SpecError(f"{function}: tags must be [B, T], got {list(shape)}.")
    mask = _mask(function, sequence_lengths, shape[0], shape[1])
    tags = _checked_tags(function, tag_indices, mask, table.shape[-1])
    following = mask[:, 1:]
    # Padding is tag 0 in `tags`; its transitions are looked up and then left out.
    chosen = table.at[tags[:, :-1], tags[:, 1:]].get(mode="fill", fill_value=jnp.nan)
    return jnp.sum(jnp.where(following, chosen, 0.0), axis=-1)


def checked_inputs(
    function: str, inputs: ArrayLike, sequence_lengths: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Return unary scores float32 [B, T, K], 0 in padding, and the mask [B, T]."""
    scores = jnp.asarray(inputs, jnp.float32)
    if scores.ndim != 3 or not scores.shape[1]:
        raise SpecError(
            f"{function}: scores must be [B, T, K] (batch, steps, tags) with at least "
            f"one step, got {list(scores.shape)}."
        )
    mask = _mask(function, sequence_lengths, *scores.shape[:2])
    # Padding becomes 0 before anything is computed: a NaN there would reach the
    # gradient, even if a later `where` leaves it out of the result.
    return jnp.where(mask[..., None], scores, 0.0), mask


def later_steps(scores: jax.Array, mask: jax.Array) -> Step:
    """Return all steps but the first, time first: [T - 1, B, K] and [T - 1, B]."""
    return jnp.moveaxis(scores[:, 1:], 1, 0), jnp.moveaxis(mask[:, 1:], 1, 0)


def checked_transitions(
    function: str, transition_params: ArrayLike, num_tags: int | None = None
) -> jax.Array:
    """Return the transition scores float32 [K, K]; raise for another shape."""
    table = jnp.asarray(transition_params, jnp.float32)
    size = num_tags if num_tags is not None else len(table) if table.ndim else 0
    if table.shape != (size, size):
        raise SpecError(
            f"{function}: transitions must have a row and a column for each of "
            f"{size} tags, [{size}, {size}], got {list(table.shape)}."
        )
    return table


def _mask(
    function: str, sequence_lengths: ArrayLike, batch: int, steps: int
) -> jax.Array:
    """Return which steps are within their sequence, [B, T]."""
    lengths = jnp.asarray(sequence_lengths)
    if lengths.shape != (batch,):
        raise SpecError(
            f"{function}: sequence_lengths must be [{batch}], one for each sequence, "
            f"got {list(lengths.shape)}."
        )
    return jnp.arange(steps) < lengths[:, None]


def _checked_tags(
    function: str, tag_indices: ArrayLike, mask: jax.Array, num_tags: int
) -> jax.Array:
    """Return tags int32 [B, T]: 0 in padding, and `num_tags` if out of range."""
    given = jnp.asarray(tag_indices)
    if given.shape != mask.shape or not jnp.issubdtype(given.dtype, jnp.integer):
        raise LabelError(
            f"{function}: tags must be integers {list(mask.shape)}, one for each step, "
            f"got {given.dtype} {list(given.shape)}."
        )
    wrong = mask & ((given < 0) | (given >= num_tags))
    if not isinstance(wrong, jax.core.Tracer) and bool(jnp.any(wrong)):
        row, step = np.argwhere(np.asarray(wrong))[0]
        raise LabelError(
            f"{function}: tags must be from 0 to {num_tags - 1}; found "
            f"{given[row, step]} in sequence {row}, step {step}."
        )
    return jnp.where(mask, jnp.where(wrong, num_tags, given), 0).astype(jnp.int32)
