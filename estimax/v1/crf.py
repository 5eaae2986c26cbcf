"""Linear-chain conditional random fields, for models that tag sequences.

    log_likelihood, transitions = ex.crf.crf_log_likelihood(logits, tags, lengths)
    loss = -jnp.mean(log_likelihood)
    best_tags, _ = ex.crf.crf_decode(logits, transitions, lengths)

Names and arguments are those of `tf.contrib.crf` and `tfa.text`. A sequence is scored
by the sum of its unary scores (one for each step and tag) and of its transition scores
(one for each pair of neighbouring tags). `crf_log_likelihood` normalizes the score over
all K^T sequences of tags in T steps of K * K operations: the forward algorithm, in
logarithms, as one `jax.lax.scan` over the steps of the whole batch. `crf_decode` finds
the best sequence with the Viterbi algorithm; `viterbi_decode` does it in NumPy.

B is the batch, T the steps, K the tags. Steps from `sequence_lengths` on are padding:
whatever they hold, NaN included, changes neither a result nor a gradient.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core.errors import LabelError, SpecError
from estimax.staging import variables

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_multitag_sequence_score",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]

# The unary scores of one step [B, K], and whether it is inside of its sequence [B].
Step = tuple[jax.Array, jax.Array]


def crf_log_likelihood(
    inputs: ArrayLike,
    tag_indices: ArrayLike,
    sequence_lengths: ArrayLike,
    transition_params: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the log likelihood of the true tags of each sequence.

    Use minus its mean as the loss of a tagger. Without `transition_params` it declares
    the variable "transitions" in the current scope, as TensorFlow did. A `model_fn`
    that predicts has no tags: declare the variable with
    `ex.get_variable("transitions", (K, K))` before the modes divide, or in the same
    scope, and pass it.

    Args:
      inputs: Unary scores, [B, T, K]; usually the logits of a network.
      tag_indices: The true tags, [B, T], integers from 0 to K - 1. Tags after the end
        of a sequence may be anything.
      sequence_lengths: The number of steps of each sequence, [B]; 0 is allowed.
      transition_params: Scores of a tag (row) followed by another (column), [K, K]. By
        default a trainable variable.

    Returns:
      A pair: log likelihoods, float32 [B], 0 for a sequence of length 0; and the
      transition scores [K, K], to decode with.

    Raises:
      SpecError: The shapes do not fit each other, or there is no `model_fn` around the
        call to declare the variable in.
      LabelError: A tag is out of range. Inside `jit`, where values cannot be checked,
        the likelihood of its sequence is NaN instead.

    Example:
      >>> inputs, tags = [[[1.0, 0.0], [0.0, 2.0]]], [[0, 1]]
      >>> found, _ = crf_log_likelihood(inputs, tags, [2], jnp.zeros((2, 2)))
      >>> round(float(jnp.exp(found)[0]), 4)  # 0.7311 * 0.8808: independent steps
      0.6439
    """
    if transition_params is None:
        size = np.shape(inputs)[-1]
        transition_params = variables.get_variable("transitions", (size, size))
    table = jnp.asarray(transition_params, jnp.float32)
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, table)
    return score - crf_log_norm(inputs, sequence_lengths, table), table


def crf_log_norm(
    inputs: ArrayLike, sequence_lengths: ArrayLike, transition_params: ArrayLike
) -> jax.Array:
    """Return the log of the summed exponentials of the scores of all tag sequences.

    Args:
      inputs: Unary scores, [B, T, K].
      sequence_lengths: The number of steps of each sequence, [B].
      transition_params: Scores of a tag (row) followed by another (column), [K, K].

    Returns:
      The normalizers, float32 [B]; 0 for a sequence of length 0.

    Raises:
      SpecError: The shapes do not fit each other.

    Example:
      >>> norm = crf_log_norm(jnp.zeros((1, 3, 2)), [3], jnp.zeros((2, 2)))
      >>> round(float(jnp.exp(norm)[0]), 4)  # 2^3 sequences of score 0
      8.0
    """
    scores, mask = _validate_inputs("crf_log_norm", inputs, sequence_lengths)
    table = _validate_transitions("crf_log_norm", transition_params, scores.shape[-1])

    later = _later_steps(scores, mask)
    if scores.shape[-1] <= _FEW_TAGS:
        alphas = _scan(_add_logs, scores[:, 0], table, later)
    else:
        alphas = jax.lax.cond(
            jnp.max(table) - jnp.min(table) < _SAFE_RANGE,
            partial(_scan, _multiply),
            # Recomputed for the gradient: else the branch that is not taken would
            # still fill [T, B, K, K] with zeros.
            jax.checkpoint(partial(_scan, _add_logs)),
            scores[:, 0],
            table,
            later,
        )
    return jnp.where(mask[:, 0], jax.nn.logsumexp(alphas, axis=-1), 0.0)


# With few tags both ways of a step take equally long, and one compiles faster.
_FEW_TAGS = 8
# `_multiply` is exact while exp(-range of the transitions) is far from the smallest
# float32, exp(-87): the sum over the paths to a tag is never less than that, relative
# to the best, and paths that underflow change it by less than exp(60 - 87).
_SAFE_RANGE = 60.0

Advance = Callable[[jax.Array, jax.Array], jax.Array]


def _scan(
    advance: Advance, first: jax.Array, table: jax.Array, later: Step
) -> jax.Array:
    """Return log(sum(exp(scores))) of the paths to each tag at the end, [B, K]."""

    def step(alphas: jax.Array, given: Step) -> tuple[jax.Array, None]:
        unary, inside = given
        following = advance(alphas, table) + unary
        return jnp.where(inside[:, None], following, alphas), None

    return jax.lax.scan(step, first, later)[0]


def _add_logs(alphas: jax.Array, table: jax.Array) -> jax.Array:
    """Return the log of the sum over the tag before, for any transitions."""
    return jax.nn.logsumexp(alphas[:, :, None] + table, axis=1)


def _multiply(alphas: jax.Array, table: jax.Array) -> jax.Array:
    """Return the same as a product of matrices: K * K exponentials less for each row.

    Measured on 2 shared CPU cores, `crf_log_likelihood` with gradients at [128, 50, K]:
    2.0 instead of 13.6 ms for 20 tags, 6.2 instead of 130 ms for 50.
    """
    highest = jnp.max(alphas, axis=1, keepdims=True)
    # A row in which no tag is allowed has only -inf, and -inf - -inf would be NaN.
    highest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0.0))
    top = jax.lax.stop_gradient(jnp.max(table))
    summed = jnp.matmul(
        jnp.exp(alphas - highest), jnp.exp(table - top), precision="highest"
    )
    return jnp.log(summed) + highest + top


def crf_multitag_sequence_score(
    inputs: ArrayLike,
    tag_bitmap: ArrayLike,
    sequence_lengths: ArrayLike,
    transition_params: ArrayLike,
) -> jax.Array:
    """Return the log of the summed exponentials of the scores of all allowed tags.

    Use it if the annotation leaves several tags open: minus its difference to
    `crf_log_norm` is the loss.

    Args:
      inputs: Unary scores, [B, T, K].
      tag_bitmap: Which tags are allowed at each step, booleans [B, T, K].
      sequence_lengths: The number of steps of each sequence, [B].
      transition_params: Scores of a tag (row) followed by another (column), [K, K].

    Returns:
      Scores, float32 [B]; -inf if a step allows no tag.

    Raises:
      SpecError: The shapes do not fit each other.

    Example:
      >>> inputs, transitions = [[[1.0, 0.0], [0.0, 2.0]]], jnp.zeros((2, 2))
      >>> one_each = [[[True, False], [False, True]]]
      >>> crf_multitag_sequence_score(inputs, one_each, [2], transitions).tolist()
      [3.0]
    """
    scores, allowed = jnp.asarray(inputs, jnp.float32), jnp.asarray(tag_bitmap, bool)
    if scores.shape != allowed.shape:
        raise SpecError(
            f"crf_multitag_sequence_score: tag_bitmap {list(allowed.shape)} must have "
            f"the shape of the scores, {list(scores.shape)}."
        )
    only_allowed = jnp.where(allowed, scores, -jnp.inf)
    return crf_log_norm(only_allowed, sequence_lengths, transition_params)


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
    table = _validate_transitions("crf_sequence_score", transition_params, size)
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
    scores, mask = _validate_inputs("crf_unary_score", inputs, sequence_lengths)
    tags = _validate_tags("crf_unary_score", tag_indices, mask, scores.shape[-1])
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
    table = _validate_transitions(function, transition_params)
    shape = np.shape(tag_indices)
    if len(shape) != 2:
        raise SpecError(f"{function}: tags must be [B, T], got {list(shape)}.")
    mask = _mask(function, sequence_lengths, shape[0], shape[1])
    tags = _validate_tags(function, tag_indices, mask, table.shape[-1])
    following = mask[:, 1:]
    # Padding is tag 0 in `tags`; its transitions are looked up and then left out.
    chosen = table.at[tags[:, :-1], tags[:, 1:]].get(mode="fill", fill_value=jnp.nan)
    return jnp.sum(jnp.where(following, chosen, 0.0), axis=-1)


def _validate_inputs(
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


def _later_steps(scores: jax.Array, mask: jax.Array) -> Step:
    """Return all steps but the first, time first: [T - 1, B, K] and [T - 1, B]."""
    return jnp.moveaxis(scores[:, 1:], 1, 0), jnp.moveaxis(mask[:, 1:], 1, 0)


def _validate_transitions(
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


def _validate_tags(
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
    scores, mask = _validate_inputs("crf_decode", potentials, sequence_length)
    table = _validate_transitions("crf_decode", transition_params, scores.shape[-1])

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

    later = _later_steps(scores, mask)
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
