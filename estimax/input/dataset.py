"""Dataset: tf.data's methods over columns, with positions that resume exactly.

    data = csv_files("train-*.csv").with_label("income")
    data = data.shuffle(100_000, seed=7).repeat().batch(1024).prefetch(2)
    for features, label in data: ...

Elements are examples as in tf.data, but blocks of columns are what passes from stage to
stage. A function given to `map` before `batch` is called for blocks of rows if it can
be (`ops/row_functions.py`), and otherwise in Python for every row.

A dataset is a description of the input. Every `iter` starts a new pass, and the
iterator knows its position. Each method here only adds a node to the chain; the node
and its stream are in `verbs` and `sources`.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np  # the examples below use it

from estimax.core.errors import InputError, did_you_mean
from estimax.core.migration import Retired
from estimax.input import display, fingerprints, profiling
from estimax.input.element_specs import check_generator, element_spec_of
from estimax.input.iterator import DatasetIterator
from estimax.input.ops import sharding
from estimax.input.ops.batching import (
    Filter,
    Map,
    MapBlocks,
    PaddedBatch,
    RaggedBatch,
    Rebatch,
    SparseBatch,
    StackedBatch,
    Unbatch,
    row_function_of,
)
from estimax.input.ops.caching import Cache, Memory
from estimax.input.ops.combining import Concatenate, Enumerate, Zip
from estimax.input.ops.grouping import Buckets, GroupByWindow, InMemory, Window
from estimax.input.ops.ignoring import IgnoreErrors
from estimax.input.ops.mixing import DatasetChoice, Interleave, Mix, RandomChoice
from estimax.input.ops.options import Options, WithOptions, options_of
from estimax.input.ops.parallel_map import ParallelMap, Prefetch
from estimax.input.ops.selection import (
    Repeat,
    Scan,
    Shard,
    Skip,
    Take,
    TakeWhile,
    Unique,
)
from estimax.input.ops.shuffle import RandomNumbers, Resample, WindowShuffle
from estimax.input.sources import cache_files
from estimax.input.sources.arrays import (
    Range,
    Table,
    lists_to_columns,
    slices_of,
    slices_of_paths,
)
from estimax.input.sources.cache_files import CacheFile
from estimax.input.sources.file_blocks import PathLike, list_paths
from estimax.input.sources.iterables import Batches, Generated, Resume
from estimax.input.streams.chunks import Chunk, ElementList, as_element
from estimax.input.streams.stream import (
    ROWS_AT_ONCE,
    Context,
    DatasetNode,
    check_at_least,
    elements_at_once,
    verbs_of,
)
from estimax.input.streams.structure import (
    Structure,
    describe,
    is_dataset,
    map_leaves,
    to_numpy,
)

AUTOTUNE = -1
"""A number of threads or batches that estimax chooses, as `tf.data.AUTOTUNE`."""
# tf.data's default for interleave is the number of cores. A fixed number gives the same
# order on every machine.
_CYCLE_LENGTH = 8


_SPECS = "read element_spec, which has the shapes and dtypes"
_ITERATORS = (
    "return the dataset itself from the input_fn, and use iter(dataset) and "
    "next(iterator) elsewhere"
)


class Dataset:
    """A description of input data: a source followed by verbs, such as `batch`.

    Use it as the result of an `input_fn`, or iterate over it. A verb is a method that
    returns a new dataset; verbs are those of `tf.data.Dataset`. They read nothing:
    reading starts with an iterator. Iterating twice gives two passes.

    Start from a source: `from_tensor_slices`, `from_generator`, `from_batches`,
    `from_table`, `range`, `list_files`, or a reader such as `csv_files` and
    `TFRecordDataset`. The usual order is source, `shuffle`, `repeat`, `batch`, `map`,
    `prefetch`.

    Rows pass through a dataset as blocks of columns. Text is a `Strings` column. A
    function given to `map` before `batch` is called for blocks of rows if it consists
    of parsers, NumPy and bytes methods, and otherwise in Python for every row;
    `map_blocks`, or `map` after `batch`, always handles many rows with one call.

    Args:
      node: The description that the dataset wraps. Users call the methods below instead
        of this constructor.

    Example:
      >>> data = Dataset.from_tensor_slices({"x": np.arange(5)}).repeat(2).batch(4)
      >>> [batch["x"].tolist() for batch in data]
      [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    """

    make_one_shot_iterator = Retired(_ITERATORS)
    make_initializable_iterator = Retired(_ITERATORS)
    output_classes = Retired(_SPECS)
    output_shapes = Retired(_SPECS)
    output_types = Retired(_SPECS)

    def __init__(self, node: DatasetNode) -> None:
        self.node = node
        # Numbers the passes, so that a seeded shuffle differs from pass to pass.
        self._passes = itertools.count()

    # Sources

    @staticmethod
    def from_tensor_slices(tensors: Structure) -> Dataset:
        """Make a dataset of the rows of arrays: one element for each index of dim 0.

        Use it for data that fits in memory. Arrays are not copied, and batches cannot
        be written to.

        Args:
          tensors: Arrays, lists, pandas frames or series, or dicts and tuples of them,
            nested as wanted. All need the same number of rows. Text becomes `Strings`.

        Returns:
          A dataset whose elements have the structure of `tensors`.

        Raises:
          InputError: The arrays have different numbers of rows, or one is a scalar.

        Example:
          >>> data = Dataset.from_tensor_slices((np.arange(3), [7, 8, 9]))
          >>> next(iter(data.batch(2)))
          (array([0, 1]), array([7, 8]))
        """
        return Dataset(slices_of(tensors))

    @staticmethod
    def from_tensors(tensors: Structure) -> Dataset:
        """Make a dataset of one element: the whole structure.

        Args:
          tensors: An array or a structure of arrays. It is not cut into rows.

        Returns:
          A dataset with one element.

        Example:
          >>> list(Dataset.from_tensors(([1, 2], [3])))
          [(array([1, 2]), array([3]))]
        """
        return Dataset(
            InMemory(
                ElementList([as_element(lists_to_columns(tensors))]), "from_tensors"
            )
        )

    @staticmethod
    def range(*args: int) -> Dataset:
        """Make a dataset of int64 numbers, as the builtin `range` counts them.

        Args:
          *args: `stop`, or `start, stop`, or `start, stop, step`.

        Returns:
          A dataset of scalars.

        Example:
          >>> list(Dataset.range(2, 8, 3).batch(9))
          [array([2, 5])]
        """
        return Dataset(Range(range(*args)))

    @staticmethod
    def counter(start: int = 0, step: int = 1, dtype: Any = "int64") -> Dataset:
        """Make a dataset that counts without end.

        Use it with `zip` or `interleave`, where a range would need an end.

        Args:
          start: The first number.
          step: The difference between two numbers, not 0.
          dtype: The dtype of the numbers.

        Returns:
          A dataset of scalars. It stops after 2**40 of them.

        Raises:
          InputError: `step` is 0.

        Example:
          >>> list(Dataset.counter(1, 2).take(3).batch(3))
          [array([1, 3, 5])]
        """
        if not step:
            raise InputError("counter: step must not be 0.")
        numbers = range(start, start + step * (1 << 40), step)
        data = Dataset(Range(numbers, endless=True))
        if np.dtype(dtype) == np.int64:
            return data
        return data.map_blocks(lambda numbers: numbers.astype(dtype))

    @staticmethod
    def random(
        seed: int | None = None, rerandomize_each_iteration: bool | None = None
    ) -> Dataset:
        """Make a dataset of random numbers without end.

        Args:
          seed: Seed of the numbers. None takes the seed of the iterator, so that every
            pass has other numbers.
          rerandomize_each_iteration: Whether passes with a `seed` have different
            numbers, too.

        Returns:
          A dataset of int64 scalars from 0 to 2**32 - 1.

        Example:
          >>> data = Dataset.random(seed=4).take(2)
          >>> list(data) == list(data)
          True
        """
        return Dataset(RandomNumbers(seed, bool(rerandomize_each_iteration)))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Structure]],
        output_types: Structure = None,
        output_shapes: Structure = None,
        args: Sequence[Any] | None = None,
        output_signature: Structure = None,
    ) -> Dataset:
        """Make a dataset of the elements that a Python generator yields.

        Use it for formats that no reader supports. The generator runs in Python for
        every element; `from_batches` is faster if the data arrives in batches. The
        position is a count: resuming runs the generator again up to that count.

        Args:
          generator: A function that returns an iterable. It is called for every pass.
            Pass the function itself, not its result.
          output_types: Structure of dtypes, against which elements are checked. Python
            numbers are converted, but never a float to an int. NumPy values of the same
            kind must have exactly this dtype. None checks nothing.
          output_shapes: Structure of shapes, with None for a dimension of any size.
            Used together with `output_types`.
          args: Arguments for `generator`.
          output_signature: Structure of `TensorSpec`, in place of `output_types` and
            `output_shapes`.

        Returns:
          A dataset of single elements.

        Raises:
          InputError: `generator` is not callable, or both `output_signature` and
            `output_types` are given. While reading: an element differs from the
            signature in structure, dtype or shape.

        Example:
          >>> list(Dataset.from_generator(lambda: iter([1, 2, 3])).batch(2))
          [array([1, 2]), array([3])]
        """
        checked = check_generator(
            generator, tuple(args or ()), output_types, output_shapes, output_signature
        )
        return Dataset(Generated(checked))

    @staticmethod
    def from_batches(
        batches: Iterable[Structure] | Callable[[], Iterable[Structure]],
        *,
        resume: Resume = "skip",
    ) -> Dataset:
        """Make a dataset of ready batches, such as those of a PyTorch or Grain loader.

        Args:
          batches: An iterable of batches, or a function that returns one. A function is
            called for every pass; a one-shot iterator allows only one pass.
          resume: How to resume an iterable that has no position of its own. `"skip"`
            reads batches and drops them up to the saved count; `"refuse"` raises
            instead. Lists (anything with `len` and `[i]`) resume by index, and
            iterators with `get_state`/`set_state` or `state_dict`/`load_state_dict`
            by these methods.

        Returns:
          A dataset whose elements are the batches.

        Raises:
          InputError: `batches` is neither an iterable nor a function. While reading: a
            one-shot iterator is used for a second pass, or `resume="refuse"` does not
            allow to resume.

        Example:
          >>> data = Dataset.from_batches([{"x": np.arange(2)}, {"x": np.arange(1)}])
          >>> [batch["x"].tolist() for batch in data]
          [[0, 1], [0]]
        """
        return Dataset(Batches(batches, resume))

    @staticmethod
    def from_table(table: Any) -> Dataset:
        """Make a dataset of the rows of a table of another library.

        Rows are read in ranges of at least 4096, so a table on disk is not loaded as a
        whole.

        Args:
          table: A Hugging Face dataset, an Arrow table, or any object with `len` whose
            `table[a:b]` is a dict of columns. A column of lists of different lengths
            becomes sparse.

        Returns:
          A dataset whose elements are dicts, one for each row.

        Raises:
          InputError: `table` has no `len` or cannot be sliced. While reading: a slice
            is not a dict of columns.

        Example:
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
        """Make a dataset of the paths that match patterns.

        Use it with `interleave` to read many files at the same time.

        Args:
          file_pattern: A path or glob pattern, or several; also of URLs such as
            gs://bucket/part-*.
          shuffle: False sorts all paths. Otherwise every pass has a new random order.
          seed: Seed of that order. None takes the seed of the iterator.

        Returns:
          A dataset of paths as text.

        Raises:
          InputError: No file matches. This is raised here, not while reading.

        Example:
          >>> import pathlib, tempfile
          >>> folder = pathlib.Path(tempfile.mkdtemp())
          >>> for name in ("b.csv", "a.csv"):
          ...     (folder / name).touch()
          >>> paths = Dataset.list_files(folder / "*.csv", shuffle=False)
          >>> [pathlib.Path(path.decode()).name for path in paths]
          ['a.csv', 'b.csv']
        """
        paths = list_paths(file_pattern)
        data = Dataset(slices_of_paths(paths))
        return data if shuffle is False else data.shuffle(len(paths), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None) -> Dataset:
        """Combine datasets element by element; end with the shortest.

        Args:
          *args: Datasets, or one tuple or dict of datasets, nested as wanted.
          datasets: The tuple or dict, passed by name.

        Returns:
          A dataset whose elements have the structure of the arguments.

        Raises:
          InputError: An argument is not a `Dataset`.

        Example:
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
        """Take every element from one of several datasets, selected at random.

        Use it to mix sources in given proportions.

        Args:
          datasets: Datasets of the same structure and dtypes.
          weights: Probability of each dataset, up to a common factor. None selects all
            with equal probability. Ended datasets are left out.
          seed: Seed of the selection. None takes the seed of the iterator.
          stop_on_empty_dataset: Whether to end with the first dataset that ends,
            instead of the last. True keeps the proportions to the end.

        Returns:
          A dataset of the selected elements.

        Raises:
          InputError: The number of weights differs from the number of datasets, a
            weight is negative, all weights are 0, or an item is not a `Dataset`.

        Example:
          >>> ones, twos = (Dataset.from_tensors(i).repeat(5) for i in (1, 2))
          >>> sorted(x.item() for x in Dataset.sample_from_datasets([ones, twos]))
          [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
        """
        nodes = tuple(_node_of(one, "sample_from_datasets") for one in datasets)
        if weights is not None and len(weights) != len(nodes):
            raise InputError(
                "sample_from_datasets: expected one weight for each dataset, got "
                f"{len(nodes)} datasets and {len(weights)} weights."
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

        Args:
          datasets: Datasets of the same structure and dtypes.
          choice_dataset: A dataset of int scalars from 0 to `len(datasets) - 1`.
          stop_on_empty_dataset: Whether to end as soon as a chosen dataset has ended.
            False skips such choices.

        Returns:
          A dataset of the chosen elements. It ends with `choice_dataset` at the latest.

        Raises:
          InputError: An item is not a `Dataset`. While reading: a choice is out of
            range.

        Example:
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

    # Selecting and ordering elements

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Dataset:
        """Permute the elements of every window of `buffer_size` elements.

        Put it before `repeat` and `batch`. A buffer as large as the data gives a
        uniform permutation. As in tf.data, output position p only holds input elements
        with index < p + buffer_size; unlike there, an element stays within its window.
        The order depends only on the seed, the epoch and the window, so a position is a
        few numbers and resuming reads at most one window again.

        Args:
          buffer_size: Number of elements in a window, which is kept in memory.
          seed: Seed of the order. None takes the seed of the iterator: in training
            `RunConfig.tf_random_seed`, otherwise a random one.
          reshuffle_each_iteration: Whether every epoch and every pass has a new order,
            which is the default. False gives one order for all epochs, iterators and
            processes, even without a seed.

        Returns:
          A dataset of the same elements in another order.

        Raises:
          InputError: `buffer_size` is below 1.

        Example:
          >>> data = Dataset.range(6).shuffle(6, seed=1)
          >>> sorted(int(x) for x in data)
          [0, 1, 2, 3, 4, 5]
          >>> fixed = Dataset.range(6).shuffle(6, reshuffle_each_iteration=False)
          >>> list(fixed) == list(fixed)
          True
        """
        reshuffle = reshuffle_each_iteration is not False
        return Dataset(WindowShuffle(self.node, buffer_size, seed, reshuffle))

    def repeat(self, count: int | None = None) -> Dataset:
        """Read the data `count` times.

        Put it after `shuffle`, so that every epoch has its own order and epochs are not
        mixed.

        Args:
          count: Number of epochs. None or -1 repeats without end.

        Returns:
          A dataset of `count` epochs.

        Raises:
          InputError: `count` is below -1.

        Example:
          >>> [b.tolist() for b in Dataset.range(3).batch(2).repeat(2)]
          [[0, 1], [2], [0, 1], [2]]
        """
        return Dataset(Repeat(self.node, count))

    def take(self, count: int) -> Dataset:
        """Keep the first `count` elements.

        Args:
          count: Number of elements. -1 keeps all.

        Returns:
          A dataset of at most `count` elements.

        Raises:
          InputError: `count` is below -1.

        Example:
          >>> [int(x) for x in Dataset.range(9).take(2)]
          [0, 1]
        """
        return Dataset(Take(self.node, count))

    def skip(self, count: int) -> Dataset:
        """Drop the first `count` elements.

        Args:
          count: Number of elements. -1 drops all.

        Returns:
          A dataset of the remaining elements.

        Raises:
          InputError: `count` is below -1.

        Example:
          >>> [int(x) for x in Dataset.range(5).skip(3)]
          [3, 4]
        """
        return Dataset(Skip(self.node, count))

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements before the first one for which `predicate` is false.

        Args:
          predicate: A function that is called with each element and returns a bool. A
            tuple element is passed as several arguments.

        Returns:
          A dataset that ends before that element.

        Example:
          >>> list(Dataset.range(7).take_while(lambda x: x < 3).batch(9))
          [array([0, 1, 2])]
        """
        return Dataset(TakeWhile(self.node, predicate))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep elements `index`, `index + num_shards`, `index + 2 * num_shards`, ….

        Put it before `shuffle`, so that all processes divide the same order.
        `auto_shard` finds the right place by itself.

        Args:
          num_shards: Number of shards.
          index: Number of this shard, from 0.

        Returns:
          A dataset of one shard.

        Raises:
          InputError: `num_shards` is below 1, or `index` is not in [0, num_shards).

        Example:
          >>> [int(x) for x in Dataset.range(7).shard(3, 1)]
          [1, 4]
        """
        return Dataset(Shard(self.node, num_shards, index))

    def auto_shard(self, num_shards: int, index: int) -> Dataset:
        """Keep the part of the input that belongs to one of several processes.

        In an epoch every example goes to exactly one process. Files are divided if
        there are at least as many files as processes, otherwise records. The division
        happens before `shuffle`, `repeat` and `batch`, wherever this method is called.
        `Options.experimental_distribute.auto_shard_policy` can require one of the two.

        Args:
          num_shards: Number of processes.
          index: Number of this process, from 0.

        Returns:
          A dataset of this process's part.

        Raises:
          InputError: `index` is not in [0, num_shards), or the policy is FILE and there
            are fewer files than processes.

        Example:
          >>> parts = [Dataset.range(5).batch(2).auto_shard(2, i) for i in range(2)]
          >>> [[batch.tolist() for batch in part] for part in parts]
          [[[0, 2], [4]], [[1, 3]]]
        """
        policy = self.options().experimental_distribute.auto_shard_policy
        return Dataset(sharding.shard_of_process(self.node, num_shards, index, policy))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements for which `predicate` is true.

        Before `batch` this is a Python call for every row; `filter_blocks` is much
        faster there.

        Args:
          predicate: A function that is called with one element and returns a bool. A
            tuple element is passed as several arguments.

        Returns:
          A dataset of the kept elements.

        Example:
          >>> [int(x) for x in Dataset.range(6).filter(lambda x: x % 2 == 1)]
          [1, 3, 5]
        """
        return Dataset(Filter(self.node, predicate))

    def filter_blocks(self, mask: Callable[..., Any]) -> Dataset:
        """Keep the rows that a vectorised function selects.

        Use it before `batch`, in place of `filter`.

        Args:
          mask: A function that is called with a block of rows (a structure of columns)
            and returns a bool array with one value for each row.

        Returns:
          A dataset of the kept rows.

        Raises:
          InputError: While reading: elements are not rows, or `mask` returns something
            else than a bool array of that length.

        Example:
          >>> list(Dataset.range(10).filter_blocks(lambda x: x % 3 == 0).batch(9))
          [array([0, 3, 6, 9])]
        """
        return Dataset(Filter(self.node, mask, blocks=True))

    def unique(self) -> Dataset:
        """Keep the first element of each distinct value.

        All distinct values are kept in memory and in saved positions.

        Returns:
          A dataset without duplicates.

        Raises:
          InputError: While reading: an element is not a single number or string.

        Example:
          >>> list(Dataset.from_tensor_slices([1, 2, 1, 3]).unique().batch(9))
          [array([1, 2, 3])]
        """
        return Dataset(Unique(self.node))

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Append another dataset.

        Args:
          dataset: A dataset of the same structure and dtypes.

        Returns:
          A dataset of the elements of this dataset, then of the elements of `dataset`.

        Raises:
          InputError: `dataset` is not a `Dataset`. While reading: its elements have
            another structure or other dtypes.

        Example:
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
        """Drop elements at random, so that classes come in given proportions.

        Use it to balance classes. Elements are never repeated, so a rare class makes
        the dataset smaller.

        Args:
          class_func: A function that is called with an element and returns its class,
            an int from 0.
          target_dist: Wanted share of each class.
          initial_dist: Share of each class in the data. None estimates it while
            reading.
          seed: Seed of the random choice. None takes the seed of the iterator.

        Returns:
          A dataset of `(class, element)` pairs.

        Raises:
          InputError: The two distributions differ in length, or a share in
            `initial_dist` is not above 0.

        Example:
          >>> data = Dataset.range(1000).rejection_resample(
          ...     lambda x: x % 10 == 0, [0.5, 0.5], [0.9, 0.1], seed=1)
          >>> classes = [int(number) for number, _ in data]
          >>> 0.4 < sum(classes) / len(classes) < 0.6
          True
        """
        initial = None if initial_dist is None else tuple(initial_dist)
        return Dataset(
            Resample(self.node, class_func, tuple(target_dist), initial, seed)
        )

    # Batching and transforming elements

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stack `batch_size` elements into one.

        Args:
          batch_size: Number of elements in a batch.
          drop_remainder: Whether to drop the last batch if it is smaller.

        Returns:
          A dataset of batches: arrays get a new first dimension.

        Raises:
          InputError: `batch_size` is below 1. While reading: elements have different
            shapes; use `padded_batch` for those.

        Example:
          >>> [batch.tolist() for batch in Dataset.range(5).batch(2)]
          [[0, 1], [2, 3], [4]]
        """
        return Dataset(StackedBatch(self.node, batch_size, drop_remainder))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Dataset:
        """Stack elements of different shapes, padded to the longest of the batch.

        Args:
          batch_size: Number of elements in a batch.
          padded_shapes: Sizes to pad to. A shape is a list or tuple in which None or -1
            stands for the longest of the batch. Pass one shape, or the structure of the
            elements with a shape in place of each value. None pads all dimensions to
            the longest.
          padding_values: One value for all, or the structure of the elements with a
            value in place of each. It must have the dtype of the column. The default is
            0, and the empty string for text.
          drop_remainder: Whether to drop the last batch if it is smaller.

        Returns:
          A dataset of batches.

        Raises:
          InputError: `batch_size` is below 1. While reading: an element is larger than
            its padded shape or has another rank, a padding value has another dtype, or
            a column is sparse or ragged (these need no padding).

        Example:
          >>> data = Dataset.from_generator(lambda: ([1] * n for n in (1, 3)))
          >>> list(data.map(np.array).padded_batch(2, padding_values=-1))[0].tolist()
          [[1, -1, -1], [1, 1, 1]]
        """
        return Dataset(
            PaddedBatch(
                self.node, batch_size, padded_shapes, padding_values, drop_remainder
            )
        )

    def rebatch(
        self, batch_size: int | Sequence[int], drop_remainder: bool = False
    ) -> Dataset:
        """Cut batches into batches of another size, as `unbatch().batch(batch_size)`.

        Args:
          batch_size: Number of rows in a batch, or several numbers that are used in
            turn.
          drop_remainder: Whether to drop a last batch that is not full.

        Returns:
          A dataset of batches.

        Raises:
          InputError: A size is below 1, or the list is empty.

        Example:
          >>> data = Dataset.range(8).batch(4).rebatch([3, 1])
          >>> [batch.tolist() for batch in data]
          [[0, 1, 2], [3], [4, 5, 6], [7]]
        """
        one = isinstance(batch_size, int | np.integer)
        sizes: Any = [batch_size] if one else batch_size
        return Dataset(Rebatch(self.node, tuple(map(int, sizes)), drop_remainder))

    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: Any = "int64",
    ) -> Dataset:
        """Combine elements whose arrays have different lengths into ragged batches.

        Use it in place of `padded_batch` for models that take ragged rows. Values
        without axes are stacked, as by `batch`, and so are rows of a source, which
        have one shape. Any other array becomes a row of a `Ragged`, also if all of
        them have the same length.

        Args:
          batch_size: Number of elements in a batch.
          drop_remainder: Whether to drop a last batch that is not full.
          row_splits_dtype: dtype of the offsets of the rows, int64 or int32.

        Returns:
          A dataset of batches.

        Raises:
          InputError: An argument is not possible. While reading: arrays differ in
            another dimension than the first.

        Example:
          >>> data = Dataset.range(3).map(lambda n: np.arange(int(n)))
          >>> next(iter(data.ragged_batch(3))).tolist()
          [[], [0], [0, 1]]
        """
        dtype = np.dtype(row_splits_dtype).name
        return Dataset(RaggedBatch(self.node, batch_size, drop_remainder, dtype))

    def sparse_batch(self, batch_size: int, row_shape: Sequence[int | None]) -> Dataset:
        """Combine arrays of different shapes into sparse batches.

        Every value is kept, zeros included.

        Args:
          batch_size: Number of elements in a batch. The last one may be smaller.
          row_shape: The shape that holds every element; None for a dimension that is
            as large as the largest of each batch.

        Returns:
          A dataset of `Sparse` with dense_shape `[batch_size, *row_shape]`.

        Raises:
          InputError: `batch_size` is below 1. While reading: an element is not a
            single array, or does not fit into `row_shape`.

        Example:
          >>> data = Dataset.range(3).map(lambda n: np.arange(int(n)))
          >>> batch = next(iter(data.sparse_batch(3, [4])))
          >>> batch.indices.tolist(), batch.values.tolist(), batch.dense_shape
          ([[1, 0], [2, 0], [2, 1]], [0, 0, 1], (3, 4))
        """
        return Dataset(SparseBatch(self.node, batch_size, tuple(row_shape)))

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
        """Make padded batches of elements of similar length.

        Use it for sequences: batches need less padding, and with
        `pad_to_bucket_boundary` only one shape per bucket is compiled. Boundaries
        b0, b1, … make the buckets [0, b0), [b0, b1), …, [last, ∞). A batch is returned
        when its bucket is full; incomplete batches are returned at the end.

        Args:
          element_length_func: A function that is called with an element and returns
            its length.
          bucket_boundaries: Increasing lengths at which a new bucket begins.
          bucket_batch_sizes: Batch size of each bucket, one more than boundaries.
          padded_shapes: As in `padded_batch`.
          padding_values: As in `padded_batch`.
          pad_to_bucket_boundary: Whether to pad to the boundary of the bucket minus 1
            instead of the longest of the batch.
          no_padding: Whether to stack without padding, for sparse or ragged columns.
          drop_remainder: Whether to drop incomplete batches at the end.

        Returns:
          A dataset of batches.

        Raises:
          InputError: The number of batch sizes is not the number of boundaries plus 1,
            or boundaries do not increase. While reading: with `pad_to_bucket_boundary`,
            an element is not shorter than the last boundary.

        Example:
          >>> data = Dataset.from_generator(lambda: ([1] * n for n in (1, 5, 2, 6)))
          >>> batches = data.map(np.array).bucket_by_sequence_length(len, [4], [2, 2])
          >>> [batch.shape for batch in batches]
          [(2, 2), (2, 6)]
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

        Returns:
          A dataset of rows.

        Raises:
          InputError: While reading: an element is a scalar, or its arrays differ in
            their first dimension.

        Example:
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
        """Group consecutive elements into datasets of `size` elements.

        Use it for time series. Follow it with `flat_map` to make batches of windows.

        Args:
          size: Number of elements in a window.
          shift: Distance between the starts of two windows. None means `size`, so that
            windows do not overlap.
          stride: Distance between two elements of a window.
          drop_remainder: Whether to drop windows with fewer than `size` elements.

        Returns:
          A dataset whose elements are datasets; for dict elements, dicts of datasets.

        Raises:
          InputError: `size`, `shift` or `stride` is below 1.

        Example:
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
        """Collect elements by key, and replace each full group by a dataset of it.

        Use it to batch elements that belong together. Incomplete groups are returned at
        the end.

        Args:
          key_func: A function that is called with an element and returns its key, an
            int.
          reduce_func: A function that is called with a key and the dataset of one
            group, and returns a dataset; often `lambda key, rows: rows.batch(n)`.
          window_size: Number of elements in a full group.
          window_size_func: A function from key to that number, in place of
            `window_size`.

        Returns:
          A dataset of the elements of all returned datasets.

        Raises:
          InputError: Not exactly one of `window_size` and `window_size_func` is given.
            While reading: `reduce_func` does not return a `Dataset`, or a window size
            is below 1.

        Example:
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
        """Number the elements.

        Args:
          start: The first number.

        Returns:
          A dataset of `(number, element)` pairs.

        Raises:
          InputError: `start` is negative.

        Example:
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
        """Apply a function to every element.

        After `batch` it is called once for each batch. Before `batch`, a function that
        consists of `decode_csv`, `parse_single_example`, NumPy and methods of bytes is
        called once for a block of rows, after the results of both ways were compared
        for the first rows. Any other function, such as one with `if x > 0`, random
        numbers or `print`, is called in Python for every row; the guide to input has
        the exact rule. `map_blocks` handles thousands of rows with one call.

        Args:
          map_func: A function that is called with an element and returns a new one. A
            tuple element is passed as several arguments; a returned list becomes a
            tuple.
          num_parallel_calls: Number of threads. None calls the function in the reading
            thread; `AUTOTUNE` uses one thread for each core, at most 8. Threads help if
            the function waits (files) or leaves Python (NumPy).
          deterministic: No effect: results always come in the order of the input.

        Returns:
          A dataset of the results.

        Raises:
          InputError: `num_parallel_calls` is below 1 and not `AUTOTUNE`.

        Example:
          >>> data = Dataset.range(4).batch(2).map(lambda x: x * 10)
          >>> [batch.tolist() for batch in data]
          [[0, 10], [20, 30]]
        """
        if num_parallel_calls is None:
            return Dataset(Map(self.node, map_func))
        function = row_function_of(self.node, map_func)
        threads = self._threads(num_parallel_calls)
        at_once = function.at_once if self.node.columnar else 1
        return Dataset(ParallelMap(self.node, function, threads, at_once, False))

    def map_blocks(
        self,
        map_func: Callable[..., Structure],
        num_parallel_calls: int | None = None,
    ) -> Dataset:
        """Apply a vectorised function to blocks of rows.

        Use it before `batch`. The number of rows in a block varies from call to call,
        so the result for a row must not depend on the other rows.

        Args:
          map_func: A function that is called with a structure of columns and returns
            one with as many rows. A tuple is passed as several arguments.
          num_parallel_calls: Number of threads; see `map`.

        Returns:
          A dataset of the resulting rows.

        Raises:
          InputError: `num_parallel_calls` is below 1 and not `AUTOTUNE`. While reading:
            `map_func` returns another number of rows.

        Example:
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
        """Make a dataset of each element, and read several of them in turn.

        Use it with `list_files` to mix many files.

        Args:
          map_func: A function that is called with an element and returns a dataset.
          cycle_length: Number of datasets open at the same time. None or `AUTOTUNE`
            is 8, whatever the number of cores, so that the order is the same on every
            machine.
          block_length: Number of elements to take from each in turn. None or
            `AUTOTUNE` is 1.
          num_parallel_calls: Number of threads that read ahead, at most
            `cycle_length`; see `map`. The order does not depend on it.
          deterministic: No effect: the order is always the same.

        Returns:
          A dataset of the elements of all datasets.

        Raises:
          InputError: `cycle_length` or `block_length` is below 1, or
            `num_parallel_calls` is greater than `cycle_length`. While reading:
            `map_func` does not return a `Dataset`.

        Example:
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
        """Make a dataset of each element, and read them one after the other.

        Args:
          map_func: A function that is called with an element and returns a dataset.

        Returns:
          A dataset of the elements of all datasets.

        Raises:
          InputError: While reading: `map_func` does not return a `Dataset`.

        Example:
          >>> list(Dataset.range(4).flat_map(Dataset.range).batch(9))
          [array([0, 0, 1, 0, 1, 2])]
        """
        # With one slot the block length does not change the order; long is faster.
        return Dataset(Interleave(self.node, map_func, 1, 1 << 40, name="flat_map"))

    def scan(
        self, initial_state: Structure, scan_func: Callable[[Any, Any], Any]
    ) -> Dataset:
        """Apply a function that carries a state from element to element.

        Args:
          initial_state: The state for the first element: numbers, arrays and text, or
            a structure of them. Saved positions contain the state.
          scan_func: A function that is called with the state and an element and returns
            `(new state, output)`.

        Returns:
          A dataset of the outputs.

        Raises:
          InputError: While reading: `scan_func` does not return a pair.

        Example:
          >>> [int(x) for x in Dataset.range(4).scan(0, lambda s, x: (s + x, s + x))]
          [0, 1, 3, 6]
        """
        return Dataset(Scan(self.node, initial_state, scan_func))

    def with_label(self, name: str | Mapping[str, str]) -> Dataset:
        """Split dict elements into `(features, label)`, as estimators expect them.

        Args:
          name: Key of the label. For several heads, a dict from the name of each head
            to the key of its label.

        Returns:
          A dataset of pairs: the dict without that key, and its value. For several
          heads the second is a dict by name of the head.

        Raises:
          InputError: While reading: elements are not dicts, or have no key `name`.

        Example:
          >>> rows = {"x": np.arange(2), "y": np.arange(2)}
          >>> data = Dataset.from_tensor_slices(rows).with_label("y")
          >>> next(iter(data.batch(2)))
          ({'x': array([0, 1])}, array([0, 1]))
        """
        split = label_splitter(name)
        return Dataset(MapBlocks(self.node, split, "with_label", is_ours=True))

    def apply(self, transformation_func: Callable[[Dataset], Any]) -> Any:
        """Call a function with this dataset, so that it can be part of a method chain.

        Args:
          transformation_func: A function from a dataset to a dataset, such as those in
            `estimax.input.experimental`.

        Returns:
          The result of `transformation_func(self)`.

        Example:
          >>> list(Dataset.range(4).apply(lambda data: data.take(1)).batch(2))
          [array([0])]
        """
        return transformation_func(self)

    # Performance and errors

    def cache(self, filename: PathLike = "") -> Dataset:
        """Keep the elements of the first complete pass and reuse them afterwards.

        Put it after slow verbs and before `shuffle`: verbs before the cache
        run once, so a shuffle before it has the same order in every epoch.

        Args:
          filename: Prefix of the cache files. Later runs with the same prefix read the
            files instead of the data, even if the data has changed. The default keeps
            the elements in memory, shared by all iterators of this dataset.

        Returns:
          A dataset of the same elements.

        Raises:
          InputError: While reading: a chunk of a cache file does not match its
            checksum. The message names the files to delete.

        Example:
          >>> calls = []
          >>> data = Dataset.range(3).map(lambda x: calls.append(x) or x).cache()
          >>> len(list(data.repeat(5))), len(calls)
          (15, 3)
        """
        prefix = os.fspath(filename)
        return Dataset(Cache(self.node, CacheFile(prefix) if prefix else Memory()))

    def snapshot(
        self,
        path: PathLike,
        compression: str | None = "AUTO",
        reader_func: None = None,
        shard_func: None = None,
    ) -> Dataset:
        """Keep the elements in a folder, which later runs read instead of the source.

        Use it behind slow parsing, to do it once for many runs. The first complete
        pass writes the folder; a run that is stopped before leaves nothing behind.
        What is before `snapshot`, such as a shuffle, is frozen.

        Args:
          path: The folder. Delete it if the source has changed.
          compression: "AUTO", "NONE" or None: files are not compressed.
          reader_func: Not supported.
          shard_func: Not supported.

        Returns:
          A dataset of the same elements.

        Raises:
          InputError: An argument is not supported. While reading: a checksum is wrong.

        Example:
          >>> import tempfile
          >>> calls = []
          >>> data = Dataset.range(3).map(lambda x: calls.append(x) or x)
          >>> data = data.snapshot(f"{tempfile.mkdtemp()}/parsed")
          >>> len(list(data)), len(list(data)), len(calls)
          (3, 3, 3)
        """
        _check_unused("snapshot", compression, [reader_func, shard_func])
        prefix = os.path.join(os.fspath(path), "elements")
        return Dataset(Cache(self.node, CacheFile(prefix), "snapshot"))

    def save(
        self,
        path: PathLike,
        compression: str | None = None,
        shard_func: None = None,
        checkpoint_args: None = None,
    ) -> None:
        """Read all elements and write them to a folder, for `Dataset.load`.

        The folder appears when it is complete, and replaces an earlier one of the same
        name. It has checksums and contains data only, no code.

        Args:
          path: The folder.
          compression: None or "NONE": files are not compressed.
          shard_func: Not supported.
          checkpoint_args: Not supported, nor needed: a write that was interrupted
            leaves nothing behind.

        Raises:
          InputError: The dataset has no end, an argument is not supported, or the
            folder exists and is something else.

        Example:
          >>> import tempfile
          >>> path = f"{tempfile.mkdtemp()}/numbers"
          >>> Dataset.range(3).save(path)
          >>> list(Dataset.load(path).batch(3))
          [array([0, 1, 2])]
        """
        _check_unused("save", compression, [shard_func, checkpoint_args])
        if self.cardinality() == sharding.INFINITE:
            raise InputError("save: the dataset has no end. Put take(n) before save().")
        cache_files.save(_chunks_of(self.node, next(self._passes)), os.fspath(path))

    @staticmethod
    def load(
        path: PathLike,
        element_spec: Structure = None,
        compression: str | None = None,
        reader_func: None = None,
    ) -> Dataset:
        """Make a dataset of the elements that `save` wrote.

        Args:
          path: The folder.
          element_spec: No effect: the files contain the dtypes and shapes.
          compression: None or "NONE": files are not compressed.
          reader_func: Not supported.

        Returns:
          A dataset of the same elements in the same order.

        Raises:
          MissingFileError: The folder is not a saved dataset.
          InputError: An argument is not supported. While reading: a checksum is wrong.

        Example:
          >>> import tempfile
          >>> path = f"{tempfile.mkdtemp()}/words"
          >>> Dataset.from_tensor_slices({"w": ["a", "b"]}).save(path)
          >>> next(iter(Dataset.load(path)))
          {'w': b'a'}
        """
        _check_unused("load", compression, [reader_func])
        return Dataset(cache_files.Saved(os.fspath(path)))

    def prefetch(self, buffer_size: int = AUTOTUNE) -> Dataset:
        """Read elements ahead in a thread, while the consumer is busy.

        Put it last. Training always prefetches the next batches to the device; this
        adds a larger buffer, for input whose speed varies.

        Args:
          buffer_size: Number of elements to read ahead: batches, if it comes after
            `batch`. `AUTOTUNE` is 2; 0 changes nothing.

        Returns:
          A dataset of the same elements.

        Example:
          >>> [batch.tolist() for batch in Dataset.range(4).batch(2).prefetch(1)]
          [[0, 1], [2, 3]]
        """
        if buffer_size == 0:
            return self
        return Dataset(Prefetch(self.node, 2 if buffer_size < 0 else buffer_size))

    def ignore_errors(
        self,
        log_warning: bool = False,
        *,
        max_errors: int | None = None,
        max_fraction: float | None = None,
    ) -> Dataset:
        """Skip elements whose reading or mapping raises an error.

        Put it directly after the verb that fails. `DatasetIterator.ignored_errors`
        counts the errors, and their number is logged at the end of the data.

        The limits hold for each pass: `repeat` after this verb starts a new count with
        every epoch, because the bad rows of the files come again. The count is part of
        the position of the iterator, so a run that resumes has the count that it would
        have without the interruption and fails at the same row; it may resume with
        another limit. Each process of a cluster counts the rows that it reads.

        Args:
          log_warning: Whether to log every error as a warning instead of a debug
            message.
          max_errors: How many errors may be skipped in a pass; None for any number. A
            bad row counts as one error, and so does a damaged TFRecord file or row
            group of a Parquet file, however many rows are lost with it.
          max_fraction: The largest share of elements that may be skipped in a pass,
            from 0 to 1; None for any. It is compared after each error from the 1,000th
            element on, and at the end of the pass.

        Returns:
          A dataset of the elements that could be made.

        Raises:
          InputError: `max_errors` is negative, or `max_fraction` not between 0 and 1.
          TooManyErrorsError: While reading: more was skipped than a limit allows. The
            message has the number, and the last error with its file and line.

        Example:
          >>> data = Dataset.range(4).map(lambda x: 6 // x if x else int("none"))
          >>> iterator = iter(data.ignore_errors())
          >>> list(iterator), iterator.ignored_errors
          ([np.int64(6), np.int64(3), np.int64(2)], 1)
        """
        if max_errors is not None:
            check_at_least(0, max_errors, "ignore_errors: max_errors")
        if max_fraction is not None and not 0 <= max_fraction <= 1:
            raise InputError(
                f"ignore_errors: max_fraction must be from 0 to 1, got {max_fraction}."
            )
        return Dataset(IgnoreErrors(self.node, log_warning, max_errors, max_fraction))

    def with_options(self, options: Options) -> Dataset:
        """Attach tf.data's options; see `Options` for those that have an effect.

        Args:
          options: The options. They replace options attached before.

        Returns:
          A dataset of the same elements.

        Example:
          >>> options = Options(deterministic=True)
          >>> Dataset.range(2).with_options(options).options().deterministic
          True
        """
        return Dataset(WithOptions(self.node, options))

    def options(self) -> Options:
        """Return the options that were attached last, or the defaults.

        Returns:
          The `Options` of this dataset.

        Example:
          >>> Dataset.range(2).options().experimental_distribute.auto_shard_policy.name
          'AUTO'
        """
        return options_of(self.node) or Options()

    def _threads(self, wanted: int) -> int:
        """Return the number of threads that `num_parallel_calls` stands for."""
        if wanted != AUTOTUNE:
            return wanted
        size = self.options().threading.private_threadpool_size
        return int(size) if size else min(8, os.cpu_count() or 1)

    # Inspecting

    def cardinality(self) -> int:
        """Return the number of elements if it is known without reading data.

        Returns:
          The number of elements; -1 (`experimental.INFINITE_CARDINALITY`) if the
          dataset does not end; -2 (`experimental.UNKNOWN_CARDINALITY`) if the number is
          unknown, as for files and after `filter`.

        Example:
          >>> Dataset.range(10).repeat(2).batch(3).cardinality()
          7
        """
        return sharding.cardinality_of(self.node)

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            what = "infinite" if count == sharding.INFINITE else "unknown"
            verbs = " > ".join(verbs_of(self.node))
            raise TypeError(f"the number of elements of <Dataset {verbs}> is {what}.")
        return count

    def __bool__(self) -> bool:
        return True  # `if dataset:` must not call __len__, which may raise

    @property
    def element_spec(self) -> Structure:
        """The dtypes and shapes of the elements, as a structure of `TensorSpec`.

        It is found by reading the first element: files are opened, and functions are
        called. After `batch` the first size is None.

        Raises:
          InputError: The dataset has no elements.

        Example:
          >>> Dataset.from_tensor_slices({"x": np.zeros((3, 2))}).batch(2).element_spec
          {'x': TensorSpec(shape=(None, 2), dtype='float64')}
        """
        return element_spec_of(self.node)

    def fingerprint(self) -> str:
        """Return a digest that tells whether a dataset and its data are the same.

        Use it to key caches or to compare runs. It covers the names of the verbs,
        the names (without folders), sizes and samples of local files, and samples of
        arrays in memory. It does not cover arguments of verbs, user functions,
        generators, and the contents of remote files. Up to 192 KiB of every local file
        are read: its first, middle and last 64 KiB.

        Returns:
          32 hexadecimal digits, the same in every process.

        Example:
          >>> data, more = (Dataset.from_tensor_slices(np.arange(n)) for n in (5, 6))
          >>> data.fingerprint() == more.fingerprint()
          False
        """
        return fingerprints.fingerprint(self.node)

    def profile(self, elements: int = 100, seconds: float = 10.0) -> profiling.Profile:
        """Read part of a pass and measure the time of every stage.

        Use it to find out what makes the input slow. `print` it for a table.

        Args:
          elements: Number of elements after which to stop.
          seconds: Time after which to stop, in seconds, if it is reached first.

        Returns:
          A `Profile` with one `Stage` for the source and each verb.

        Example:
          >>> Dataset.range(100).map(lambda x: sum(range(9999))).profile().slowest
          'map'
        """
        return profiling.profile(self.node, elements, seconds)

    # Iterating

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Read all elements and combine them into one value.

        Args:
          initial_state: The state before the first element.
          reduce_func: A function that is called with the state and an element and
            returns the next state.

        Returns:
          The last state.

        Example:
          >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
          10
        """
        state = initial_state
        with self.iterator() as iterator:
            for element in iterator:
                state = reduce_func(state, element)
        return state

    def get_single_element(self) -> Structure:
        """Return the only element of a dataset.

        Use it to run a pipeline for one batch, for example in a test.

        Returns:
          The element.

        Raises:
          InputError: The dataset has no element, or more than one.

        Example:
          >>> Dataset.range(3).batch(3).get_single_element()
          array([0, 1, 2])
        """
        with self.iterator() as iterator:
            found = list(itertools.islice(iterator, 2))
        if len(found) != 1:
            what = "more than one element" if found else "no element"
            raise InputError(
                f"get_single_element: the dataset has {what}; expected exactly one."
            )
        return found[0]

    def as_numpy_iterator(self) -> Iterator[Structure]:
        """Iterate over the elements with text as NumPy arrays of bytes.

        Use it where other libraries take the elements and do not know `Strings`.

        Returns:
          An iterator over one pass.

        Example:
          >>> data = Dataset.from_tensor_slices(["a", "b"]).batch(2)
          >>> next(data.as_numpy_iterator())
          array([b'a', b'b'], dtype=object)
        """
        return (to_numpy(element) for element in self)

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, *, seed: int | None = None) -> DatasetIterator:
        """Start a pass over the data.

        Use it in place of `iter` to choose the seed, or to close the iterator with
        `with`.

        Args:
          seed: Seed of the verbs that were given none, such as `shuffle`. None
            draws one, which saved positions contain.

        Returns:
          An iterator with `get_state` and `set_state`.

        Example:
          >>> data = Dataset.range(9).shuffle(9)
          >>> list(data.iterator(seed=1)) == list(data.iterator(seed=2))
          False
        """
        return DatasetIterator(self.node, seed, next(self._passes))

    def __repr__(self) -> str:
        return display.dataset_repr(self.node)

    def _repr_html_(self) -> str:
        """Return the `repr` and the first rows, read without shuffling or caching."""
        return display.dataset_html(self.node)


def label_splitter(name: str | Mapping[str, str]) -> Callable[..., Structure]:
    """Return a function for `map_blocks` that splits off a column as the label."""
    names = {"": name} if isinstance(name, str) else dict(name)
    keys = set(names.values())

    def split(rows: Structure) -> Structure:
        if not isinstance(rows, Mapping):
            raise InputError(
                f"with_label({name!r}) needs dict elements, got {describe(rows)}."
            )
        for key in keys:
            if key not in rows:
                raise InputError(
                    f"with_label: there is no column {key!r}{did_you_mean(key, rows)}"
                )
        labels = {head: rows[key] for head, key in names.items()}
        features = {key: rows[key] for key in rows if key not in keys}
        return features, labels[""] if isinstance(name, str) else labels

    # A tuple element arrives as several arguments; put together again, the error
    # message of `split` can describe it.
    return lambda *rows: split(rows[0] if len(rows) == 1 else rows)


def _check_unused(verb: str, compression: str | None, unused: list[Any]) -> None:
    """Raise `InputError` for arguments of tf.data that are not supported."""
    if compression not in (None, "", "NONE", "AUTO"):
        raise InputError(
            f"{verb}: compression={compression!r} is not supported; the files are not "
            "compressed. Leave it out."
        )
    if any(value is not None for value in unused):
        raise InputError(
            f"{verb}: functions that divide or read the files are not supported. Use "
            "shard(), shuffle() or interleave() on the dataset."
        )


def _chunks_of(node: DatasetNode, number: int) -> Iterator[Chunk]:
    """Yield the elements of one pass, many rows or one batch at a time."""
    stream = node.open(Context(secrets.randbits(63), (number,)))
    try:
        while (chunk := stream.read(elements_at_once(node))) is not None:
            yield chunk
    finally:
        stream.close()


def _node_of(dataset: Any, verb: str) -> DatasetNode:
    """Return the node of a dataset; raise `InputError` for anything else."""
    if not is_dataset(dataset):
        raise InputError(f"{verb}: expected a Dataset, got {type(dataset).__name__}.")
    node: DatasetNode = dataset.node
    return node
