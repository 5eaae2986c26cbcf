"""The ROC area within each group (user, query, session), averaged over the groups.

    group_auc(labels, scores, user_ids, num_groups=5000).compute()
    batch_group_auc(labels, scores, user_ids).compute()

Ranking one user's items well is a different feat from telling active users from idle
ones, and a single AUC mixes the two. Which function fits depends on where the examples
of a group are, for no state of fixed size holds the exact figure for any number of
groups scattered over any number of batches:

`group_auc` when they are scattered. It keeps a histogram for every group, 8 bytes times
num_groups times num_buckets, and merges exactly. Two scores in one bucket count as a
tie, which is its only error. Each batch makes and adds a whole state: at 5000 groups
and 100 buckets that is 4 MB per batch, at a million groups it is out of reach.

`batch_group_auc` when each group lies within one batch. It is exact, needs two numbers
of state, and takes any ids; a group that is split over batches (or over the devices of
a `shard_map`) counts as several. For the exact figure of scattered groups, gather the
predictions and call it once with all of them.

Groups with labels of one class only have no area and are left out.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from estimax.metrics.auc import check_choice
from estimax.metrics.inputs import Data, check_given, guarded, label_pair
from estimax.metrics.metric import MetricError, Sums, from_sums, ratio, safe_div
from estimax.metrics.thresholds import count, passed_even, score_pair

_AVERAGES = ("weight", "group")


def group_auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    groups: Data | None = None,
    weights: Data | None = None,
    *,
    num_groups: int,
    num_buckets: int = 100,
    average: str = "weight",
) -> Sums:
    """The area within each group of ids 0 to num_groups - 1; scores within [0, 1].

    `average="weight"` weighs a group by its examples' weights, "group" all the same.

    >>> labels, scores = [0, 1, 1, 0], [0.1, 0.2, 0.8, 0.9]
    >>> metric = group_auc(labels, scores, [7, 7, 3, 3], num_groups=10)
    >>> float(metric.compute())
    0.5
    """
    check_choice("average", average, _AVERAGES)
    if min(num_groups, num_buckets) < 1:
        raise MetricError("num_groups and num_buckets must be at least 1")
    truth, scores, ids, weighted = _grouped(labels, predictions, groups, weights)
    inside = (ids >= 0) & (ids < num_groups)
    problem = f"groups must be ids from 0 to {num_groups - 1}"
    weighted = guarded(weighted, inside, problem)
    bins = num_buckets + 1
    # A bin for each group and bucket: the histogram of one long row of buckets.
    own = jnp.where(inside, ids, 0) * bins + passed_even(scores, bins)
    flat = count(truth, own, weighted, num_groups * bins - 1)
    sums = {"counts": flat.reshape(2, num_groups, bins)}
    return from_sums(sums, _mean_area, average=average)


def batch_group_auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    groups: Data | None = None,
    weights: Data | None = None,
    *,
    average: str = "weight",
) -> Sums:
    """The exact area within each group of this batch, for any ids and any scores.

    >>> labels, scores = [0, 1, 1, 0], [0.1, 0.2, 0.8, 0.9]
    >>> float(batch_group_auc(labels, scores, [70, 70, -3, -3]).compute())
    0.5
    """
    check_choice("average", average, _AVERAGES)
    truth, scores, ids, weighted = _grouped(labels, predictions, groups, weights)
    order = jnp.lexsort((scores, ids))
    truth, scores, ids, weighted = (x[order] for x in (truth, scores, ids, weighted))
    # A run is a group's examples of one score; runs ascend by group, then by score.
    new_group = _changes(ids)
    run = jnp.cumsum(new_group | _changes(scores)) - 1
    group_of_example = jnp.cumsum(new_group) - 1
    size = truth.size
    negatives = jax.ops.segment_sum(jnp.where(truth == 0, weighted, 0.0), run, size)
    positives = jax.ops.segment_sum(jnp.where(truth != 0, weighted, 0.0), run, size)
    group = jax.ops.segment_max(group_of_example, run, size)

    def by_group(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, group, size)

    before = jnp.cumsum(negatives) - negatives
    all_negatives = by_group(negatives)
    earlier_groups = jnp.cumsum(all_negatives) - all_negatives
    below = before - jnp.take(earlier_groups, group, mode="clip")
    won = by_group(positives * (below + negatives / 2))
    return from_sums(
        _area_sums(won, by_group(positives), all_negatives, average), ratio
    )


def _grouped(
    labels: Data | None,
    predictions: Data | None,
    groups: Data | None,
    weights: Data | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Labels, scores, ids and weights, all flat."""
    check_given(labels=labels, predictions=predictions, groups=groups, weights=weights)
    truth, scores, weighted = score_pair(labels, predictions, weights)
    ids, _ = label_pair(groups, labels)
    ids = ids.astype(jnp.int32)
    return truth.ravel(), scores.ravel(), ids.ravel(), weighted.ravel()


def _changes(values: jax.Array) -> jax.Array:
    """Whether a value differs from the one before it; True for the first."""
    differs = values[1:] != values[:-1]
    return jnp.concatenate([jnp.ones_like(values[:1], bool), differs])


def _mean_area(sums: Mapping[str, jax.Array], *, average: str) -> jax.Array:
    negatives, positives = sums["counts"]  # [G, bins]
    below = jnp.cumsum(negatives, axis=1) - negatives
    won = jnp.sum(positives * (below + negatives / 2), axis=1)
    n, p = jnp.sum(negatives, axis=1), jnp.sum(positives, axis=1)
    return ratio(_area_sums(won, p, n, average))


def _area_sums(
    won: jax.Array, positives: jax.Array, negatives: jax.Array, average: str
) -> dict[str, jax.Array]:
    """Total and count of the groups' areas; `won` is the weight of pairs in order."""
    pairs = positives * negatives
    share = positives + negatives if average == "weight" else jnp.ones_like(pairs)
    share = jnp.where(pairs == 0, 0.0, share)
    return {
        "total": jnp.sum(share * safe_div(won, pairs)),
        "count": jnp.sum(share),
    }
