"""Which record of which file an error is about: searched for once it has happened.

    except ExampleError as error:
        locate(error, node)          # its message begins with file, record and byte
        raise

Records carry no name through shuffles, joins and batches: nobody pays for one until
an example cannot be parsed, and then its bytes are looked for in the dataset's files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from estimax.input.examples.errors import ExampleError
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.stream import Context, Node, chain_of, inner_nodes
from estimax.input.streams.structure import call, is_dataset
from estimax.input.verbs.interleaving import Interleave
from estimax.input.verbs.ordering import Repeat
from estimax.input.verbs.sharding import rebuilt

# An error must not wait for terabytes to be read.
_SEARCH_SECONDS = 30.0


def locate(error: ExampleError, node: Node, *, seconds: float | None = None) -> None:
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


def _search(node: Node, data: bytes, deadline: float) -> str | None:
    for source in _file_nodes(node):
        find = getattr(source.make_reader(), "find", None)
        for path in source.paths if find is not None else ():
            left = deadline - time.monotonic()
            where: str | None = find(path, data, left) if find and left > 0 else None
            if where is not None or left <= 0:
                return where
    return None


def _file_nodes(node: Node) -> Iterator[FileBlocks]:
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


def _elements_once(node: Node) -> Iterator[object]:
    """The elements of one epoch, in any order."""
    first, *rest = chain_of(node)
    once = rebuilt(first, [one for one in rest if not isinstance(one, Repeat)])
    stream = once.open(Context(seed=0))
    try:
        while (chunk := stream.read(1)) is not None:
            yield chunk.element(0)
    finally:
        stream.close()
