"""What TF 1 programs build an `input_fn` from: arrays, frames, an input context.

    input_fn = numpy_input_fn({"age": ages}, labels, batch_size=32, shuffle=True)
    estimator.train(input_fn, steps=100)

`numpy_input_fn` and `pandas_input_fn` read `num_epochs` passes as one stream of rows
and cut it into batches. Batches run across the ends of epochs, and only the last one
may be short. `InputContext` says which part of the input a process reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimax.core.errors import ConfigError, InputError
from estimax.input.dataset import Dataset
from estimax.input.sources.arrays import slices_of
from estimax.input.streams.structure import InputTypeError, Structure

if TYPE_CHECKING:
    import pandas as pd

# The tasks of a cluster that train. Evaluators and parameter servers read no part of
# the training input.
_TRAINERS = ("chief", "master", "worker")


def numpy_input_fn(
    x: Structure,
    y: Structure = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Dataset]:
    """Return an `input_fn` that reads batches from NumPy arrays in memory.

    Use it to port TF 1 programs. New programs may return
    `Dataset.from_tensor_slices((x, y))` from an `input_fn` of their own.

    Args:
      x: The features: an array, or a dict of arrays with the same number of rows.
      y: The labels: an array, a dict of arrays, or None for features alone.
      batch_size: How many rows a batch has.
      num_epochs: How often to read the arrays. None repeats without end.
      shuffle: Whether to shuffle all rows of every epoch. It must be given: True is
        usual for training, False for evaluation and prediction.
      queue_capacity: Has no effect; accepted from older programs.
      num_threads: Has no effect; accepted from older programs.

    Returns:
      A function without arguments that returns a `Dataset` of `(features, labels)`, or
      of features if `y` is None.

    Raises:
      InputError: `shuffle` is not a bool. When the `input_fn` is called: `x` is empty,
        `y` is an empty dict, or `x` and `y` share a key.

    Example:
      >>> x, y = {"age": np.array([31, 7, 40])}, np.array([1, 0, 1])
      >>> input_fn = numpy_input_fn(x, y, batch_size=2, shuffle=False)
      >>> for features, labels in input_fn():
      ...     print(features["age"], labels)
      [31  7] [1 0]
      [40] [1]
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
) -> Callable[[], Dataset]:
    """Return an `input_fn` that reads batches from a pandas frame.

    The features are a dict of the columns of the frame; its index is not a feature.
    Both frames are copied, so later changes do not affect the training.

    Args:
      x: The features, one column each.
      y: The labels, with the same index as `x`: a Series (the labels are an array), a
        frame (the labels are a dict), or None for features alone.
      batch_size: How many rows a batch has.
      num_epochs: How often to read the frame. None repeats without end.
      shuffle: Whether to shuffle all rows of every epoch. It must be given: True is
        usual for training, False for evaluation and prediction.
      queue_capacity: Has no effect; accepted from older programs.
      num_threads: Has no effect; accepted from older programs.
      target_column: A name that no column of `x` may have while `y` is given.

    Returns:
      A function without arguments that returns a `Dataset` of `(features, labels)`, or
      of features if `y` is None.

    Raises:
      InputError: `shuffle` is not a bool, `x` has a column named `target_column`, or
        the indices of `x` and `y` differ.

    Example:
      >>> import pandas as pd
      >>> x, y = pd.DataFrame({"age": [31, 7]}), pd.Series([1, 0])
      >>> next(iter(pandas_input_fn(x, y, batch_size=2, shuffle=False)()))
      ({'age': array([31,  7])}, array([1, 0]))
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
        # A shuffle of all rows costs no more than one of a few: they are in memory.
        dataset = dataset.shuffle(max(1, len(rows.block)))
    return dataset.repeat(num_epochs).batch(batch_size)


def _check_shuffle(where: str, shuffle: bool | None) -> None:
    if not isinstance(shuffle, bool):
        raise InputError(
            f"{where}: shuffle must be True (usual for training) or False (for "
            f"evaluation and prediction), got {shuffle!r}."
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
                f"numpy_input_fn: x and y both have the key "
                f"{', '.join(map(repr, shared))}. Rename the labels."
            )


def _ends(index: Any) -> str:
    return (
        f"[{index[0]} … {index[-1]}] ({len(index)})" if len(index) else "an empty one"
    )


@dataclass(frozen=True)
class InputContext:
    """Which part of the input this process reads when several processes train.

    An `input_fn` with a parameter `input_context` receives one. Pass a dataset to
    `shard` so that every process reads its own part.

    Args:
      num_input_pipelines: How many processes read the input.
      input_pipeline_id: The number of this process, from 0.
      num_replicas_in_sync: How many replicas train together on one global batch.

    Raises:
      InputError: `input_pipeline_id` is not in [0, num_input_pipelines).

    Example:
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
        """Return the part of a dataset that belongs to this process.

        Args:
          dataset: The whole input, the same in every process.

        Returns:
          A part of the files if there are at least as many files as processes, else
          every n-th record. The dataset itself if there is one process.
        """
        if self.num_input_pipelines == 1:
            return dataset
        return dataset.auto_shard(self.num_input_pipelines, self.input_pipeline_id)

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the batch size of one replica.

        Args:
          global_batch_size: The number of examples that all replicas train on in one
            step.

        Raises:
          InputError: The number of replicas does not divide `global_batch_size`.

        Example:
          >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(64)
          16
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise InputError(
                f"InputContext: the batch size {global_batch_size} is not divisible "
                f"by {self.num_replicas_in_sync} replicas."
            )
        return global_batch_size // self.num_replicas_in_sync

    @staticmethod
    def from_run_config(config: Any) -> InputContext:  # a RunConfig, which is above us
        """Return the context of the process that a `RunConfig` describes.

        An evaluator, which is not one of the workers, reads the whole input.

        Args:
          config: A `RunConfig`.

        Example:
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
        """Return the context of the task that the variable TF_CONFIG describes.

        Without TF_CONFIG, and in tasks that do not train, it is a context of one
        process, which reads the whole input.

        Args:
          environment: The environment variables, `os.environ` by default.

        Raises:
          ConfigError: TF_CONFIG is not JSON of the expected form.

        Example:
          >>> cluster = '{"chief": ["a:1"], "worker": ["b:1", "c:1"]}'
          >>> task = '{"type": "worker", "index": 1}'
          >>> context = InputContext.from_tf_config(
          ...     {"TF_CONFIG": f'{{"cluster": {cluster}, "task": {task}}}'})
          >>> context.num_input_pipelines, context.input_pipeline_id
          (3, 2)
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
