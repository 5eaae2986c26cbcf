"""DatasetIterator: one pass over a dataset, with a position that can be saved.

iterator = dataset.iterator(seed=7)
batch = next(iterator)
state = iterator.get_state()        # small, for json.dumps
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from typing import Any

from estimax.core.errors import InputError
from estimax.input.examples.specs import ExampleError
from estimax.input.fingerprints import DataMarks
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
from estimax.input.verbs.mixing import Interleave
from estimax.input.verbs.ordering import Repeat
from estimax.input.verbs.sharding import rebuilt

_log = logging.getLogger(__name__)


class DatasetIterator:
    """One pass over a dataset, which can say where it is and go there again."""

    def __init__(self, node: DatasetNode, seed: int | None, number: int) -> None:
        self._node = node
        self._seed = secrets.randbits(63) if seed is None else seed
        self._pass = number
        self._counters = Counters()
        self._data = DataMarks(node, self._counters)
        self._stream = self._open()
        self._closed = False

    def _open(self) -> Stream:
        context = Context(self._seed, (self._pass,), counters=self._counters)
        return self._node.open(context)

    @property
    def ignored_errors(self) -> int:
        """How many elements `ignore_errors` has left out so far."""
        return self._counters.ignored

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
        """The position after the last element returned: small, for `json.dumps`.

        It does not hold the data, but a fingerprint of it: files must stay as they are,
        and may move to another folder.
        """
        return {
            "verbs": verbs_of(self._node),
            "seed": self._seed,
            "pass": self._pass,
            "data": self._data.state(),
            "position": self._stream.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue exactly behind a saved position, at a cost that does not grow.

        Raises:
          ChangedInputError: A file, the list of files or an array in memory is not what
            it was when the position was saved.
          InputError: The position is one of another dataset.
        """
        verbs = verbs_of(self._node)
        if state.get("verbs") != verbs:
            raise InputError(
                "cannot resume the input: the position was saved by "
                f"{' > '.join(state.get('verbs', ['another kind of input']))} and this "
                f"dataset is {' > '.join(verbs)}. Restore the old pipeline, or start "
                "the input from its beginning."
            )
        if state.get("data") is not None:
            self._data.check(state["data"])
        elif "data" not in state:
            _log.info(
                "the input's position has no fingerprint of its data, as earlier "
                "versions saved it: whether files have changed is not checked"
            )
        self._stream.close()
        self._seed, self._pass = int(state["seed"]), int(state["pass"])
        self._counters.ignored = 0
        self._stream = self._open()
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


def without_fingerprint(state: Any) -> Any:
    """Return a position whose data `DatasetIterator.set_state` does not compare."""
    is_dataset = isinstance(state, dict) and "data" in state
    return {**state, "data": None} if is_dataset else state


# An error must not wait for terabytes to be read.
_SEARCH_SECONDS = 30.0


def locate(
    error: ExampleError, node: DatasetNode, *, seconds: float | None = None
) -> None:
    """Put file, record and byte before the message, where they are found in time."""
    if error.where is not None or not error.data:
        return
    deadline = time.monotonic() + (_SEARCH_SECONDS if seconds is None else seconds)
    try:
        where = _search(node, error.data, deadline)
    except Exception as failure:
        # The user's own functions make the datasets searched: the error that is
        # reported must stay the one that has happened.
        error.add_note(f"Its file could not be looked for: {failure}")
        return
    if where is not None:
        error.where = where
        error.args = (f"{where}, {error}",)


def _search(node: DatasetNode, data: bytes, deadline: float) -> str | None:
    for source in _file_nodes(node):
        find = getattr(source.make_reader(), "find", None)
        for path in source.paths if find is not None else ():
            left = deadline - time.monotonic()
            where: str | None = find(path, data, left) if find and left > 0 else None
            if where is not None or left <= 0:
                return where
    return None


def _file_nodes(node: DatasetNode) -> Iterator[FileBlocks]:
    """The files at the beginning of a dataset, also those that functions open."""
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
    """The elements of one epoch, in any order."""
    first, *rest = chain_of(node)
    once = rebuilt(first, [one for one in rest if not isinstance(one, Repeat)])
    stream = once.open(Context(seed=0))
    try:
        while (chunk := stream.read(1)) is not None:
            yield chunk.element(0)
    finally:
        stream.close()
