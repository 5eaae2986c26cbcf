"""Dataset: tf.data's verbs over columns, with positions that resume exactly.

    data = csv_files("train-*.csv").with_label("income")
    data = data.shuffle(100_000, seed=7).repeat().batch(1024).prefetch(2)
    for features, label in data: ...

Elements are examples as in tf.data, but travel as blocks of columns: put `batch` late,
`map` behind it, and work on unbatched rows with `map_blocks`. A dataset is a
description: every `iter` starts a new pass, and its iterator knows its position.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from estimax.core.errors import InputError, did_you_mean
from estimax.input.arrays import slices_of
from estimax.input.batching import Batch, Filter, Map, MapBlocks
from estimax.input.ordering import Repeat, Shard, Skip, Take
from estimax.input.positions import Resume
from estimax.input.prefetching import Prefetch
from estimax.input.shuffle import Shuffle
from estimax.input.sources import Batches, Generated
from estimax.input.stream import Context, Node, State, verbs_of
from estimax.input.structure import Structure, describe

AUTOTUNE = -1


class Dataset:
    """A re-iterable description of input; see the verbs for what it can do.

    >>> data = Dataset.from_tensor_slices({"x": np.arange(5)}).repeat(2).batch(4)
    >>> [batch["x"].tolist() for batch in data]
    [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        # Numbers the passes, so that a seeded shuffle differs from pass to pass.
        self._passes = itertools.count()

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
    def range(*args: int) -> Dataset:
        """Count, as the builtin `range` does, in int64.

        >>> list(Dataset.range(2, 8, 3).batch(9))
        [array([2, 5])]
        """
        return Dataset(slices_of(np.arange(*args, dtype=np.int64)))

    @staticmethod
    def from_generator(generator: Callable[[], Iterable[Structure]]) -> Dataset:
        """Take elements one by one from what `generator()` returns, called each pass.

        Its position is a count: resuming runs the generator up to there again.

        >>> list(Dataset.from_generator(lambda: iter([1, 2, 3])).batch(2))
        [array([1, 2]), array([3])]
        """
        return Dataset(Generated(generator))

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
        return Dataset(Shuffle(self._node, buffer_size, seed, reshuffle))

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through the data `count` times; None or -1 is for ever.

        >>> [b.tolist() for b in Dataset.range(3).batch(2).repeat(2)]
        [[0, 1], [2], [0, 1], [2]]
        """
        return Dataset(Repeat(self._node, count))

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stack elements; the last batch may be short unless dropped."""
        return Dataset(Batch(self._node, batch_size, drop_remainder))

    def map(self, fn: Callable[..., Structure]) -> Dataset:
        """Call `fn` with every element: with batches, if placed after `batch`.

        A tuple is spread over the arguments. Before `batch` this is a Python call for
        every example; `map_blocks` does the same for thousands of rows at once.
        """
        return Dataset(Map(self._node, fn))

    def map_blocks(self, fn: Callable[..., Structure]) -> Dataset:
        """Call `fn` with blocks of rows (a structure of columns), of any length.

        `fn` must treat rows alike and return as many as it got.

        >>> data = Dataset.from_tensor_slices({"x": np.arange(3)})
        >>> list(data.map_blocks(lambda rows: {"y": rows["x"] * 2}).batch(3))
        [{'y': array([0, 2, 4])}]
        """
        return Dataset(MapBlocks(self._node, fn))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keep the elements for which `predicate` is true, called with one each."""
        return Dataset(Filter(self._node, predicate))

    def filter_blocks(self, mask: Callable[..., Any]) -> Dataset:
        """Keep the rows for which `mask`, called with a block, returns true.

        >>> list(Dataset.range(10).filter_blocks(lambda x: x % 3 == 0).batch(9))
        [array([0, 3, 6, 9])]
        """
        return Dataset(Filter(self._node, mask, blocks=True))

    def with_label(self, name: str) -> Dataset:
        """Turn dict elements into `(the other features, element[name])`.

        >>> data = Dataset.from_tensor_slices({"x": np.arange(2), "y": np.arange(2)})
        >>> next(iter(data.with_label("y").batch(2)))
        ({'x': array([0, 1])}, array([0, 1]))
        """

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
        def fn(*rows: Structure) -> Structure:
            return split(rows[0] if len(rows) == 1 else rows)

        return Dataset(MapBlocks(self._node, fn, "with_label"))

    def take(self, count: int) -> Dataset:
        """Stop after `count` elements; -1 takes all."""
        return Dataset(Take(self._node, count))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` elements; -1 leaves out all."""
        return Dataset(Skip(self._node, count))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keep elements `index`, `index + num_shards`, …; put it before shuffle."""
        return Dataset(Shard(self._node, num_shards, index))

    def prefetch(self, buffer_size: int = AUTOTUNE) -> Dataset:
        """Make up to `buffer_size` elements ahead, in a thread; 0 does nothing."""
        if buffer_size == 0:
            return self
        return Dataset(Prefetch(self._node, 2 if buffer_size < 0 else buffer_size))

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, *, seed: int | None = None) -> DatasetIterator:
        """Start a pass; `seed` is for the shuffles that were given none.

        Without it one is drawn, and kept in the position.
        """
        return DatasetIterator(self._node, seed, next(self._passes))

    def __repr__(self) -> str:
        return f"<Dataset {' > '.join(verbs_of(self._node))}>"


class DatasetIterator:
    """One pass over a dataset, which can say where it is and go there again."""

    def __init__(self, node: Node, seed: int | None, number: int) -> None:
        self._node = node
        self._seed = secrets.randbits(63) if seed is None else seed
        self._pass = number
        self._stream = node.open(Context(self._seed, (number,)))
        self._closed = False

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Structure:
        if self._closed:
            raise StopIteration
        chunk = self._stream.read(1)
        if chunk is None:
            raise StopIteration
        return chunk.element(0)

    def get_state(self) -> State:
        """The position after the last element returned: small, for `json.dumps`.

        It does not hold the data: the files must stay where and as they are.
        """
        return {
            "verbs": verbs_of(self._node),
            "seed": self._seed,
            "pass": self._pass,
            "position": self._stream.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue exactly behind a saved position, at a cost that does not grow."""
        verbs = verbs_of(self._node)
        if state.get("verbs") != verbs:
            raise InputError(
                "cannot resume the input: the position was saved by "
                f"{' > '.join(state.get('verbs', ['another kind of input']))} and this "
                f"dataset is {' > '.join(verbs)}. Restore the old pipeline, or start "
                "the input from its beginning."
            )
        self._stream.close()
        self._seed, self._pass = int(state["seed"]), int(state["pass"])
        self._stream = self._node.open(Context(self._seed, (self._pass,)))
        self._stream.set_state(state["position"])

    def close(self) -> None:
        """Stop threads and close files; further `next` calls end."""
        if not self._closed:
            self._closed = True
            self._stream.close()

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
