"""Dataset: tf.data's verbs over columns, with positions that resume exactly.

    data = csv_files("train-*.csv").with_label("income")
    data = data.shuffle(100_000, seed=7).repeat().batch(1024).prefetch(2)
    for features, label in data: ...

Elements are examples as in tf.data, but travel as blocks of columns: put `batch` late,
`map` behind it, and work on unbatched rows with `map_blocks`. A dataset is a
description: every `iter` starts a new pass, and its iterator knows its position. A verb
is a node and a stream in a file of its own; this one only lists them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np  # noqa: F401  # the examples below use it

from estimax.core.errors import InputError, did_you_mean
from estimax.input import fingerprints, profiling
from estimax.input.iterator import DatasetIterator
from estimax.input.signatures import checked_generator
from estimax.input.sources.arrays import (
    Range,
    Table,
    lists_to_columns,
    slices_of,
    slices_of_paths,
)
from estimax.input.sources.cache_files import CacheFile
from estimax.input.sources.generators import Batches, Generated
from estimax.input.sources.paths import PathLike, list_paths
from estimax.input.streams.background import ROWS_AT_ONCE
from estimax.input.streams.chunks import Elements, as_element
from estimax.input.streams.positions import Resume
from estimax.input.streams.stream import DatasetNode, verbs_of
from estimax.input.streams.structure import (
    Structure,
    describe,
    is_dataset,
    map_leaves,
    to_numpy,
)
from estimax.input.verbs import sharding
from estimax.input.verbs.batching import (
    Filter,
    Map,
    MapBlocks,
    PaddedBatch,
    StackedBatch,
    Unbatch,
    mapper_of,
)
from estimax.input.verbs.caching import Cache, Memory
from estimax.input.verbs.combining import Concatenate, Enumerate, Zip
from estimax.input.verbs.grouping import Buckets, GroupByWindow, InMemory, Window
from estimax.input.verbs.ignoring import IgnoreErrors
from estimax.input.verbs.mixing import DatasetChoice, Interleave, Mix, RandomChoice
from estimax.input.verbs.options import Options, WithOptions, options_of
from estimax.input.verbs.ordering import Repeat, Shard, Skip, Take
from estimax.input.verbs.parallel_map import ParallelMap, Prefetch
from estimax.input.verbs.scanning import Scan, TakeWhile, Unique
from estimax.input.verbs.shuffle import Resample, WindowShuffle

AUTOTUNE = -1
# tf.data's default for interleave is the number of cores; a fixed one means the same
# order on every machine.
_CYCLE_LENGTH = 8


class Dataset:
    """A re-iterable description of input; see the verbs for what it can do.

    >>> data = Dataset.from_tensor_slices({"x": np.arange(5)}).repeat(2).batch(4)
    >>> [batch["x"].tolist() for batch in data]
    [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    """

    def __init__(self, node: DatasetNode) -> None:
        self.node = node
        # Numbers the passes, so that a seeded shuffle differs from pass to pass.
        self._passes = itertools.count()

    # Sources

    @staticmethod
    def from_tensor_slices(tensors: Structure) -> Dataset:
        """Cut dim 0 of every array into elements; text becomes `Strings`.

        Takes arrays, pandas frames and series, and dicts and tuples of them. Nothing
        is copied, and batches cannot be written to.

        >>> next(iter(Dataset.from_tensor_slices((np.arange(3), [7, 8, 9])).batch(2)))
        (array([0, 1]), array([7, 8]))
        """
        return Dataset(slices_of(tensors))

    @staticmethod
    def from_tensors(tensors: Structure) -> Dataset:
        """One element: the structure as a whole.

        >>> list(Dataset.from_tensors(([1, 2], [3])))
        [(array([1, 2]), array([3]))]
        """
        return Dataset(
            InMemory(Elements([as_element(lists_to_columns(tensors))]), "from_tensors")
        )

    @staticmethod
    def range(*args: int) -> Dataset:
        """Count, as the builtin `range` does, in int64.

        >>> list(Dataset.range(2, 8, 3).batch(9))
        [array([2, 5])]
        """
        return Dataset(Range(range(*args)))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Structure]],
        output_types: Structure = None,
        output_shapes: Structure = None,
        args: Sequence[Any] | None = None,
        output_signature: Structure = None,
    ) -> Dataset:
        """Take elements one by one from what `generator(*args)` returns, every pass.

        Every element is checked against `output_signature` (a structure of
        `TensorSpec`), or against the types and shapes, where these are given. Its
        position is a count: resuming runs the generator up to there again.

        >>> list(Dataset.from_generator(lambda: iter([1, 2, 3])).batch(2))
        [array([1, 2]), array([3])]
        """
        checked = checked_generator(
            generator, tuple(args or ()), output_types, output_shapes, output_signature
        )
        return Dataset(Generated(checked))

    @staticmethod
    def from_batches(
        batches: Iterable[Structure] | Callable[[], Iterable[Structure]],
        *,
        resume: Resume = "skip",
    ) -> Dataset:
        """Take ready batches from an iterable, or from what a function returns.

        A list (anything with `len` and `[i]`) resumes by index, an iterator with
        `get_state`/`set_state` or `state_dict`/`load_state_dict` by these, any other
        by running up to the position again ("skip") or not at all ("refuse").
        """
        return Dataset(Batches(batches, resume))

    @staticmethod
    def from_table(table: Any) -> Dataset:
        """The rows of a table of another library, read by ranges.

        Takes Hugging Face datasets, arrow tables, and anything with `len` whose
        `table[a:b]` gives a dict of columns; lists of different lengths are sparse.

        >>> import pyarrow as pa
        >>> next(iter(Dataset.from_table(pa.table({"x": [1, 2, 3]})).batch(2)))
        {'x': array([1, 2])}
        """
        return Dataset(Table(table))

    @staticmethod
    def list_files(
        file_pattern: PathLike | Iterable[PathLike],
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> Dataset:
        """The paths that match, as text: in a new random order every pass.

        With `shuffle=False` sorted by path, over all patterns together. No match at
        all is an error here already.
        """
        paths = list_paths(file_pattern)
        data = Dataset(slices_of_paths(paths))
        return data if shuffle is False else data.shuffle(len(paths), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset:
        """One element of each dataset together, up to the end of the shortest.

        Takes datasets, or one tuple or dict of datasets, nested as wanted.

        >>> list(Dataset.zip(Dataset.range(3), Dataset.range(10, 15)).batch(9))
        [(array([0, 1, 2]), array([10, 11, 12]))]
        """
        if datasets is None:
            datasets = args[0] if len(args) == 1 else tuple(args)

        def node(leaf: Any) -> DatasetNode:
            return _node_of(leaf, "zip")

        return Dataset(Zip(map_leaves(node, datasets)))

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
    ) -> Dataset:
        """Draw every element from one of the datasets at random, by weight.

        >>> ones, twos = (Dataset.from_tensors(i).repeat(5) for i in (1, 2))
        >>> sorted(x.item() for x in Dataset.sample_from_datasets([ones, twos]))
        [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
        """
        nodes = tuple(_node_of(one, "sample_from_datasets") for one in datasets)
        if weights is not None and len(weights) != len(nodes):
            raise InputError(
                f"sample_from_datasets: {len(nodes)} datasets, {len(weights)} weights."
            )
        chances = (1.0,) * len(nodes) if weights is None else tuple(map(float, weights))
        choice = RandomChoice(chances, seed)
        return Dataset(
            Mix(nodes, choice, stop_on_empty_dataset, "sample_from_datasets")
        )

    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset],
        choice_dataset: Dataset,
        stop_on_empty_dataset: bool = True,
    ) -> Dataset:
        """Take every element from the dataset whose number comes next.

        >>> parts = [Dataset.range(0, 9), Dataset.range(10, 19)]
        >>> choice = Dataset.from_tensor_slices(np.array([0, 1, 1]))
        >>> list(Dataset.choose_from_datasets(parts, choice).batch(9))
        [array([ 0, 10, 11])]
        """
        nodes = tuple(_node_of(one, "choose_from_datasets") for one in datasets)
        choice = DatasetChoice(choice_dataset.node)
        return Dataset(
            Mix(nodes, choice, stop_on_empty_dataset, "choose_from_datasets")
        )

    # Which elements, in which order

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Dataset:
        """Permute each window of `buffer_size` elements by (seed, epoch, window).

        Output position p only holds input elements with index < p + buffer_size, as
        in tf.data; unlike there, an element stays within its window. A buffer as large
        as the data gives a uniform permutation. Every pass has its own order unless
        `reshuffle_each_iteration=False`, which means one order for ever, in every
        process, also without a seed.
        """
        reshuffle = reshuffle_each_iteration is not False
        return Dataset(WindowShuffle(self.node, buffer_size, seed, reshuffle))

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through the data `count` times; None or -1 is for ever.

        >>> [b.tolist() for b in Dataset.range(3).batch(2).repeat(2)]
        [[0, 1], [2], [0, 1], [2]]
        """
        return Dataset(Repeat(self.node, count))

    def take(self, count: int) -> Dataset:
        """Stop after `count` elements; -1 takes all."""
        return Dataset(Take(self.node, count))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements; -1 leaves out all."""
        return Dataset(Skip(self.node, count))

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """Stop before the first element for which `predicate` is false.

        >>> list(Dataset.range(7).take_while(lambda x: x < 3).batch(9))
        [array([0, 1, 2])]
        """
        return Dataset(TakeWhile(self.node, predicate))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep elements `index`, `index + num_shards`, …; put it before shuffle."""
        return Dataset(Shard(self.node, num_shards, index))

    def auto_shard(self, num_shards: int, index: int) -> Dataset:
        """This process's part of the input: whole files where there are enough.

        Every example goes to exactly one of the `num_shards` processes in an epoch.
        The division happens before shuffle, repeat and batch, wherever this stands,
        and by record where there are fewer files than processes. Options can ask for
        one or the other (`auto_shard_policy`).

        >>> parts = [Dataset.range(5).batch(2).auto_shard(2, i) for i in range(2)]
        >>> [[batch.tolist() for batch in part] for part in parts]
        [[[0, 2], [4]], [[1, 3]]]
        """
        policy = self.options().experimental_distribute.auto_shard_policy
        return Dataset(sharding.sharded(self.node, num_shards, index, policy))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements for which `predicate` is true, called with one each."""
        return Dataset(Filter(self.node, predicate))

    def filter_blocks(self, mask: Callable[..., Any]) -> Dataset:
        """Keep the rows for which `mask`, called with a block, returns true.

        >>> list(Dataset.range(10).filter_blocks(lambda x: x % 3 == 0).batch(9))
        [array([0, 3, 6, 9])]
        """
        return Dataset(Filter(self.node, mask, blocks=True))

    def unique(self) -> Dataset:
        """Every distinct number or string once.

        >>> list(Dataset.from_tensor_slices([1, 2, 1, 3]).unique().batch(9))
        [array([1, 2, 3])]
        """
        return Dataset(Unique(self.node))

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Another dataset of the same structure and dtypes behind this one.

        >>> list(Dataset.range(2).concatenate(Dataset.range(7, 9)).batch(9))
        [array([0, 1, 7, 8])]
        """
        return Dataset(Concatenate(self.node, _node_of(dataset, "concatenate")))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> Dataset:
        """Drop elements at random so that classes come in the target's proportions.

        Gives `(class, element)` pairs. `initial_dist` is the data's own distribution,
        found out on the way if it is not given.
        """
        initial = None if initial_dist is None else tuple(initial_dist)
        return Dataset(
            Resample(self.node, class_func, tuple(target_dist), initial, seed)
        )

    # What elements are made of

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stack elements; the last batch may be short unless dropped."""
        return Dataset(StackedBatch(self.node, batch_size, drop_remainder))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Dataset:
        """Stack elements of different shapes, filled up to the longest of the batch.

        `padded_shapes` fixes dims (None or -1 stays the longest); a shape is a list,
        or the structure of the elements with a list in each place.

        >>> data = Dataset.from_generator(lambda: ([1] * n for n in (1, 3)))
        >>> list(data.map(np.array).padded_batch(2, padding_values=-1))[0].tolist()
        [[1, -1, -1], [1, 1, 1]]
        """
        return Dataset(
            PaddedBatch(
                self.node, batch_size, padded_shapes, padding_values, drop_remainder
            )
        )

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Dataset:
        """Padded batches of elements of about one length.

        Buckets are [0, b0), [b0, b1), …, [last, ∞), each with its own batch size. A
        batch leaves when its bucket is full; leftovers come at the end.
        """
        buckets = Buckets(
            element_length_func,
            tuple(bucket_boundaries),
            tuple(bucket_batch_sizes),
            padded_shapes,
            padding_values,
            pad_to_bucket_boundary,
            no_padding,
            drop_remainder,
        )
        return Dataset(buckets.node(self.node, Dataset))

    def unbatch(self) -> Dataset:
        """Cut every element along its first dimension: the opposite of `batch`.

        >>> list(Dataset.range(6).batch(4).unbatch().batch(3))
        [array([0, 1, 2]), array([3, 4, 5])]
        """
        return Dataset(Unbatch(self.node))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Dataset:
        """Groups of `size` elements, each a dataset (for a dict, a dict of datasets).

        >>> windows = Dataset.range(5).window(3, shift=2)
        >>> [w.tolist() for w in windows.flat_map(lambda w: w.batch(3))]
        [[0, 1, 2], [2, 3, 4], [4]]
        """
        shift = size if shift is None else shift
        return Dataset(Window(self.node, size, shift, stride, drop_remainder, Dataset))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Dataset], Dataset],
        window_size: int | None = None,
        window_size_func: Callable[[Any], int] | None = None,
    ) -> Dataset:
        """`reduce_func(key, dataset)` for every `window_size` elements of one key.

        >>> data = Dataset.range(6).group_by_window(
        ...     lambda x: x % 2, lambda key, rows: rows.batch(3), 3)
        >>> [batch.tolist() for batch in data]
        [[0, 2, 4], [1, 3, 5]]
        """
        if (window_size is None) == (window_size_func is None):
            raise InputError(
                "group_by_window: give one of window_size and window_size_func."
            )
        size = window_size or 0
        size_of = window_size_func or (lambda key: size)
        return Dataset(
            GroupByWindow(self.node, key_func, reduce_func, size_of, Dataset)
        )

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs of a running number and the element.

        >>> list(Dataset.range(10, 12).enumerate(5).batch(9))
        [(array([5, 6]), array([10, 11]))]
        """
        return Dataset(Enumerate(self.node, start))

    def map(
        self,
        map_func: Callable[..., Structure],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Call `map_func` with every element: with batches, if placed after `batch`.

        A tuple is spread over the arguments. Before `batch` this is a Python call for
        every example; `map_blocks` does the same for thousands of rows at once. With
        `num_parallel_calls` threads call it, which helps where it waits or leaves
        Python (NumPy, files). The order is always kept, so `deterministic=False` is
        allowed and changes nothing.
        """
        if num_parallel_calls is None:
            return Dataset(Map(self.node, map_func))
        mapper, at_once = mapper_of(self.node, map_func)
        threads = self._threads(num_parallel_calls)
        return Dataset(ParallelMap(self.node, mapper, threads, at_once, False))

    def map_blocks(
        self,
        map_func: Callable[..., Structure],
        num_parallel_calls: int | None = None,
    ) -> Dataset:
        """Call `map_func` with blocks of rows (a structure of columns), of any length.

        It must treat rows alike and return as many as it got.

        >>> data = Dataset.from_tensor_slices({"x": np.arange(3)})
        >>> list(data.map_blocks(lambda rows: {"y": rows["x"] * 2}).batch(3))
        [{'y': array([0, 2, 4])}]
        """
        if num_parallel_calls is None:
            return Dataset(MapBlocks(self.node, map_func))
        columnar = self.node.columnar
        return Dataset(
            ParallelMap(
                self.node,
                lambda chunk: chunk.map_blocks(map_func),
                self._threads(num_parallel_calls),
                ROWS_AT_ONCE if columnar else 1,
                columnar,
                "map_blocks",
            )
        )

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Read the datasets that `map_func` makes of elements, several side by side.

        `cycle_length` of them are open (8 by default), and `block_length` elements
        (1) are taken from each in turn. With `num_parallel_calls` threads read ahead;
        the order does not depend on them.

        >>> data = Dataset.range(3).interleave(
        ...     lambda i: Dataset.from_tensors(i).repeat(2), cycle_length=2)
        >>> [int(x) for x in data]
        [0, 1, 0, 1, 2, 2]
        """
        cycle = _CYCLE_LENGTH if cycle_length in (None, AUTOTUNE) else cycle_length
        assert cycle is not None
        threads = 0
        if num_parallel_calls is not None:
            if num_parallel_calls > cycle:
                raise InputError(
                    f"interleave: num_parallel_calls ({num_parallel_calls}) must not "
                    f"be greater than cycle_length ({cycle})."
                )
            threads = self._threads(num_parallel_calls)
        block = 1 if block_length in (None, AUTOTUNE) else block_length
        assert block is not None
        return Dataset(Interleave(self.node, map_func, cycle, block, threads))

    def flat_map(self, map_func: Callable[..., Dataset]) -> Dataset:
        """All elements of the datasets that `map_func` makes, one after the other.

        >>> list(Dataset.range(4).flat_map(Dataset.range).batch(9))
        [array([0, 0, 1, 0, 1, 2])]
        """
        # With one slot the block length changes nothing; a long one is faster.
        return Dataset(Interleave(self.node, map_func, 1, 1 << 40, name="flat_map"))

    def scan(
        self, initial_state: Structure, scan_func: Callable[[Any, Any], Any]
    ) -> Dataset:
        """Outputs of `scan_func(state, element) -> (state, output)`.

        >>> [int(x) for x in Dataset.range(4).scan(0, lambda s, x: (s + x, s + x))]
        [0, 1, 3, 6]
        """
        return Dataset(Scan(self.node, initial_state, scan_func))

    def with_label(self, name: str) -> Dataset:
        """Turn dict elements into `(the other features, element[name])`.

        >>> data = Dataset.from_tensor_slices({"x": np.arange(2), "y": np.arange(2)})
        >>> next(iter(data.with_label("y").batch(2)))
        ({'x': array([0, 1])}, array([0, 1]))
        """
        split = label_splitter(name)
        return Dataset(MapBlocks(self.node, split, "with_label", is_ours=True))

    def apply(self, transformation_func: Callable[[Dataset], Any]) -> Any:
        """`transformation_func(self)`, to chain functions like verbs.

        >>> list(Dataset.range(4).apply(lambda data: data.take(1)).batch(2))
        [array([0])]
        """
        return transformation_func(self)

    # How it runs

    def cache(self, filename: PathLike = "") -> Dataset:
        """Keep the elements of the first complete pass: in memory, or in files.

        What lies before is frozen, a shuffle too. `filename` is a prefix; a later run
        that names it reads the files and not what lies before. Each chunk is checked
        against its checksum when it is read; a damaged file is an `InputError` that
        names the files to delete.
        """
        prefix = os.fspath(filename)
        return Dataset(Cache(self.node, CacheFile(prefix) if prefix else Memory()))

    def prefetch(self, buffer_size: int = AUTOTUNE) -> Dataset:
        """Make up to `buffer_size` elements ahead, in a thread; 0 does nothing."""
        if buffer_size == 0:
            return self
        return Dataset(Prefetch(self.node, 2 if buffer_size < 0 else buffer_size))

    def ignore_errors(self, log_warning: bool = False) -> Dataset:
        """Leave out elements that cannot be made; the iterator counts them.

        >>> data = Dataset.range(4).map(lambda x: 6 // x if x else int("none"))
        >>> iterator = iter(data.ignore_errors())
        >>> list(iterator), iterator.ignored_errors
        ([np.int64(6), np.int64(3), np.int64(2)], 1)
        """
        return Dataset(IgnoreErrors(self.node, log_warning))

    def with_options(self, options: Options) -> Dataset:
        """Attach tf.data's options; see `Options` for those that matter here."""
        return Dataset(WithOptions(self.node, options))

    def options(self) -> Options:
        """The options attached last, or the defaults."""
        return options_of(self.node) or Options()

    def _threads(self, wanted: int) -> int:
        if wanted != AUTOTUNE:
            return wanted
        size = self.options().threading.private_threadpool_size
        return int(size) if size else min(8, os.cpu_count() or 1)

    def cardinality(self) -> int:
        """How many elements there are, where it is known without reading.

        -1 (`INFINITE_CARDINALITY`) is for ever, -2 (`UNKNOWN_CARDINALITY`) unknown.

        >>> Dataset.range(10).repeat(2).batch(3).cardinality()
        7
        """
        return sharding.cardinality_of(self.node)

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            what = "infinite" if count == sharding.INFINITE else "unknown"
            raise TypeError(f"the number of elements of {self!r} is {what}.")
        return count

    def __bool__(self) -> bool:
        return True  # as any object: `if dataset` must not ask for its length

    def fingerprint(self) -> str:
        """A digest that tells whether the dataset and its data are the same.

        Covers the verbs, the names (without folders), sizes and samples (the first,
        middle and last 64 KiB) of files, and samples of arrays in memory. It does not
        cover settings of verbs, user functions, generators and remote files' content.
        Reads up to 192 KiB of every file.

        Returns:
          32 hexadecimal digits, the same in every process.

        >>> data, more = (Dataset.from_tensor_slices(np.arange(n)) for n in (5, 6))
        >>> data.fingerprint() == more.fingerprint()
        False
        """
        return fingerprints.fingerprint(self.node)

    def profile(self, elements: int = 100, seconds: float = 10.0) -> profiling.Profile:
        """Run a part of a pass and measure every stage; printed, a table.

        Stops after so many elements or seconds, whichever comes first.

        >>> Dataset.range(100).map(lambda x: sum(range(9999))).profile().slowest
        'map'
        """
        return profiling.profile(self.node, elements, seconds)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Fold all elements: `reduce_func(state, element)` gives the next state.

        >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
        10
        """
        state = initial_state
        with self.iterator() as iterator:
            for element in iterator:
                state = reduce_func(state, element)
        return state

    def as_numpy_iterator(self) -> Iterator[Structure]:
        """Elements with text as NumPy arrays of bytes.

        >>> next(Dataset.from_tensor_slices(["a", "b"]).batch(2).as_numpy_iterator())
        array([b'a', b'b'], dtype=object)
        """
        return (to_numpy(element) for element in self)

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, *, seed: int | None = None) -> DatasetIterator:
        """Start a pass; `seed` is for the shuffles that were given none.

        Without it one is drawn, and kept in the position.
        """
        return DatasetIterator(self.node, seed, next(self._passes))

    def __repr__(self) -> str:
        return f"<Dataset {' > '.join(verbs_of(self.node))}>"


def label_splitter(name: str) -> Callable[..., Structure]:
    """A function for `map_blocks` that splits a column off as the label."""

    def split(rows: Structure) -> Structure:
        if not isinstance(rows, Mapping):
            raise InputError(
                f"with_label({name!r}) needs dict elements, got {describe(rows)}."
            )
        if name not in rows:
            raise InputError(
                f"with_label: there is no column {name!r}{did_you_mean(name, rows)}"
            )
        return {key: rows[key] for key in rows if key != name}, rows[name]

    # A tuple element arrives spread; put together, split can say what it is.
    return lambda *rows: split(rows[0] if len(rows) == 1 else rows)


def _node_of(dataset: Any, verb: str) -> DatasetNode:
    if not is_dataset(dataset):
        raise InputError(f"{verb}: expected a Dataset, got {type(dataset).__name__}.")
    node: DatasetNode = dataset.node
    return node
