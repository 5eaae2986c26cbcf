"""tf.data.experimental's names: functions for `Dataset.apply`, and constants.

    from estimax.input import experimental
    data = data.apply(experimental.shuffle_and_repeat(10_000, count=3))

Verbs that have become methods are found there (`data.unbatch()`), and here too, so that
older programs need only another import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.readers import CsvDataset, make_batched_features_dataset
from estimax.input.streams.structure import Structure
from estimax.input.tabular import make_csv_dataset
from estimax.input.verbs import sharding as _cardinality
from estimax.input.verbs.options import AutoShardPolicy

INFINITE_CARDINALITY = _cardinality.INFINITE
UNKNOWN_CARDINALITY = _cardinality.UNKNOWN

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
    """`map` and then `batch`.

    >>> list(Dataset.range(3).apply(map_and_batch(lambda x: x * 2, 2)))
    [array([0, 2]), array([4])]
    """
    calls = num_parallel_calls if num_parallel_batches is None else num_parallel_batches
    return lambda data: data.map(map_func, calls).batch(batch_size, drop_remainder)


def shuffle_and_repeat(
    buffer_size: int, count: int | None = None, seed: int | None = None
) -> Transformation:
    """`shuffle(buffer_size, seed).repeat(count)`: epochs are not mixed.

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
    """`interleave` with a thread for every slot; `sloppy` changes nothing.

    >>> data = Dataset.range(2).apply(parallel_interleave(Dataset.range, 2))
    >>> [int(x) for x in data]
    [0]
    """
    return lambda data: data.interleave(
        map_func, cycle_length, block_length, num_parallel_calls=cycle_length
    )


def ignore_errors(log_warning: bool = False) -> Transformation:
    """`Dataset.ignore_errors`.

    >>> data = Dataset.range(2).map(lambda x: 1 / int(x))
    >>> [float(x) for x in data.apply(ignore_errors())]
    [1.0]
    """
    return lambda data: data.ignore_errors(log_warning)


def unbatch() -> Transformation:
    """`Dataset.unbatch`.

    >>> len(list(Dataset.range(4).batch(2).apply(unbatch())))
    4
    """
    return lambda data: data.unbatch()


def unique() -> Transformation:
    """`Dataset.unique`.

    >>> len(list(Dataset.range(4).repeat(2).apply(unique())))
    4
    """
    return lambda data: data.unique()


def enumerate_dataset(start: int = 0) -> Transformation:
    """`Dataset.enumerate`.

    >>> list(Dataset.range(2).apply(enumerate_dataset(5)).batch(2))
    [(array([5, 6]), array([0, 1]))]
    """
    return lambda data: data.enumerate(start)


def take_while(predicate: Callable[..., Any]) -> Transformation:
    """`Dataset.take_while`.

    >>> len(list(Dataset.range(9).apply(take_while(lambda x: x < 3))))
    3
    """
    return lambda data: data.take_while(predicate)


def scan(
    initial_state: Structure, scan_func: Callable[[Any, Any], Any]
) -> Transformation:
    """`Dataset.scan`.

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
    """`Dataset.group_by_window`.

    >>> by_rest = group_by_window(lambda x: x % 2, lambda key, rows: rows.batch(2), 2)
    >>> [batch.tolist() for batch in Dataset.range(4).apply(by_rest)]
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
    """`Dataset.bucket_by_sequence_length`."""
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
    """`Dataset.rejection_resample`."""
    return lambda data: data.rejection_resample(
        class_func, target_dist, initial_dist, seed
    )


def counter(start: int = 0, step: int = 1) -> Dataset:
    """Numbers without an end in sight: 2**40 of them.

    >>> list(counter(1, 2).take(3).batch(3))
    [array([1, 3, 5])]
    """
    return Dataset.range(start, start + step * (1 << 40), step)


def cardinality(dataset: Dataset) -> int:
    """`Dataset.cardinality`.

    >>> cardinality(Dataset.range(5).repeat()) == INFINITE_CARDINALITY
    True
    """
    return dataset.cardinality()


sample_from_datasets = Dataset.sample_from_datasets
choose_from_datasets = Dataset.choose_from_datasets
