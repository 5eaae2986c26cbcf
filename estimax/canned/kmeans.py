"""k-means clustering, in mini-batches or over all data, and its initial centers.

    model = ex.KMeans(num_clusters=3, initial_clusters="kmeans_plus_plus")
    model.train(input_fn, max_steps=100)
    model.cluster_centers()                   # [3, D]
    list(model.predict_cluster_index(input_fn))

There are no gradients: the centers are an untrained variable, and every training step
assigns new values to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax import feature_columns as fc
from estimax import metrics, optimizers
from estimax.canned import defaults
from estimax.canned.defaults import ModelPath
from estimax.core.device_dtypes import Int64
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ModeKeys, PredictOutput
from estimax.estimator import Estimator, RunConfig
from estimax.estimator.estimator import InputFn
from estimax.hooks import Hook, RunContext
from estimax.staging import variables

_Join = Callable[[jax.Array], jax.Array]
# key, points [B, D] -> centers [K, D], or [B, D] if there are fewer points than K
StartFn = Callable[[jax.Array, jax.Array], jax.Array]


class KMeans(Estimator):
    """k-means clustering: find centers with small distances to their nearest points.

    Use it to group examples without labels. Its `input_fn` returns features only. If
    the first batch has fewer points than clusters, the other centers start at points of
    the next batches.

    Args:
      num_clusters: Number of clusters, 1 or more.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      initial_clusters: "random" (distinct points of the first batch),
        "kmeans_plus_plus" (points of the first batch far from each other), an array
        [num_clusters, D], or a function of (points, num_clusters) that returns one.
      distance_metric: "squared_euclidean" or "cosine".
      seed: Seed of the initial centers. None: that of the run.
      use_mini_batch: Whether a center is the mean of all points assigned to it so far.
        False: a center is the mean of its points in the batch, so every batch should be
        all the data (Lloyd's algorithm).
      mini_batch_steps_per_iteration: With mini-batches, number of steps after which the
        centers that points are compared with are updated.
      kmeans_plus_plus_num_retries: How many more candidates k-means++ draws for each
        center; it keeps the best.
      relative_tolerance: Stop when the loss changes by less than this share of itself
        from one step to the next. None: do not stop.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      feature_columns: Dense columns to cluster by. None: all features, which must be
        numbers, concatenated in the order of their names.

    Raises:
      SpecError: An argument is out of range or unknown, or the `input_fn` returns
        labels.
      FeatureError: At the first call: a feature is not a dense array of numbers, and no
        `feature_columns` are given.

    Example:
      >>> import estimax as ex
      >>> points = np.array([[0, 0], [0, 1], [9, 9], [9, 8]], np.float32)
      >>> rows = ex.input.Dataset.from_tensor_slices({"point": points})
      >>> model = ex.KMeans(2, initial_clusters=points[[0, 2]], use_mini_batch=False)
      >>> model = model.train(lambda: rows.repeat().batch(4), steps=3)
      >>> model.cluster_centers().tolist()
      [[0.0, 0.5], [9.0, 8.5]]
      >>> [int(index) for index in model.predict_cluster_index(lambda: rows.batch(4))]
      [0, 0, 1, 1]
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
        model_dir: ModelPath | None = None,
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
        start = start_fn(
            initial_clusters, num_clusters, kmeans_plus_plus_num_retries, seed
        )
        updates = _Updates(
            num_clusters, is_cosine, use_mini_batch, mini_batch_steps_per_iteration
        )
        hooks = (
            [] if relative_tolerance is None else [_StopWhenSettled(relative_tolerance)]
        )

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            if labels is not None:
                raise SpecError(
                    "KMeans: the input_fn returned labels, but k-means uses none. "
                    "Return features only."
                )
            points = _points(features, columns)
            if is_cosine:
                points = _normalize_rows(points)
            clusters, started = _clusters(points, num_clusters, start, mode)
            distances = _distances(points, clusters, is_cosine)
            is_there = jnp.arange(num_clusters) < started
            distances = jnp.where(is_there, distances, jnp.inf)
            if mode == ModeKeys.TRAIN:
                updates.apply(points, clusters, started, distances)
            return _spec(mode, distances, hooks)

        super().__init__(model_fn, model_dir, config)

    def predict_cluster_index(self, input_fn: InputFn) -> Iterator[Any]:
        """Yield the index of each example's nearest center.

        Args:
          input_fn: A function that returns features only.

        Yields:
          An integer in [0, num_clusters) per example.
        """
        for row in self.predict(input_fn, [self.CLUSTER_INDEX]):
            yield row[self.CLUSTER_INDEX]

    def score(self, input_fn: InputFn) -> Any:  # a NumPy scalar
        """Return the sum of the distances of one batch to the nearest centers.

        Args:
          input_fn: A function that returns features only. Its first batch is read.

        Returns:
          A number. The distance is squared for "squared_euclidean".
        """
        return self.evaluate(input_fn, steps=1)[self.SCORE]

    def transform(self, input_fn: InputFn) -> Iterator[NDArray[np.float32]]:
        """Yield each example's distances to all centers.

        Args:
          input_fn: A function that returns features only.

        Yields:
          An array [num_clusters] per example. Euclidean distances are not squared here.
        """
        for row in self.predict(input_fn, [self.ALL_DISTANCES]):
            distances = row[self.ALL_DISTANCES]
            is_squared = self._distance_metric == self.SQUARED_EUCLIDEAN_DISTANCE
            yield np.sqrt(distances) if is_squared else distances

    def cluster_centers(self) -> NDArray[np.float32]:
        """Return the centers [num_clusters, D] of the latest checkpoint."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)


@dataclass(frozen=True)
class _Updates:
    """How a training step moves the centers."""

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
        """Assign the centers of the next step."""
        slots = _new_centers(points, started, distances)
        is_starting = slots < self.num_clusters
        nearest = jnp.argmin(distances, axis=1)
        one_hot = jax.nn.one_hot(nearest, self.num_clusters, dtype=points.dtype)
        # A point that becomes a new center does not also move the nearest one.
        one_hot = jnp.where(is_starting[:, None], 0, one_hot)
        sums, counts = one_hot.T @ points, jnp.sum(one_hot, axis=0)

        def join(moved: jax.Array) -> jax.Array:
            return moved.at[slots].set(points, mode="drop")

        if not self.use_mini_batch:
            means = sums / jnp.maximum(counts, 1)[:, None]
            # A center without points stays where it is; TensorFlow moves it to 0.
            moved = jnp.where(counts[:, None] > 0, means, clusters)
            variables.assign(clusters, join(self._place_clusters(moved)))
        elif self.every == 1:
            seen = _declare_untrained("cluster_counts", (self.num_clusters,))
            variables.assign(clusters, join(_moved_means(clusters, seen, sums, counts)))
            variables.assign(seen, seen + counts)
        else:
            self._apply_later(clusters, sums, counts, join)
        variables.assign(started, started + jnp.sum(is_starting, dtype=jnp.int32))

    def _apply_later(
        self, clusters: jax.Array, sums: jax.Array, counts: jax.Array, join: _Join
    ) -> None:
        """Collect the updates of several steps, then move the centers.

        Points are compared with `clusters`, which only changes in the last of these
        steps.
        """
        moving = variables.get_variable(
            "clusters_updated",
            clusters.shape,
            initializer=lambda *_: clusters,
            trainable=False,
        )
        seen = _declare_untrained("cluster_counts", (self.num_clusters,))
        steps = _declare_untrained("steps_in_iteration", ())
        moved = _moved_means(moving, seen, sums, counts)
        is_last = steps + 1 >= self.every
        placed = jnp.where(is_last, self._place_clusters(moved), clusters)
        variables.assign(clusters, join(placed))
        variables.assign(moving, join(moved))
        variables.assign(seen, jnp.where(is_last, 0, seen + counts))
        variables.assign(steps, jnp.where(is_last, 0, steps + 1))

    def _place_clusters(self, clusters: jax.Array) -> jax.Array:
        return _normalize_rows(clusters) if self.is_cosine else clusters


def _new_centers(
    points: jax.Array, started: jax.Array, distances: jax.Array
) -> jax.Array:
    """Return the new center that starts at each point, or an index >= K for none.

    Centers start at the points that are farthest from all centers so far.
    """
    nearest = jnp.min(distances, axis=1)
    rank = jnp.argsort(jnp.argsort(-nearest))
    # No center starts at the place of another, up to rounding of the distance.
    rounding = 1e-6 * (1 + jnp.sum(jnp.square(points), axis=1))
    return jnp.where(nearest > rounding, started + rank, distances.shape[1])


class _StopWhenSettled(Hook):
    """Stops training when the loss changes by less than a share of itself."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._before: float | None = None

    def begin(self, context: RunContext) -> None:
        """Forget the loss of the last run."""
        self._before = None

    def before_run(self, context: RunContext) -> Sequence[str]:
        """Request the loss."""
        return ["loss"]

    def after_run(self, context: RunContext, values: Any) -> None:
        """Compare the loss with that of the step before."""
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
    """Return the features concatenated, [B, D]."""
    if columns is not None:
        return fc.input_layer(features, columns)
    named = features if isinstance(features, dict) else {"": features}
    blocks = []
    for name in sorted(named):
        if not isinstance(named[name], jax.Array):
            raise FeatureError(
                f"KMeans: feature {name!r} is not a dense array of numbers. Pass "
                "feature_columns that convert it to numbers."
            )
        rows = jnp.asarray(named[name], jnp.float32)
        blocks.append(rows.reshape(rows.shape[0], -1))
    return jnp.concatenate(blocks, axis=1)


def _clusters(
    points: jax.Array, num_clusters: int, start: StartFn, mode: str
) -> tuple[jax.Array, jax.Array]:
    """Return the centers [K, D], and how many of them have started."""
    # Evaluation and prediction restore the centers from a checkpoint.
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
    """Return distances [B, K]: squared Euclidean, or one minus the cosine."""
    if is_cosine:
        return 1 - points @ _normalize_rows(clusters).T
    # |p|² - 2 p·c + |c|² by one matrix product. Rounding may make it slightly negative.
    squares = jnp.sum(jnp.square(points), axis=1, keepdims=True)
    squares = squares + jnp.sum(jnp.square(clusters), axis=1)
    return jnp.maximum(squares - 2 * points @ clusters.T, 0)


def _moved_means(
    clusters: jax.Array, seen: jax.Array, sums: jax.Array, counts: jax.Array
) -> jax.Array:
    """Return the means of `seen` points at the centers and the points of the batch."""
    total = jnp.maximum(seen + counts, 1)[:, None]
    return clusters + (sums - counts[:, None] * clusters) / total


def _normalize_rows(rows: jax.Array) -> jax.Array:
    square = jnp.sum(jnp.square(rows), axis=1, keepdims=True)
    return rows * jax.lax.rsqrt(jnp.maximum(square, 1e-12))


def _declare_untrained(name: str, shape: tuple[int, ...]) -> jax.Array:
    return variables.get_variable(name, shape, initializer=0.0, trainable=False)


def _check(num_clusters: int, distance_metric: str, every: int) -> None:
    defaults.check_count(num_clusters, "KMeans", "num_clusters")
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


def start_fn(
    initial_clusters: Any, num_clusters: int, num_retries: int, seed: int | None
) -> StartFn:
    """Return the function that makes the first centers: by name, array or function."""
    if callable(initial_clusters):
        return lambda key, points: _validate_centers(
            initial_clusters(points, num_clusters), num_clusters, points
        )
    if not isinstance(initial_clusters, str):
        return lambda key, points: _validate_centers(
            initial_clusters, num_clusters, points
        )
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
    """Return distinct rows, all equally likely."""
    rows = jax.random.choice(key, points.shape[0], (num_clusters,), replace=False)
    return points[rows]


def far_rows(
    key: jax.Array, points: jax.Array, num_clusters: int, num_retries: int
) -> jax.Array:
    """Return rows by k-means++: each is drawn by its squared distance to those before.

    For each center `num_retries` more rows are drawn. The one is kept that leaves the
    smallest sum of distances of all points to their nearest center.
    """
    first_key, key = jax.random.split(key)
    first = points[jax.random.randint(first_key, (), 0, points.shape[0])]
    clusters = jnp.zeros((num_clusters, points.shape[1]), points.dtype).at[0].set(first)

    def draw(index: Any, carry: tuple[jax.Array, jax.Array]) -> Any:
        clusters, nearest = carry
        # If every point is a center already, all rows are equally likely.
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
    """Return squared distances [N, B]."""
    return jnp.sum(jnp.square(some[:, None] - points[None]), axis=-1)


def _validate_centers(value: Any, num_clusters: int, points: jax.Array) -> jax.Array:
    clusters = jnp.asarray(value, points.dtype)
    expected = (num_clusters, points.shape[1])
    if clusters.shape != expected:
        raise SpecError(
            f"KMeans: initial_clusters has shape {clusters.shape}; {num_clusters} "
            f"clusters of these features need {expected}."
        )
    return clusters


_CHOICES = {"random": random_rows, "kmeans_plus_plus": far_rows}
