"""`numpy_input_fn` and `pandas_input_fn`: arrays to an `input_fn`, as in TF 1.

    input_fn = numpy_input_fn({"age": ages}, labels, batch_size=32, shuffle=True)
    estimator.train(input_fn, steps=100)

Rows are one stream of `num_epochs` passes cut into batches, so batches run across the
borders of epochs and only the very last may be short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from estimax.core.errors import InputError
from estimax.input.dataset import Dataset
from estimax.input.sources.arrays import slices_of
from estimax.input.streams.structure import InputTypeError, Structure

if TYPE_CHECKING:
    import pandas as pd
import json
import os
from dataclasses import dataclass

from estimax.core.errors import ConfigError

InputFn = Callable[[], Dataset]


def numpy_input_fn(
    x: Structure,
    y: Structure = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> InputFn:
    """An `input_fn` over arrays: `x` and `y` are arrays or dicts of arrays.

    `num_epochs=None` is endless. A shuffle permutes whole epochs; `queue_capacity` and
    `num_threads` are accepted from older programs and change nothing.

    >>> input_fn = numpy_input_fn(np.arange(3), batch_size=2, shuffle=False)
    >>> list(input_fn())
    [array([0, 1]), array([2])]
    """
    _check_shuffle("numpy_input_fn", shuffle)

    def input_fn() -> Dataset:
        _check_arrays(x, y)
        data = x if y is None else (x, y)
        return _stream(data, batch_size, num_epochs, bool(shuffle))

    return input_fn


def pandas_input_fn(
    x: pd.DataFrame,
    y: pd.Series | pd.DataFrame | None = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> InputFn:
    """An `input_fn` over a frame: features are a dict of its columns, no index.

    `y` is a Series (labels are an array) or a frame (labels are a dict), with the same
    index. Both are copied, so later changes do not reach the training.
    """
    _check_shuffle("pandas_input_fn", shuffle)
    if y is not None:
        if target_column in x.columns:
            raise InputError(
                f"pandas_input_fn: x already has a column {target_column!r}, the name "
                "of the target. Rename it, or pass another target_column."
            )
        if not x.index.equals(y.index):
            raise InputError(
                f"pandas_input_fn: x and y must have the same index, got "
                f"{_ends(x.index)} and {_ends(y.index)}. Call reset_index(drop=True) "
                "on both if their rows correspond."
            )
    data = x.copy() if y is None else (x.copy(), y.copy())
    return lambda: _stream(data, batch_size, num_epochs, bool(shuffle))


def _stream(
    data: Structure, batch_size: int, num_epochs: int | None, shuffle: bool
) -> Dataset:
    rows = slices_of(data)
    dataset = Dataset(rows)
    if shuffle:
        # Rows in memory can be permuted as a whole, at no more cost than a queue.
        dataset = dataset.shuffle(max(1, len(rows.block)))
    return dataset.repeat(num_epochs).batch(batch_size)


def _check_shuffle(where: str, shuffle: bool | None) -> None:
    if not isinstance(shuffle, bool):
        raise InputError(
            f"{where}: shuffle must be given, as True (usual for training) or False "
            f"(for evaluation and prediction), got {shuffle!r}."
        )


def _check_arrays(x: Structure, y: Structure) -> None:
    if not isinstance(x, Mapping | np.ndarray):
        raise InputTypeError(
            f"numpy_input_fn: x must be an array or a dict of arrays, got "
            f"{type(x).__name__}."
        )
    if len(x) == 0:
        raise InputError("numpy_input_fn: x is empty.")
    if isinstance(y, Mapping):
        if not y:
            raise InputError("numpy_input_fn: y is an empty dict; pass None instead.")
        shared = sorted(set(y) & set(x)) if isinstance(x, Mapping) else []
        if shared:
            raise InputError(
                f"numpy_input_fn: x and y both have {', '.join(map(repr, shared))}. "
                "Give labels names of their own."
            )


def _ends(index: Any) -> str:
    return (
        f"[{index[0]} … {index[-1]}] ({len(index)})" if len(index) else "an empty one"
    )


# Who trains; evaluators and parameter servers read no part of the training input.
_TRAINERS = ("chief", "master", "worker")


@dataclass(frozen=True)
class InputContext:
    """Process number `input_pipeline_id` of `num_input_pipelines`.

    >>> context = InputContext(num_input_pipelines=2, input_pipeline_id=1)
    >>> list(context.shard(Dataset.range(5)).batch(9))
    [array([1, 3])]
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.input_pipeline_id < self.num_input_pipelines:
            raise InputError(
                "InputContext: input_pipeline_id must be in [0, "
                f"{self.num_input_pipelines}), got {self.input_pipeline_id}."
            )

    def shard(self, dataset: Dataset) -> Dataset:
        """This process's part: whole files where there are enough, else records."""
        if self.num_input_pipelines == 1:
            return dataset
        return dataset.auto_shard(self.num_input_pipelines, self.input_pipeline_id)

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The batch size of one of the replicas that train together.

        >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(64)
        16
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise InputError(
                f"the batch size {global_batch_size} cannot be divided between "
                f"{self.num_replicas_in_sync} replicas."
            )
        return global_batch_size // self.num_replicas_in_sync

    @staticmethod
    def from_run_config(config: Any) -> InputContext:  # a RunConfig, which is above us
        """The part of the process that a `RunConfig` describes.

        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(num_worker_replicas=3, global_id_in_cluster=1)
        >>> InputContext.from_run_config(config).input_pipeline_id
        1
        """
        count = int(config.num_worker_replicas or 1)
        index = config.global_id_in_cluster
        if index is None or not 0 <= index < count:  # an evaluator reads everything
            return InputContext()
        return InputContext(count, index, count)

    @staticmethod
    def from_tf_config(environment: Mapping[str, str] | None = None) -> InputContext:
        """From TF_CONFIG's cluster and task; alone where there is none.

        >>> cluster = '{"chief": ["a:1"], "worker": ["b:1", "c:1"]}'
        >>> task = '{"type": "worker", "index": 1}'
        >>> InputContext.from_tf_config(
        ...     {"TF_CONFIG": f'{{"cluster": {cluster}, "task": {task}}}'})
        InputContext(num_input_pipelines=3, input_pipeline_id=2, num_replicas_in_sync=3)
        """
        text = (os.environ if environment is None else environment).get("TF_CONFIG")
        try:
            config: dict[str, Any] = json.loads(text or "{}")
            cluster, task = config.get("cluster", {}), config.get("task", {})
            before = [len(cluster.get(kind, ())) for kind in _TRAINERS]
            count, kind = sum(before), task.get("type")
            if not count or kind not in _TRAINERS:
                return InputContext()
            index = sum(before[: _TRAINERS.index(kind)]) + int(task.get("index", 0))
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"TF_CONFIG: expected JSON, {error}: {text!r}."
            ) from error
        return InputContext(count, index, count)
