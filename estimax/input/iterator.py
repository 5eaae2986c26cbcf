"""DatasetIterator: one pass over a dataset, with a position that can be saved.

    iterator = dataset.iterator(seed=7)
    batch = next(iterator)
    state = iterator.get_state()        # small, for json.dumps

When a record cannot be parsed, `locate` searches the files for it, so that the error
names the file, the record and the byte.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from estimax.core.errors import InputError
from estimax.input.examples.specs import ExampleError
from estimax.input.fingerprints import DataFingerprint
from estimax.input.ops.mixing import Interleave
from estimax.input.ops.ordering import Repeat
from estimax.input.ops.row_functions import RowFunction
from estimax.input.ops.sharding import rebuilt
from estimax.input.pipeline_digest import digest_of
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.stream import (
    Context,
    Counters,
    DatasetNode,
    State,
    Stream,
    chain_of,
    inner_nodes,
    verbs_of,
)
from estimax.input.streams.structure import Structure, call, is_dataset

_log = logging.getLogger(__name__)


class DatasetIterator:
    """One pass over a dataset, with a position that can be saved and restored.

    `iter(dataset)` and `Dataset.iterator` make it. It holds threads and open files if
    the dataset uses them; `close` it, or use it in a `with` block, to release them
    before the end of the data.

    Args:
      node: The description of the dataset.
      seed: Seed of the verbs that were given none. None draws one.
      number: Number of the pass. Shuffles use another order for each.

    Example:
      >>> from estimax.input import Dataset
      >>> data = Dataset.range(10).batch(4)
      >>> with data.iterator() as iterator:
      ...     first, state = next(iterator), iterator.get_state()
      >>> resumed = data.iterator()
      >>> resumed.set_state(state)
      >>> next(resumed)
      array([4, 5, 6, 7])
    """

    def __init__(self, node: DatasetNode, seed: int | None, number: int) -> None:
        self._node = node
        self._verbs = verbs_of(node)  # part of every position
        self._seed = secrets.randbits(63) if seed is None else seed
        self._pass = number
        self._counters = Counters()
        self._data = DataFingerprint(node, self._counters)
        self._stream = self._open()
        self._closed = False

    def _open(self) -> Stream:
        context = Context(self._seed, (self._pass,), counters=self._counters)
        return self._node.open(context)

    @cached_property
    def recipe(self) -> str | None:
        """A digest of the verbs and their arguments, to tell whether input is the same.

        None if the data comes from a generator or a table, which have no fingerprint.
        """
        return digest_of(self._node)

    def start_next_pass(self) -> None:
        """Go to the beginning of the data. Shuffles use another order than before."""
        # The number of the pass is part of the seed of every shuffle.
        self._stream.close()
        self._pass += 1
        self._stream = self._open()

    @property
    def ignored_errors(self) -> int:
        """The number of errors that `Dataset.ignore_errors` has skipped so far."""
        return self._counters.ignored

    @property
    def advice(self) -> str:
        """What makes this input slow, if that is known: a sentence, or ""."""
        return advice_of(self._node)

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Structure:
        if self._closed:
            raise StopIteration
        try:
            chunk = self._stream.read(1)
        except ExampleError as error:
            locate(error, self._node)
            raise
        if chunk is None:
            raise StopIteration
        return chunk.element(0)

    def get_state(self) -> State:
        """Return the position after the last element, for `json.dumps`.

        It contains a fingerprint of the data (names, sizes and checksums of files), and
        no data: to resume, the files must be unchanged. They may move to another
        folder.

        Returns:
          A dict, usually smaller than 1 KB; `Dataset.unique` and `group_by_window` add
          what they have collected.
        """
        return {
            "verbs": self._verbs,
            "seed": self._seed,
            "pass": self._pass,
            "data": self._data.state(),
            "position": self._stream.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue after a saved position, exactly as the first iterator would have.

        The cost does not depend on how far the position is: only the current window of
        a shuffle and elements that wait in groups are read again. Exceptions are
        generators and other iterables without a position, which are read from their
        start.

        Args:
          state: A position that `get_state` returned, for a dataset with the same
            verbs over the same data.

        Raises:
          ChangedInputError: A file, the list of files or an array in memory has changed
            since the position was saved.
          InputError: The position was saved by a dataset with other verbs.
        """
        if state.get("verbs") != self._verbs:
            raise InputError(
                "cannot resume the input: the position was saved by "
                f"{' > '.join(state.get('verbs', ['another kind of input']))} and this "
                f"dataset is {' > '.join(self._verbs)}. Restore the old pipeline, or "
                "start the input from its beginning."
            )
        # All checks come before the stream is closed, so that a refused position leaves
        # the iterator where it was.
        if state.get("data") is not None:
            self._data.check(state["data"])
        elif "data" not in state:
            _log.info(
                "The saved position of the input has no fingerprint of the data, "
                "because an earlier version saved it. Changes of the data are not "
                "detected."
            )
        self._stream.close()
        # Seed and pass before the stream is opened: its order depends on them.
        self._seed, self._pass = int(state["seed"]), int(state["pass"])
        self._counters.ignored = 0
        self._stream = self._open()
        self._stream.set_state(state["position"])

    def close(self) -> None:
        """Stop threads and close files. `next` raises `StopIteration` afterwards."""
        if not self._closed:
            self._closed = True
            self._stream.close()

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def without_fingerprint(state: Any) -> Any:
    """Return a position for which `set_state` does not check that data is unchanged."""
    is_dataset = isinstance(state, dict) and "data" in state
    return {**state, "data": None} if is_dataset else state


def at_epoch_of(state: State, positions: Sequence[Any]) -> State | None:
    """Return the position of a new iterator, moved to the epoch of other positions.

    The positions are those of shares of the same data, which may have been divided in
    another way. The earliest of their epochs is chosen, so that no row is missed. None
    if the positions are not of such a dataset.

    >>> fresh = {"pass": 0, "seed": 1, "position": {"epoch": 0, "source": {"row": 0}}}
    >>> old = {"pass": 0, "seed": 7, "position": {"epoch": 3, "source": {"row": 9}}}
    >>> at_epoch_of(fresh, [old])["position"]
    {'epoch': 3, 'source': {'row': 0}}
    """
    if not all(isinstance(one, dict) and "position" in one for one in positions):
        return None
    found = [_epochs_in(one["position"]) for one in positions]
    own = _epochs_in(state.get("position"))
    if any(len(epochs) != len(own) for epochs in found):
        return None
    # Shares that had started another pass have another order. The earliest pass is
    # used, with its seed.
    first = min(positions, key=lambda one: int(one["pass"]))
    earliest = iter([min(epochs) for epochs in zip(*found, strict=True)])
    return {
        **state,
        "pass": int(first["pass"]),
        "seed": int(first["seed"]),
        "position": _with_epochs(state["position"], earliest),
    }


def _epochs_in(state: Any) -> list[int]:
    if isinstance(state, dict):
        own = [state["epoch"]] if isinstance(state.get("epoch"), int) else []
        return own + [e for value in state.values() for e in _epochs_in(value)]
    if isinstance(state, list | tuple):
        return [epoch for value in state for epoch in _epochs_in(value)]
    return []


def _with_epochs(state: Any, epochs: Iterator[int]) -> Any:
    """Replace the epochs of a position, in the order of `_epochs_in`."""
    if isinstance(state, dict):
        own = isinstance(state.get("epoch"), int)
        epoch = {"epoch": next(epochs)} if own else {}
        inner = {key: _with_epochs(value, epochs) for key, value in state.items()}
        return inner | epoch
    if isinstance(state, list | tuple):
        return [_with_epochs(value, epochs) for value in state]
    return state


def advice_of(node: DatasetNode) -> str:
    """Return a sentence on the verb that calls a function for every row, or ""."""
    for one in (node, *inner_nodes(node)):
        function = getattr(one, "function", None) or getattr(one, "apply", None)
        advice = function.advice if isinstance(function, RowFunction) else ""
        if advice:
            return (
                f"{one.name}() {advice}. Move batch() before {one.name}() and let the "
                "function process whole columns."
            )
        found = advice_of(one) if one is not node else ""
        if found:
            return found
    return ""


# The longest search for the file of a record that could not be parsed.
_SEARCH_SECONDS = 30.0


def locate(
    error: ExampleError, node: DatasetNode, *, seconds: float | None = None
) -> None:
    """Add file, record and byte to the message of an error, if they can be found.

    The files are searched for the bytes of the record, for at most `seconds` seconds.
    """
    if error.where is not None or not error.data:
        return
    deadline = time.monotonic() + (_SEARCH_SECONDS if seconds is None else seconds)
    try:
        where = _search(node, error.data, deadline)
    except Exception as failure:
        # The search calls functions of the user, which may fail. The error that is
        # reported must still be the first one.
        error.add_note(f"The search for its file failed: {failure}")
        return
    if where is not None:
        error.where = where
        error.args = (f"{where}, {error}",)


def _search(node: DatasetNode, data: bytes, deadline: float) -> str | None:
    """Return where the files of a dataset contain a record, or None."""
    for source in _file_nodes(node):
        find = getattr(source.make_reader(), "find", None)
        for path in source.paths if find is not None else ():
            left = deadline - time.monotonic()
            where: str | None = find(path, data, left) if find and left > 0 else None
            if where is not None or left <= 0:
                return where
    return None


def _file_nodes(node: DatasetNode) -> Iterator[FileBlocks]:
    """Yield the file nodes of a dataset, including those that user functions make."""
    if isinstance(node, FileBlocks):
        yield node
    elif isinstance(node, Interleave):
        for element in _elements_once(node.source):
            made = call(node.fn, element)
            if is_dataset(made):
                yield from _file_nodes(made.node)
    else:
        for inner in inner_nodes(node):
            yield from _file_nodes(inner)


def _elements_once(node: DatasetNode) -> Iterator[object]:
    """Yield the elements of one epoch, in any order."""
    first, *rest = chain_of(node)
    once = rebuilt(first, [one for one in rest if not isinstance(one, Repeat)])
    stream = once.open(Context(seed=0))
    try:
        while (chunk := stream.read(1)) is not None:
            yield chunk.element(0)
    finally:
        stream.close()
