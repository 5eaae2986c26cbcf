"""DatasetIterator: one pass over a dataset, with a position that can be saved.

iterator = dataset.iterator(seed=7)
batch = next(iterator)
state = iterator.get_state()        # small, for json.dumps
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from estimax.core.errors import InputError
from estimax.input.examples.errors import ExampleError
from estimax.input.fingerprints import DataMarks
from estimax.input.locating import locate
from estimax.input.streams.stream import (
    Context,
    Counters,
    Node,
    State,
    Stream,
    verbs_of,
)
from estimax.input.streams.structure import Structure

_log = logging.getLogger(__name__)


class DatasetIterator:
    """One pass over a dataset, which can say where it is and go there again."""

    def __init__(self, node: Node, seed: int | None, number: int) -> None:
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
