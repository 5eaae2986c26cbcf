"""make_batched_features_dataset: TFRecord files of Examples to batches, in one call.

make_batched_features_dataset("train-*.tfrecord", 1024, features, label_key="click")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimax.input.dataset import Dataset
from estimax.input.examples.parsing import ExampleParser
from estimax.input.examples.specs import FeatureSpec
from estimax.input.readers import TFRecordDataset
from estimax.input.sources.paths import PathLike, list_paths
from estimax.input.verbs.interleaving import Interleave


def make_batched_features_dataset(
    file_pattern: PathLike | Sequence[PathLike],
    batch_size: int,
    features: Mapping[str, FeatureSpec],
    reader: Callable[..., Dataset] | None = None,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Batches of parsed Examples, or `(features, labels)` with `label_key`.

    `num_epochs=None` repeats for ever, batches running across the ends of epochs.
    Records move as blocks of bytes and are parsed a batch at a time, in
    `parser_num_threads` threads (2). `sloppy_ordering` changes nothing.

    >>> import os, tempfile
    >>> from estimax.input import FixedLenFeature, serialize_examples
    >>> from estimax.wire import write_records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tfrecord")
    ...     write_records(path, serialize_examples({"x": [1.5, 2.5], "y": [0, 1]}))
    ...     spec = {"x": FixedLenFeature([], "float32")}
    ...     spec["y"] = FixedLenFeature([], "int64")
    ...     data = make_batched_features_dataset(
    ...         path, 2, spec, label_key="y", num_epochs=1, shuffle=False)
    ...     list(data)
    [({'x': array([1.5, 2.5], dtype=float32)}, array([0, 1]))]
    """
    parser = ExampleParser(features)
    paths = list_paths(file_pattern)
    names = Dataset.from_tensor_slices([os.fsencode(path) for path in paths])
    if shuffle:
        names = names.shuffle(len(paths), shuffle_seed)
    make = reader or TFRecordDataset
    rest = tuple(reader_args or ())
    threads = reader_num_threads or 1

    def records(path: bytes) -> Dataset:
        return make(os.fsdecode(path), *rest)

    node = Interleave(
        names.node,
        records,
        threads,
        1,
        threads if threads > 1 else 0,
        "make_batched_features_dataset",
        columnar=True,
    )
    data = Dataset(node)
    if shuffle:
        data = data.shuffle(shuffle_buffer_size, shuffle_seed)
    drop = drop_final_batch or num_epochs is None
    data = data.repeat(num_epochs).batch(batch_size, drop)
    data = data.map(parser, num_parallel_calls=parser_num_threads or 2)
    if label_key is not None:
        data = data.with_label(label_key)
    return data.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)
