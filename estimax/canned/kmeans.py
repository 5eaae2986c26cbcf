"""k-means: clusters moved towards the points of every batch.

    model = ex.KMeans(num_clusters=3, initial_clusters="kmeans_plus_plus")
    model.train(input_fn, max_steps=100)
    model.cluster_centers()                   # [3, D]
    list(model.predict_cluster_index(input_fn))

Nothing here has a gradient: a step assigns the clusters, which are a variable that no
optimizer trains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax import feature_columns as fc
from estimax import metrics, optimizers, variables
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.core.numbers import Int64
from estimax.core.spec import EstimatorSpec, ModeKeys, PredictOutput
from estimax.estimator import Estimator, RunConfig
from estimax.hooks import Hook, RunContext

Path = str | os.PathLike[str]
InputFn = Callable[..., Any]
_Join = Callable[[jax.Array], jax.Array]


class KMeans(Estimator):
    """Finds `num_clusters` centers with few distances from them to their points.

    The centers start at random points of the first batch, at ones far from each other
    ("kmeans_plus_plus"), or where an array or a function of (points, num_clusters)
    says; if the batch is too small, the others start at points of the next ones. With
    `use_mini_batch` a center is the mean of the points it was nearest to so far;
    without, every batch should be all the data, and a step is one of Lloyd's. An
    `input_fn` gives features only.

    >>> import estimax as ex
    >>> model = ex.KMeans(2, model_dir="/tmp/estimax-doc-kmeans")
    """

    SQUARED_EUCLIDEAN_DISTANCE = "squared_euclidean"
    COSINE_DISTANCE = "cosine"
    RANDOM_INIT = "random"
    KMEANS_PLUS_PLUS_INIT = "kmeans_plus_plus"
    SCORE = "score"
    CLUSTER_INDEX = "cluster_index"
    CLUSTER_CENTERS_VAR_NAME = "clusters"
    ALL_DISTANCES = "all_distances"

    def __init__(
        self,
        num_clusters: int,
        model_dir: Path | None = None,
        initial_clusters: str | ArrayLike | Callable[..., Any] = "random",
        distance_metric: str = "squared_euclidean",
        seed: int | None = None,
        use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1,
        kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None,
        config: RunConfig | None = None,
        feature_columns: Iterable[Any] | None = None,
    ) -> None:
        _check(num_clusters, distance_metric, mini_batch_steps_per_iteration)
        self._distance_metric = distance_metric
        columns = None if feature_columns is None else tuple(feature_columns)
        is_cosine = distance_metric == self.COSINE_DISTANCE
        start = start_of(
            initial_clusters, num_clusters, kmeans_plus_plus_num_retries, seed
        )
        updates = _Updates(
            num_clusters, is_cosine, use_mini_batch, mini_batch_steps_per_iteration
        )
        hooks = [] if relative_tolerance is None else [_Settled(relative_tolerance)]

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            if labels is not None:
                raise SpecError(
                    "KMeans: the input_fn returned labels, which nothing would use. "
                    "Return features only."
                )
            points = _points(features, columns)
            if is_cosine:
                points = _normalized(points)
            clusters, started = _clusters(points, num_clusters, start, mode)
            distances = _distances(points, clusters, is_cosine)
            is_there = jnp.arange(num_clusters) < started
            distances = jnp.where(is_there, distances, jnp.inf)
            if mode == ModeKeys.TRAIN:
                updates.apply(points, clusters, started, distances)
            return _spec(mode, distances, hooks)

        super().__init__(model_fn, model_dir, config)

    def predict_cluster_index(self, input_fn: InputFn) -> Iterator[Any]:
        """Yield the index of each example's nearest center."""
        for row in self.predict(input_fn, [self.CLUSTER_INDEX]):
            yield row[self.CLUSTER_INDEX]

    def score(self, input_fn: InputFn) -> Any:  # a NumPy scalar
        """The sum of the distances of one batch to their nearest centers."""
        return self.evaluate(input_fn, steps=1)[self.SCORE]

    def transform(self, input_fn: InputFn) -> Iterator[NDArray[np.float32]]:
        """Yield each example's distances to all centers, not squared."""
        for row in self.predict(input_fn, [self.ALL_DISTANCES]):
            distances = row[self.ALL_DISTANCES]
            is_squared = self._distance_metric == self.SQUARED_EUCLIDEAN_DISTANCE
            yield np.sqrt(distances) if is_squared else distances

    def cluster_centers(self) -> NDArray[np.float32]:
        """The centers [num_clusters, D] of the latest checkpoint."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)


@dataclass(frozen=True)
class _Updates:
    """How a step moves the clusters."""

    num_clusters: int
    is_cosine: bool
    use_mini_batch: bool
    every: int

    def apply(
        self,
        points: jax.Array,
        clusters: jax.Array,
        started: jax.Array,
        distances: jax.Array,
    ) -> None:
        """Assign the clusters of the next step."""
        slots = _starting(points, started, distances)
        is_starting = slots < self.num_clusters
        nearest = jnp.argmin(distances, axis=1)
        one_hot = jax.nn.one_hot(nearest, self.num_clusters, dtype=points.dtype)
        # A point that becomes a cluster draws no other to it.
        one_hot = jnp.where(is_starting[:, None], 0, one_hot)
        sums, counts = one_hot.T @ points, jnp.sum(one_hot, axis=0)

        def join(moved: jax.Array) -> jax.Array:
            return moved.at[slots].set(points, mode="drop")

        if not self.use_mini_batch:
            means = sums / jnp.maximum(counts, 1)[:, None]
            # A center that lost its points stays; TensorFlow moves it to zero.
            moved = jnp.where(counts[:, None] > 0, means, clusters)
            variables.assign(clusters, join(self._placed(moved)))
        elif self.every == 1:
            seen = _untrained("cluster_counts", (self.num_clusters,))
            variables.assign(clusters, join(_towards(clusters, seen, sums, counts)))
            variables.assign(seen, seen + counts)
        else:
            self._apply_later(clusters, sums, counts, join)
        variables.assign(started, started + jnp.sum(is_starting, dtype=jnp.int32))

    def _apply_later(
        self, clusters: jax.Array, sums: jax.Array, counts: jax.Array, join: _Join
    ) -> None:
        """Gather several steps; the clusters that points are compared with stay."""
        moving = variables.get_variable(
            "clusters_updated",
            clusters.shape,
            initializer=lambda *_: clusters,
            trainable=False,
        )
        seen = _untrained("cluster_counts", (self.num_clusters,))
        steps = _untrained("steps_in_iteration", ())
        moved = _towards(moving, seen, sums, counts)
        is_last = steps + 1 >= self.every
        placed = jnp.where(is_last, self._placed(moved), clusters)
        variables.assign(clusters, join(placed))
        variables.assign(moving, join(moved))
        variables.assign(seen, jnp.where(is_last, 0, seen + counts))
        variables.assign(steps, jnp.where(is_last, 0, steps + 1))

    def _placed(self, clusters: jax.Array) -> jax.Array:
        return _normalized(clusters) if self.is_cosine else clusters


def _starting(points: jax.Array, started: jax.Array, distances: jax.Array) -> jax.Array:
    """The cluster that starts at each point, far ones first; K or more for none."""
    nearest = jnp.min(distances, axis=1)
    rank = jnp.argsort(jnp.argsort(-nearest))
    # Where a cluster is already, no other starts.
    rounding = 1e-6 * (1 + jnp.sum(jnp.square(points), axis=1))
    return jnp.where(nearest > rounding, started + rank, distances.shape[1])


class _Settled(Hook):
    """Stops when the loss changes by less than a share of itself."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._before: float | None = None

    def begin(self, context: RunContext) -> None:
        """Forget the run before."""
        self._before = None

    def before_run(self, context: RunContext) -> Sequence[str]:
        """Ask for the loss."""
        return ["loss"]

    def after_run(self, context: RunContext, values: Any) -> None:
        """Compare with the step before."""
        loss, before = float(values["loss"]), self._before
        self._before = loss
        if before is None:
            return
        if abs(loss - before) / (1 + abs(before)) < self._tolerance:
            context.request_stop()


def _spec(mode: str, distances: jax.Array, hooks: Sequence[Hook]) -> EstimatorSpec:
    index = Int64(jnp.argmin(distances, axis=1))
    predictions = {KMeans.CLUSTER_INDEX: index, KMeans.ALL_DISTANCES: distances}
    loss = jnp.sum(jnp.min(distances, axis=1))
    exports = {
        "serving_default": PredictOutput(predictions),
        **{name: PredictOutput({name: value}) for name, value in predictions.items()},
    }
    return EstimatorSpec(
        mode,
        predictions=predictions,
        loss=loss,
        train_op=optimizers.SGD(0.0),
        eval_metric_ops={KMeans.SCORE: metrics.mean(loss)},
        export_outputs=exports,
        training_hooks=hooks,
    )


def _points(features: Any, columns: tuple[Any, ...] | None) -> jax.Array:
    """The features side by side, [B, D]."""
    if columns is not None:
        return fc.input_layer(features, columns)
    named = features if isinstance(features, dict) else {"": features}
    blocks = []
    for name in sorted(named):
        if not isinstance(named[name], jax.Array):
            raise FeatureError(
                f"KMeans: feature {name!r} is not a dense array of numbers. Give "
                "feature_columns, which make numbers of it."
            )
        rows = jnp.asarray(named[name], jnp.float32)
        blocks.append(rows.reshape(rows.shape[0], -1))
    return jnp.concatenate(blocks, axis=1)


def _clusters(
    points: jax.Array, num_clusters: int, start: Start, mode: str
) -> tuple[jax.Array, jax.Array]:
    """The clusters [K, D], and how many of them have started."""
    # Evaluation and prediction have theirs from a checkpoint.
    first = start if mode == ModeKeys.TRAIN else lambda key, points: points[:0]

    def initializer(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        found = first(key, points)
        return jnp.zeros(shape, dtype).at[: found.shape[0]].set(found)

    def count(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.asarray(first(key, points).shape[0], dtype)

    shape = (num_clusters, points.shape[1])
    name = KMeans.CLUSTER_CENTERS_VAR_NAME
    return (
        variables.get_variable(name, shape, initializer=initializer, trainable=False),
        variables.get_variable(
            "clusters_started", (), jnp.int32, initializer=count, trainable=False
        ),
    )


def _distances(points: jax.Array, clusters: jax.Array, is_cosine: bool) -> jax.Array:
    """[B, K]: squared, or one minus the cosine."""
    if is_cosine:
        return 1 - points @ _normalized(clusters).T
    squares = jnp.sum(jnp.square(points), axis=1, keepdims=True)
    squares = squares + jnp.sum(jnp.square(clusters), axis=1)
    return jnp.maximum(squares - 2 * points @ clusters.T, 0)


def _towards(
    clusters: jax.Array, seen: jax.Array, sums: jax.Array, counts: jax.Array
) -> jax.Array:
    """The means of all points so far, those seen before being the clusters."""
    total = jnp.maximum(seen + counts, 1)[:, None]
    return clusters + (sums - counts[:, None] * clusters) / total


def _normalized(rows: jax.Array) -> jax.Array:
    square = jnp.sum(jnp.square(rows), axis=1, keepdims=True)
    return rows * jax.lax.rsqrt(jnp.maximum(square, 1e-12))


def _untrained(name: str, shape: tuple[int, ...]) -> jax.Array:
    return variables.get_variable(name, shape, initializer=0.0, trainable=False)


def _check(num_clusters: int, distance_metric: str, every: int) -> None:
    if num_clusters < 1:
        raise SpecError(f"KMeans: num_clusters must be at least 1, got {num_clusters}.")
    known = (KMeans.SQUARED_EUCLIDEAN_DISTANCE, KMeans.COSINE_DISTANCE)
    if distance_metric not in known:
        raise SpecError(
            f"KMeans: distance_metric must be {' or '.join(map(repr, known))}, got "
            f"{distance_metric!r}."
        )
    if every < 1:
        raise SpecError(
            f"KMeans: mini_batch_steps_per_iteration must be at least 1, got {every}."
        )


# key, points [B, D] -> clusters [K, D], or [B, D] while there are too few points
Start = Callable[[jax.Array, jax.Array], jax.Array]


def start_of(
    initial_clusters: Any, num_clusters: int, num_retries: int, seed: int | None
) -> Start:
    """What makes the first clusters: chosen by name, given, or made by a function."""
    if callable(initial_clusters):
        return lambda key, points: _given(
            initial_clusters(points, num_clusters), num_clusters, points
        )
    if not isinstance(initial_clusters, str):
        return lambda key, points: _given(initial_clusters, num_clusters, points)
    if initial_clusters not in _CHOICES:
        near = did_you_mean(initial_clusters, _CHOICES)
        raise SpecError(f"KMeans: unknown initial_clusters {initial_clusters!r}{near}")
    choose = _CHOICES[initial_clusters]

    def start(key: jax.Array, points: jax.Array) -> jax.Array:
        key = key if seed is None else jax.random.key(seed)
        return choose(key, points, min(num_clusters, points.shape[0]), num_retries)

    return start


def random_rows(
    key: jax.Array, points: jax.Array, num_clusters: int, num_retries: int = 0
) -> jax.Array:
    """Different rows, all equally likely."""
    rows = jax.random.choice(key, points.shape[0], (num_clusters,), replace=False)
    return points[rows]


def far_rows(
    key: jax.Array, points: jax.Array, num_clusters: int, num_retries: int
) -> jax.Array:
    """k-means++: rows drawn by their squared distance to those drawn before.

    Each time `num_retries` more are drawn, and the one kept that leaves the points
    nearest to a cluster.
    """
    first_key, key = jax.random.split(key)
    first = points[jax.random.randint(first_key, (), 0, points.shape[0])]
    clusters = jnp.zeros((num_clusters, points.shape[1]), points.dtype).at[0].set(first)

    def draw(index: Any, carry: tuple[jax.Array, jax.Array]) -> Any:
        clusters, nearest = carry
        # Where all points are clusters already, any row will do.
        logits = jnp.where(jnp.any(nearest > 0), jnp.log(nearest), 0.0)
        tries = jax.random.categorical(
            jax.random.fold_in(key, index), logits, shape=(1 + num_retries,)
        )
        left = jnp.minimum(nearest, _squares(points[tries], points))  # [tries, B]
        best = jnp.argmin(jnp.sum(left, axis=1))
        return clusters.at[index].set(points[tries[best]]), left[best]

    start = (clusters, _squares(first[None], points)[0])
    made: jax.Array = jax.lax.fori_loop(1, num_clusters, draw, start)[0]
    return made


def _squares(some: jax.Array, points: jax.Array) -> jax.Array:
    """Squared distances [N, B]."""
    return jnp.sum(jnp.square(some[:, None] - points[None]), axis=-1)


def _given(value: Any, num_clusters: int, points: jax.Array) -> jax.Array:
    clusters = jnp.asarray(value, points.dtype)
    expected = (num_clusters, points.shape[1])
    if clusters.shape != expected:
        raise SpecError(
            f"KMeans: initial_clusters has shape {clusters.shape}; {num_clusters} "
            f"clusters of these features need {expected}."
        )
    return clusters


_CHOICES = {"random": random_rows, "kmeans_plus_plus": far_rows}
