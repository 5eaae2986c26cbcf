"""Checkpoints of a cluster: every process writes its rows, the chief the manifest.

    held = local_rows(flatten_state(state), row_counts(state))     # in every process
    path = model_dir / "model.ckpt-100"
    write_distributed(peers, path, 100, held, {"input": position})

The chief makes a temporary folder, in which every process writes one file. When all
have reported theirs, the chief writes the manifest and renames the folder. A process
that fails lets the write fail in all of them, and the folder is removed. All processes
must see the same model_dir.

Rows that several devices hold are written by the first of them, so that a replicated
array is written once. No process holds all rows of a table that is sharded over
processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints.format import ArrayEntry, FileEntry, Manifest, Piece
from estimax.core.errors import CheckpointError, ClusterError, MissingFileError
from estimax.formats import tensors
from estimax.parallel.processes import Processes
from estimax.storage import atomic

_TOPIC = "checkpoint"  # of the thread that writes


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of an array on the host, or all of it."""

    array: NDArray[Any]
    start: int
    shape: tuple[int, ...]  # of the whole array

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows."""
        return self.array.shape == self.shape


LocalRows = Mapping[str, Sequence[Rows]]


def local_rows(
    arrays: Mapping[str, jax.Array], row_counts: Mapping[str, int]
) -> dict[str, list[Rows]]:
    """Copy to the host what this process has to write of each array.

    Arrays named in `row_counts` are cut to that many rows.
    """
    ours = {
        name: [shard for shard in array.addressable_shards if shard.replica_id == 0]
        for name, array in arrays.items()
    }
    # Start all transfers before waiting for the first, so that they overlap.
    for shards in ours.values():
        for shard in shards:
            shard.data.copy_to_host_async()
    held: dict[str, list[Rows]] = {}
    for name, shards in ours.items():
        shape = tuple(arrays[name].shape)
        if name in row_counts:
            shape = (row_counts[name], *shape[1:])
        rows = [_rows_of(shard, shape) for shard in shards]
        # A shard of padding has no rows to write. An array that is empty as a whole
        # still needs its entry.
        held[name] = [one for one in rows if one.array.size or one.is_whole]
    return held


def _rows_of(shard: Any, shape: tuple[int, ...]) -> Rows:
    # A copy: the next step overwrites the memory, which on a CPU is the device's.
    array = np.array(shard.data)
    if not shape:
        return Rows(array, 0, shape)
    start = shard.index[0].start or 0
    # The rows behind `shape[0]` pad the table to a multiple of the devices. Saved, they
    # would tie the checkpoint to this number of devices.
    array = array[: max(shape[0] - start, 0)]
    assert array.shape[1:] == shape[1:], "arrays are sharded by row only"
    return Rows(array, start, shape)


def arrays_in(held: LocalRows) -> dict[str, NDArray[Any]]:
    """Return the rows by a name of their own, in files and messages."""
    return {
        name
        if rows.is_whole
        else formats.rows_name(name, rows.start, rows.start + len(rows.array)): (
            rows.array
        )
        for name, parts in held.items()
        for rows in parts
    }


def write_distributed(
    peers: Processes, folder: Path, step: int, held: LocalRows, extra: Any
) -> bool:
    """Write a checkpoint with all processes; return False if it was there already.

    Every process calls this in the same thread as before, with its own rows and extra
    value. If the extra values differ, see `merge_extras` for what is saved.

    Raises:
      CheckpointError: A process could not write its part.
    """
    # The protocol, in which every process must take part to the end: all gather what
    # they have; the chief broadcasts the folder, or that nothing changed; all gather
    # their parts; the chief broadcasts the result. An error is a message, never a
    # missing one, because the others would wait for it.
    found = peers.gather(_TOPIC, {"extra": extra, "same": _count_same(folder, held)})
    joined = merge_extras([one["extra"] for one in found])
    if peers.is_chief:
        same = sum(one["same"] for one in found)
        return _write_as_chief(peers, folder, step, held, joined, same)
    return _write_as_worker(peers, folder, held)


def merge_extras(extras: Sequence[Any]) -> Any:
    """Return the extra value to save: the common one, or the positions of all shares.

    >>> merge_extras([{"input": 3}, {"input": 3}])
    {'input': 3}
    >>> merge_extras([{"input": {"share": 3}}, {"input": {"share": 4}}])
    {'inputs': [3, 4]}
    """
    positions = [extra["input"] for extra in extras]
    if all(isinstance(one, dict) and "share" in one for one in positions):
        return {"inputs": [one["share"] for one in positions]}
    if any(one != positions[0] for one in positions):
        raise ClusterError(
            "the processes of the cluster do not read the same data, but their "
            "input_fn has no input_context and must return the same in all of them. "
            "Do they see the same files? To give every process a share of its own, "
            "let the input_fn take input_context, or set "
            "RunConfig(split_batches=False)."
        )
    return extras[0]


def _write_as_chief(
    peers: Processes, folder: Path, step: int, held: LocalRows, extra: Any, same: int
) -> bool:
    # A resumed run first saves the state that it has just read. Written again, it would
    # replace an intact checkpoint for nothing.
    manifest = _manifest(folder)
    if manifest is not None and manifest.extra == extra:
        pieces = sum(len(entry.pieces) for entry in manifest.arrays.values())
        if pieces == same:
            peers.broadcast(_TOPIC, {"unchanged": True})
            return False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic.folder(folder) as temporary:
            peers.broadcast(_TOPIC, {"folder": temporary.name})
            part = _attempt(lambda: _write_part(peers, temporary, held))
            # When this returns, every part is on disk: `_write_part` syncs its file.
            # Only then may the manifest, and the rename after it, declare it complete.
            parts = peers.gather(_TOPIC, part)
            _check(peers, step, parts)
            files, arrays = _entries(peers, parts)
            formats.write_manifest(temporary, step, files, arrays, extra)
    except Exception as error:
        # The others wait for the result, whatever went wrong. If it went wrong before
        # they knew the folder, they read this message in place of its name.
        peers.broadcast(_TOPIC, {"error": str(error)})
        raise
    peers.broadcast(_TOPIC, {})
    return True


def _write_as_worker(peers: Processes, folder: Path, held: LocalRows) -> bool:
    begin = peers.broadcast(_TOPIC, None)
    if begin.get("unchanged"):
        return False
    if "folder" in begin:
        temporary = folder.parent / begin["folder"]
        part = _attempt(lambda: _write_part(peers, temporary, held))
        peers.gather(_TOPIC, part)
        # The chief is writing the manifest and renaming the folder: wait, because this
        # process may go on to read the checkpoint, or end.
        begin = peers.broadcast(_TOPIC, None)
    if "error" in begin:
        raise CheckpointError(f"{folder} was not written: {begin['error']}")
    return True


def _attempt(write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `write` returns, or its error for the other processes."""
    try:
        return write()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _write_part(peers: Processes, temporary: Path, held: LocalRows) -> dict[str, Any]:
    if not temporary.is_dir():
        raise MissingFileError(
            f"{temporary} is not there. The model_dir must be on a file system that "
            "all processes share."
        )
    file = formats.state_file(peers.index, peers.count)
    layout = tensors.write(temporary / file, arrays_in(held))
    # Synced by its writer: the chief may run on another machine, whose fsync does not
    # reach the cache of this one.
    atomic.sync_file(temporary / file)
    places = {name: dataclasses.asdict(e) for name, e in layout.entries.items()}
    pieces = [
        {"name": name, "start": rows.start, "shape": rows.shape, "place": places[key]}
        for name, parts in held.items()
        for rows in parts
        for key in arrays_in({name: [rows]})
    ]
    return {
        "file": file,
        "size": layout.size,
        "crc": layout.crc,
        "names": sorted(held),
        "pieces": pieces,
    }


def _check(peers: Processes, step: int, parts: Sequence[Mapping[str, Any]]) -> None:
    for index, part in enumerate(parts):
        if "error" in part:
            raise CheckpointError(
                f"the checkpoint of step {step} was not written: "
                f"{peers.name_of(index)}: {part['error']}"
            )


def _entries(
    peers: Processes, parts: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, FileEntry], dict[str, ArrayEntry]]:
    """Return the entries of all files and arrays; raise if rows are missing."""
    _check_names(peers, [part["names"] for part in parts])
    files: dict[str, FileEntry] = {}
    pieces: dict[str, list[_Written]] = {name: [] for name in parts[0]["names"]}
    for index, part in enumerate(parts):
        files[part["file"]] = FileEntry(part["size"], part["crc"])
        for one in part["pieces"]:
            place = one["place"] | {"shape": tuple(one["place"]["shape"])}
            piece = Piece(part["file"], tensors.Entry(**place), one["start"])
            written = _Written(piece, tuple(one["shape"]), peers.name_of(index))
            pieces[one["name"]].append(written)
    return files, {name: _entry(name, own) for name, own in pieces.items()}


@dataclass(frozen=True)
class _Written:
    """A piece of an array, the shape of the whole, and the process that wrote it."""

    piece: Piece
    shape: tuple[int, ...]
    process: str


def _check_names(peers: Processes, names: Sequence[Sequence[str]]) -> None:
    every = dict.fromkeys(name for own in names for name in own)
    for index, own in enumerate(names):
        known = set(own)
        missing = [name for name in every if name not in known]
        if missing:
            raise CheckpointError(
                f"{peers.name_of(index)} has no {', '.join(missing)}, which others "
                "save. All processes must train the same model."
            )


def _entry(name: str, written: Sequence[_Written]) -> ArrayEntry:
    """Return the entry of an array; raise unless every row was written once.

    This is checked before the folder gets its name, because a checkpoint without all
    rows could not be read.
    """
    if not written:
        raise CheckpointError(f"{name} was written by no process.")
    first, *others = sorted(written, key=lambda one: one.piece.start)
    for one in others:
        if one.shape != first.shape:
            raise CheckpointError(
                f"{name} is {list(first.shape)} in {first.process} and "
                f"{list(one.shape)} in {one.process}."
            )
    rows = first.shape[0] if first.shape else 1
    # Walk through the rows: each piece must begin where the one before it ended.
    at, before = 0, first
    for one in (first, *others):
        start, count = one.piece.start, (one.piece.place.shape or (1,))[0]
        if start < at:
            raise CheckpointError(
                f"row {start} of {name} was written by {before.process} and by "
                f"{one.process}."
            )
        if start > at:
            break
        at, before = start + count, one
    if at < rows:
        after = [one.piece.start for one in written if one.piece.start > at]
        end = min([*after, rows])
        raise CheckpointError(
            f"rows {at} to {end} of {name} were written by no process."
        )
    return ArrayEntry(first.shape, tuple(one.piece for one in (first, *others)))


def _manifest(folder: Path) -> Manifest | None:
    try:
        manifest = formats.read_manifest(folder)
        formats.check_sizes(folder, manifest)
    except (CheckpointError, MissingFileError):
        return None
    return manifest


def _count_same(folder: Path, held: LocalRows) -> int:
    """Return how many pieces of an existing checkpoint are equal to ours."""
    manifest = _manifest(folder)
    if manifest is None:
        return 0
    # Compared by checksum, so that no file is read. Each process compares its own rows;
    # the chief compares the sum with the number of pieces in the manifest.
    count = 0
    for name, parts in held.items():
        entry = manifest.arrays.get(name)
        saved = {piece.start: piece.place for piece in entry.pieces} if entry else {}
        count += sum(
            rows.start in saved and tensors.is_same(saved[rows.start], rows.array)
            for rows in parts
        )
    return count
