"""The names of tf.data.experimental: functions for `Dataset.apply`, and constants.

    from estimax.input import experimental
    data = data.apply(experimental.shuffle_and_repeat(10_000, count=3))

Programs written for tf.data.experimental only need another import. In new programs use
the methods of `Dataset`; most functions here return one of them, as in
`unbatch()(data) == data.unbatch()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np  # noqa: F401  # the examples below use it

from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.ops import sharding
from estimax.input.ops.options import AutoShardPolicy
from estimax.input.readers import CsvDataset, make_batched_features_dataset
from estimax.input.streams.structure import Structure
from estimax.input.tabular import make_csv_dataset

INFINITE_CARDINALITY = sharding.INFINITE
UNKNOWN_CARDINALITY = sharding.UNKNOWN

Transformation = Callable[[Dataset], Dataset]

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "CsvDataset",
    "bucket_by_sequence_length",
    "cardinality",
    "choose_from_datasets",
    "counter",
    "enumerate_dataset",
    "group_by_window",
    "ignore_errors",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "map_and_batch",
    "parallel_interleave",
    "rejection_resample",
    "sample_from_datasets",
    "scan",
    "shuffle_and_repeat",
    "take_while",
    "unbatch",
    "unique",
]


def map_and_batch(
    map_func: Callable[..., Structure],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Transformation:
    """Return a function that applies `Dataset.map` and then `Dataset.batch`.

    Args:
      map_func: The function to map.
      batch_size: Number of elements in a batch.
      num_parallel_batches: Number of threads, in place of `num_parallel_calls`.
      drop_remainder: Whether to drop the last batch if it is smaller.
      num_parallel_calls: Number of threads; see `Dataset.map`.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> list(Dataset.range(3).apply(map_and_batch(lambda x: x * 2, 2)))
      [array([0, 2]), array([4])]
    """
    calls = num_parallel_calls if num_parallel_batches is None else num_parallel_batches
    return lambda data: data.map(map_func, calls).batch(batch_size, drop_remainder)


def shuffle_and_repeat(
    buffer_size: int, count: int | None = None, seed: int | None = None
) -> Transformation:
    """Return a function that applies `shuffle(buffer_size, seed).repeat(count)`.

    Epochs are not mixed: all elements of one epoch come before the next epoch.

    Args:
      buffer_size: Number of elements in a window of `Dataset.shuffle`.
      count: Number of epochs. None or -1 repeats without end.
      seed: Seed of the order. None takes the seed of the iterator.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> data = Dataset.range(3).apply(shuffle_and_repeat(3, count=2))
      >>> sorted(int(x) for x in data)
      [0, 0, 1, 1, 2, 2]
    """
    return lambda data: data.shuffle(buffer_size, seed).repeat(count)


def parallel_interleave(
    map_func: Callable[..., Dataset],
    cycle_length: int,
    block_length: int = 1,
    sloppy: bool | None = False,
    buffer_output_elements: int | None = None,
    prefetch_input_elements: int | None = None,
) -> Transformation:
    """Return a function that applies `Dataset.interleave` with `cycle_length` threads.

    Args:
      map_func: A function from an element to a dataset.
      cycle_length: Number of datasets open at the same time, and of threads.
      block_length: Number of elements to take from each in turn.
      sloppy: No effect: the order is always deterministic.
      buffer_output_elements: No effect.
      prefetch_input_elements: No effect.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> repeat = lambda i: Dataset.from_tensors(i).repeat(2)
      >>> data = Dataset.range(2).apply(parallel_interleave(repeat, 2))
      >>> [int(x) for x in data]
      [0, 1, 0, 1]
    """
    return lambda data: data.interleave(
        map_func, cycle_length, block_length, num_parallel_calls=cycle_length
    )


def ignore_errors(log_warning: bool = False) -> Transformation:
    """Return a function that applies `Dataset.ignore_errors`.

    Args:
      log_warning: Whether to log every error as a warning.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> data = Dataset.range(2).map(lambda x: 1 / int(x))
      >>> [float(x) for x in data.apply(ignore_errors())]
      [1.0]
    """
    return lambda data: data.ignore_errors(log_warning)


def unbatch() -> Transformation:
    """Return a function that applies `Dataset.unbatch`.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> len(list(Dataset.range(4).batch(2).apply(unbatch())))
      4
    """
    return lambda data: data.unbatch()


def unique() -> Transformation:
    """Return a function that applies `Dataset.unique`.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> len(list(Dataset.range(4).repeat(2).apply(unique())))
      4
    """
    return lambda data: data.unique()


def enumerate_dataset(start: int = 0) -> Transformation:
    """Return a function that applies `Dataset.enumerate`.

    Args:
      start: The first number.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> list(Dataset.range(2).apply(enumerate_dataset(5)).batch(2))
      [(array([5, 6]), array([0, 1]))]
    """
    return lambda data: data.enumerate(start)


def take_while(predicate: Callable[..., Any]) -> Transformation:
    """Return a function that applies `Dataset.take_while`.

    Args:
      predicate: A function from an element to a bool.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> len(list(Dataset.range(9).apply(take_while(lambda x: x < 3))))
      3
    """
    return lambda data: data.take_while(predicate)


def scan(
    initial_state: Structure, scan_func: Callable[[Any, Any], Any]
) -> Transformation:
    """Return a function that applies `Dataset.scan`.

    Args:
      initial_state: The state for the first element.
      scan_func: A function `(state, element) -> (new state, output)`.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> [int(x) for x in Dataset.range(3).apply(scan(0, lambda s, x: (s + x, s)))]
      [0, 0, 1]
    """
    return lambda data: data.scan(initial_state, scan_func)


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[[Any, Dataset], Dataset],
    window_size: int | None = None,
    window_size_func: Callable[[Any], int] | None = None,
) -> Transformation:
    """Return a function that applies `Dataset.group_by_window`.

    Args:
      key_func: A function from an element to its key, an int.
      reduce_func: A function from a key and the dataset of a group to a dataset.
      window_size: Number of elements in a full group.
      window_size_func: A function from key to that number, in place of `window_size`.

    Returns:
      A function for `Dataset.apply`.

    Example:
      >>> parity = group_by_window(lambda x: x % 2, lambda key, rows: rows.batch(2), 2)
      >>> [batch.tolist() for batch in Dataset.range(4).apply(parity)]
      [[0, 2], [1, 3]]
    """
    return lambda data: data.group_by_window(
        key_func, reduce_func, window_size, window_size_func
    )


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Transformation:
    """Return a function that applies `Dataset.bucket_by_sequence_length`.

    Args:
      element_length_func: A function from an element to its length.
      bucket_boundaries: Increasing lengths at which a new bucket begins.
      bucket_batch_sizes: Batch size of each bucket, one more than boundaries.
      padded_shapes: As in `Dataset.padded_batch`.
      padding_values: As in `Dataset.padded_batch`.
      pad_to_bucket_boundary: Whether to pad to the boundary of the bucket minus 1
        instead of the longest of the batch.
      no_padding: Whether to stack without padding.
      drop_remainder: Whether to drop incomplete batches at the end.

    Returns:
      A function for `Dataset.apply`.

    Raises:
      InputError: Applied to a dataset: the number of batch sizes is not one more than
        that of boundaries, or boundaries do not increase.

    Example:
      >>> data = Dataset.from_generator(lambda: ([1] * n for n in (1, 5, 2, 6)))
      >>> by_length = bucket_by_sequence_length(len, [4], [2, 2])
      >>> [batch.shape for batch in data.map(np.array).apply(by_length)]
      [(2, 2), (2, 6)]
    """
    return lambda data: data.bucket_by_sequence_length(
        element_length_func,
        bucket_boundaries,
        bucket_batch_sizes,
        padded_shapes,
        padding_values,
        pad_to_bucket_boundary,
        no_padding,
        drop_remainder,
    )


def rejection_resample(
    class_func: Callable[..., Any],
    target_dist: Sequence[float],
    initial_dist: Sequence[float] | None = None,
    seed: int | None = None,
) -> Transformation:
    """Return a function that applies `Dataset.rejection_resample`.

    Args:
      class_func: A function from an element to its class, an int from 0.
      target_dist: Wanted share of each class.
      initial_dist: Share of each class in the data. None estimates it while reading.
      seed: Seed of the random choice. None takes the seed of the iterator.

    Returns:
      A function for `Dataset.apply`. It makes a dataset of `(class, element)` pairs.

    Example:
      >>> only_odd = rejection_resample(lambda x: x % 2, [0.0, 1.0], [0.5, 0.5])
      >>> [int(x) for _, x in Dataset.range(6).apply(only_odd)]
      [1, 3, 5]
    """
    return lambda data: data.rejection_resample(
        class_func, target_dist, initial_dist, seed
    )


def counter(start: int = 0, step: int = 1) -> Dataset:
    """Return `Dataset.counter(start, step)`.

    Args:
      start: The first number.
      step: The difference between two numbers.

    Returns:
      A dataset of int64 scalars.

    Example:
      >>> list(counter(1, 2).take(3).batch(3))
      [array([1, 3, 5])]
    """
    return Dataset.counter(start, step)


def cardinality(dataset: Dataset) -> int:
    """Return `dataset.cardinality()`.

    Args:
      dataset: The dataset.

    Returns:
      The number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

    Example:
      >>> cardinality(Dataset.range(5).repeat()) == INFINITE_CARDINALITY
      True
    """
    return dataset.cardinality()


sample_from_datasets = Dataset.sample_from_datasets
choose_from_datasets = Dataset.choose_from_datasets
