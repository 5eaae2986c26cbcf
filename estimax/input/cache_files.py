"""A complete pass in files: `<prefix>.data` (buffers) and `<prefix>.index` (JSON).

    CacheFile("cache/train")

Both are written under temporary names and renamed at the end of a complete pass, the
index last. A killed run therefore leaves no cache, rather than half of one. Reading
maps the data file into memory, so a cache may be larger than the memory.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.chunks import Chunk
from estimax.input.column_files import read_chunk, write_chunk
from estimax.input.stream import State
from estimax.wire import atomic

_VERSION = 1


class CacheFile:
    """Where a pass is kept, for every process that names the same prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._open: _Mapped | None = None

    def kept(self) -> _Mapped | None:
        """The complete pass, if some run has left one."""
        if self._open is None and os.path.exists(f"{self._prefix}.index"):
            self._open = _Mapped(self._prefix)
        return self._open

    def start(self, seed: int) -> _FileWriter:
        """Begin to write a pass."""
        return _FileWriter(self._prefix, seed)


class _Mapped:
    """The mapped data and its index."""

    def __init__(self, prefix: str) -> None:
        path = f"{prefix}.index"
        try:
            with open(path, encoding="utf-8") as file:
                index = json.load(file)
            if index["version"] != _VERSION:
                raise ValueError(f"version {index['version']}, expected {_VERSION}")
            self.seed = int(index["seed"])
            self.states: Sequence[State] = index["states"]
            self._chunks: list[Any] = index["chunks"]
            self._memory = _map(f"{prefix}.data")
            if len(self._memory) != index["bytes"]:
                raise ValueError(f"{len(self._memory)} bytes, not {index['bytes']}")
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"{path}: cannot be used as a cache: {error}. Delete {prefix}.index; "
                "the next complete pass makes it again."
            ) from error

    def chunk(self, number: int) -> Chunk:
        """Views of the mapped file."""
        return read_chunk(self._memory, self._chunks[number])


def _map(path: str) -> NDArray[np.uint8]:
    if os.path.getsize(path) == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r")


class _FileWriter:
    def __init__(self, prefix: str, seed: int) -> None:
        self._prefix = prefix
        folder = os.path.dirname(prefix) or "."
        os.makedirs(folder, exist_ok=True)
        atomic.remove_leftovers(folder)
        # The temporary name is unique: two iterators may fill the cache at once.
        self._opened = atomic.file(f"{prefix}.data")
        self._file: BinaryIO = self._opened.__enter__()
        # Remove the unfinished file also when this writer is merely forgotten.
        self._forget = weakref.finalize(self, _discard, self._opened)
        self._seed = seed
        self._states: list[State] = []
        self._chunks: list[Any] = []

    def add(self, before: State, chunk: Chunk) -> None:
        self._states.append(before)
        self._chunks.append(write_chunk(self._file, chunk))

    def finish(self) -> None:
        self._forget.detach()
        size = self._file.tell()
        self._opened.__exit__(None, None, None)
        index = {
            "version": _VERSION,
            "seed": self._seed,
            "bytes": size,
            "states": self._states,
            "chunks": self._chunks,
        }
        atomic.write_bytes(f"{self._prefix}.index", json.dumps(index).encode())

    def abandon(self) -> None:
        self._forget()


class _AbandonedError(Exception):
    """A pass that ended before its source did."""


def _discard(opened: AbstractContextManager[BinaryIO]) -> None:
    opened.__exit__(_AbandonedError, _AbandonedError(), None)
