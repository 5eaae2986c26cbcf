"""Saved datasets: `save` writes the elements of a pass to a folder, `Saved` reads them.

    save(chunks, "train.saved")        # atomic: the folder is complete or not there
    Saved("train.saved")               # a source of the same elements

The folder holds the two files of a cache (`cache_files.py`), with checksums.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from estimax.core.errors import InputError, MissingFileError
from estimax.input.sources.cache_files import CachedFiles, CacheFile
from estimax.input.streams.background import Lookahead
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import ROWS_AT_ONCE, Context, State, Stream
from estimax.storage import atomic

_PREFIX = "elements"


def save(chunks: Iterable[Chunk], path: str) -> None:
    """Write chunks to a folder, which replaces an earlier saved dataset.

    Raises:
      InputError: The folder exists and is something else than a saved dataset.
    """
    folder = Path(path)
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free and not (folder / f"{_PREFIX}.index").exists():
        raise InputError(
            f"save: {path} exists and is not a saved dataset. Delete it, or choose "
            "another path."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic.folder(folder) as temporary:
        writer = CacheFile(str(temporary / _PREFIX)).start(seed=0)
        try:
            for chunk in chunks:
                writer.add({}, chunk)
        except BaseException:
            writer.abandon()
            raise
        writer.finish()


@dataclass(frozen=True, eq=False)
class Saved:
    """The elements of a saved dataset."""

    path: str
    name: str = "load"
    source = None

    def __post_init__(self) -> None:
        if not os.path.exists(os.path.join(self.path, f"{_PREFIX}.index")):
            raise MissingFileError(
                f"load: {self.path} is not a saved dataset: it has no file "
                f"{_PREFIX}.index. Dataset.save writes one."
            )

    @cached_property
    def files(self) -> CachedFiles:
        """The index of the files, read once."""
        found = CacheFile(os.path.join(self.path, _PREFIX)).kept()
        assert found is not None
        return found

    @property
    def columnar(self) -> bool:
        return self.files.is_columnar

    def open(self, context: Context) -> Stream:
        """Start at the first element."""
        at_once = ROWS_AT_ONCE if self.columnar else 1
        return Lookahead(_SavedStream(self.files), at_once)


class _SavedStream:
    """One chunk of the files with each read, however many were asked for."""

    def __init__(self, files: CachedFiles) -> None:
        self._files = files
        self._chunk = 0  # the number of the next chunk

    def read(self, n: int) -> Chunk | None:
        if self._chunk == len(self._files.states):
            return None
        self._chunk += 1
        return self._files.chunk(self._chunk - 1)

    def get_state(self) -> State:
        return {"chunk": self._chunk}

    def set_state(self, state: State) -> None:
        self._chunk = int(state["chunk"])

    def close(self) -> None:
        pass
