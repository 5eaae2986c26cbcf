"""The files of a checkpoint: a folder with safetensors files and a JSON manifest.

    format.write(model_dir / "model.ckpt-100", arrays, 100, {"input": position})
    checkpoint = format.read(model_dir / "model.ckpt-100")
    checkpoint.step, checkpoint.arrays["dnn/logits/kernel"], checkpoint.extra

Writing is atomic: the folder is written under a temporary name and renamed. Reading
verifies sizes and checksums, also that of the manifest, because a flipped bit in the
input position would resume at another place. Checksums find accidents, not forgeries,
so every field of the manifest is checked as well: files must be inside the folder, and
arrays inside their files.

A process that trains alone writes one file. In a cluster every process writes a file of
the rows that it holds (see `distributed.py`): the entry of an array then lists its
pieces, and the version of the manifest is 2. Arrays are read whole, or by row.
"""

from __future__ import annotations

import dataclasses
import json
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError, MissingFileError, did_you_mean
from estimax.formats import tensors
from estimax.storage import atomic, files, json_text
from estimax.storage.atomic import Pathish

VERSION = 2
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FileEntry:
    """Size and CRC-32 of one file of a checkpoint."""

    size: int
    crc: int


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of an array, or all of it, in one file of a checkpoint."""

    file: str
    place: tensors.Entry
    start: int = 0  # the first row

    @property
    def stop(self) -> int:
        """The row after the last one."""
        return self.start + self.place.shape[0]


@dataclass(frozen=True)
class ArrayEntry:
    """One array of a checkpoint: its shape, and its pieces in the order of rows."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's dtype."""
        first = self.pieces[0]
        return tensors.dtype_from_name(first.place.dtype, where=first.file)

    @property
    def size(self) -> int:
        """The array's size in bytes."""
        return sum(piece.place.size for piece in self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether one piece is all of the array."""
        return self.pieces[0].place.shape == self.shape


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint without the values of its arrays."""

    step: int
    written_at: float  # seconds since 1970
    files: dict[str, FileEntry]
    arrays: dict[str, ArrayEntry]  # in file order
    extra: Any


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: step, arrays by name, and the extra JSON value."""

    step: int
    arrays: dict[str, Any]  # NumPy arrays, or `SavedArray`s in a cluster
    extra: Any


def write(
    folder: Pathish,
    arrays: Mapping[str, NDArray[Any]],
    step: int,
    extra: Any = None,
) -> Path:
    """Write a checkpoint, replacing one in this folder; `extra` is any JSON value."""
    final = Path(folder)
    check_extra(extra)
    final.parent.mkdir(parents=True, exist_ok=True)
    with atomic.folder(final) as temporary:
        file = state_file(0, 1)
        layout = tensors.write(temporary / file, arrays)
        entries = {
            name: ArrayEntry(entry.shape, (Piece(file, entry),))
            for name, entry in layout.entries.items()
        }
        # The manifest comes last. `atomic.folder` then syncs all files and renames the
        # folder, so that a checkpoint with its final name is complete.
        files = {file: FileEntry(layout.size, layout.crc)}
        write_manifest(temporary, step, files, entries, extra)
    return final


def state_file(index: int, count: int) -> str:
    """Return the name of the file of one process.

    >>> state_file(0, 2)
    'state-00000-of-00002.safetensors'
    """
    return f"state-{index:05d}-of-{count:05d}.safetensors"


def write_manifest(
    folder: Path,
    step: int,
    files: Mapping[str, FileEntry],
    arrays: Mapping[str, ArrayEntry],
    extra: Any,
) -> None:
    """Write the manifest into the folder of a new checkpoint."""
    manifest = Manifest(int(step), time.time(), dict(files), dict(arrays), extra)
    (folder / MANIFEST).write_bytes(_encode(manifest))


def read(folder: Pathish) -> Checkpoint:
    """Read a whole checkpoint; raise CheckpointError if it is damaged."""
    path = Path(folder)
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    # Whole files, one after the other: the checksum of a file covers all of its bytes,
    # so that each byte is read once for both.
    pieces: dict[Piece, NDArray[Any]] = {}
    for name, file in manifest.files.items():
        inside = _pieces_in(name, manifest.arrays)
        read = tensors.read_all(
            file_path(path, name), {key: p.place for key, p in inside.items()}, file.crc
        )
        pieces |= {inside[key]: array for key, array in read.items()}

    def take(piece: Piece) -> NDArray[Any]:
        # Popped, so that the pieces of an array are freed as soon as it is
        # concatenated. Empty arrays at one place are one piece.
        return pieces.pop(piece) if piece.place.size else pieces[piece]

    arrays = {
        name: _concat_pieces([take(piece) for piece in entry.pieces])
        for name, entry in manifest.arrays.items()
    }
    return Checkpoint(manifest.step, arrays, manifest.extra)


def _concat_pieces(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pieces_in(file: str, arrays: Mapping[str, ArrayEntry]) -> dict[str, Piece]:
    """Return the pieces in a file, by the names that messages use."""
    return {
        name if entry.is_whole else rows_name(name, piece.start, piece.stop): piece
        for name, entry in arrays.items()
        for piece in entry.pieces
        if piece.file == file
    }


def rows_name(name: str, start: int, stop: int) -> str:
    """Return the name of some rows of an array in a file.

    >>> rows_name("embedding_weights", 0, 500)
    'embedding_weights[0:500]'
    """
    return f"{name}[{start}:{stop}]"


def read_array(folder: Pathish, name: str) -> NDArray[Any]:
    """Read and verify one array by name, without reading the others."""
    path = Path(folder)
    manifest = read_manifest(path)
    if name not in manifest.arrays:
        raise CheckpointError(
            f"{path}: no variable {name!r}{did_you_mean(name, manifest.arrays)}"
        )
    return read_entry(path, manifest.arrays[name], name)


def read_entry(folder: Pathish, entry: ArrayEntry, name: str) -> NDArray[Any]:
    """Read and verify the array of an entry of the manifest."""
    parts = []
    for piece in entry.pieces:
        path = file_path(Path(folder), piece.file)
        try:
            parts.append(tensors.read(path, piece.place, name))
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing.") from None
    return _concat_pieces(parts)


@dataclass(frozen=True)
class SavedArray:
    """An array in a checkpoint whose files are verified; its rows are read on demand.

    `array[start:stop]` reads these rows only, so that a process needs memory for no
    more than the rows that it holds.
    """

    folder: Path
    name: str
    entry: ArrayEntry

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.entry.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.entry.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's dtype."""
        return self.entry.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = read_entry(self.folder, self.entry, self.name)
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: slice | tuple[slice, ...]) -> NDArray[Any]:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        if not self.ndim:
            return np.asarray(self)
        start, stop, step = rows.indices(self.shape[0])
        assert step == 1, "rows are read in their order"
        # The first part is empty: a device may hold rows of padding alone.
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for piece in self.entry.pieces:
            first, last = max(start, piece.start), min(stop, piece.stop)
            if first < last:
                path = file_path(self.folder, piece.file)
                place = piece.place
                parts.append(
                    tensors.read_rows(path, place, first - piece.start, last - first)
                )
        return np.concatenate(parts)[:, *rest] if rest else np.concatenate(parts)


def verify(folder: Pathish, manifest: Manifest, names: Iterable[str]) -> None:
    """Raise CheckpointError if one of these files is damaged; keep nothing of them."""
    for name in names:
        path, file = file_path(Path(folder), name), manifest.files[name]
        tensors.check_file(path, file.size, file.crc)


def file_path(folder: Path, name: str) -> Path:
    """Return the path of a file; raise CheckpointError if it is outside `folder`."""
    try:
        return files.regular_file(folder, name)
    except ValueError as error:
        raise CheckpointError(f"{folder}: {error}.") from None


def names(folder: Pathish) -> tuple[str, ...]:
    """Return the names of the arrays in a checkpoint, sorted."""
    return tuple(sorted(read_manifest(folder).arrays))


def read_manifest(folder: Pathish) -> Manifest:
    """Read the manifest of a checkpoint, but no arrays."""
    path = file_path(Path(folder), MANIFEST)
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        # Two cases for the caller: a removed folder is skipped without a word, a folder
        # without a manifest is reported as damaged.
        if not path.parent.is_dir():
            raise MissingFileError(f"there is no checkpoint {path.parent}.") from None
        raise CheckpointError(f"{path} is missing: incomplete checkpoint.") from None
    return _decode(data, path)


def check_sizes(folder: Pathish, manifest: Manifest) -> None:
    """Raise CheckpointError if a file is missing or has another size."""
    for name, file in manifest.files.items():
        path = file_path(Path(folder), name)
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise CheckpointError(
                f"{path} is missing; expected {file.size} bytes."
            ) from None
        if found != file.size:
            raise CheckpointError(f"{path}: expected {file.size} bytes, found {found}.")


def holds(folder: Pathish, arrays: Mapping[str, NDArray[Any]], extra: Any) -> bool:
    """Return whether a checkpoint is complete and has this content, by checksums."""
    try:
        manifest = read_manifest(folder)
        check_sizes(folder, manifest)
    except (CheckpointError, MissingFileError):
        return False
    # Cheap comparisons first; then checksums of the arrays in memory against those in
    # the manifest.
    if manifest.extra != _with_lists(extra):
        return False
    is_same = manifest.arrays.keys() == arrays.keys() and all(
        entry.is_whole and tensors.is_same(entry.pieces[0].place, arrays[name])
        for name, entry in manifest.arrays.items()
    )
    if not is_same:
        return False
    try:
        # The files are read last. Training that resumed from an earlier checkpoint,
        # because this one is damaged, comes to the same arrays again.
        verify(folder, manifest, manifest.files)
    except (CheckpointError, OSError):
        return False
    return True


def check_extra(extra: Any) -> None:
    """Raise CheckpointError if `extra` would change when written as JSON and read."""
    try:
        # Before json.dumps, which recurses: too deep a value would raise
        # RecursionError, and the reader refuses it as well.
        json_text.check_depth(extra)
        same = json.loads(json.dumps(extra)) == _with_lists(extra)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"a checkpoint's extra value must be JSON: {error}. The position of an "
            "input may contain dicts with text keys, lists, numbers and text."
        ) from error
    if not same:
        raise CheckpointError(
            "a checkpoint's extra value must be JSON: it is not the same after writing "
            "and reading. Use text as the keys of dicts."
        )


def _with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_lists(item) for item in value]
    return value


def _encode(manifest: Manifest) -> bytes:
    content = {
        "format": "estimax checkpoint",
        # Older versions of estimax read checkpoints without pieces.
        "version": 1 if all(a.is_whole for a in manifest.arrays.values()) else VERSION,
        "step": manifest.step,
        "written_at": manifest.written_at,
        "files": {
            name: {"size": file.size, "crc32": file.crc}
            for name, file in manifest.files.items()
        },
        "arrays": {
            name: _array_to_json(array) for name, array in manifest.arrays.items()
        },
        "extra": manifest.extra,
    }
    text = json.dumps({**content, "crc32": _content_crc(content)}, indent=1)
    return text.encode() + b"\n"


def _decode(data: bytes, path: Path) -> Manifest:
    try:
        content = dict(json_text.mapping(json_text.parse(data), "the manifest"))
        # The checksum first: with a flipped bit, any message about a field would send
        # the reader in the wrong direction.
        crc = content.pop("crc32")
        if _content_crc(content) != crc:
            raise ValueError(
                f"expected checksum {crc:08x}, found {_content_crc(content):08x}"
            )
        version = json_text.whole(content, "version")
        if version > VERSION:
            raise CheckpointError(
                f"{path}: format version {version}, but this estimax reads up to "
                f"{VERSION}. Use a newer estimax."
            )
        return _manifest_from_json(content)
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        missing = isinstance(error, KeyError)
        reason = f"{error} is missing" if missing else error
        raise CheckpointError(f"{path} is damaged: {reason}.") from error


def _manifest_from_json(content: Mapping[str, Any]) -> Manifest:
    """Build the manifest from JSON; raise ValueError for the first wrong field."""
    files = {
        name: _file_from_json(name, json_text.mapping(entry, name))
        for name, entry in json_text.mapping(content["files"], "files").items()
    }
    arrays = {
        name: _array_from_json(json_text.mapping(entry, name))
        for name, entry in json_text.mapping(content["arrays"], "arrays").items()
    }
    for name, array in arrays.items():
        for piece in array.pieces:
            if piece.file not in files:
                raise ValueError(
                    f"array {name!r}: its file {piece.file!r} is not listed"
                )
    # Offsets and sizes are used to read without further checks, so they are compared
    # with the size of the file here: a forged entry must not read beyond it.
    for name, file in files.items():
        inside = {n: p.place for n, p in _pieces_in(name, arrays).items()}
        tensors.check_entries(inside, file.size, file.crc)
    written_at = content["written_at"]
    if type(written_at) not in (int, float) or not 0 <= written_at < 2**63:
        raise ValueError(f"written_at: expected seconds, found {written_at!r}")
    step = json_text.whole(content, "step")
    return Manifest(step, float(written_at), files, arrays, content["extra"])


def _file_from_json(name: str, entry: Mapping[str, Any]) -> FileEntry:
    files.check_name(name)
    if name == MANIFEST:
        raise ValueError(f"files: {name!r} holds no arrays")
    return FileEntry(json_text.whole(entry, "size"), _crc(entry, "crc32"))


def _array_to_json(array: ArrayEntry) -> dict[str, Any]:
    if array.is_whole:
        return _piece_to_json(array.pieces[0])
    pieces = [{"start": piece.start, **_piece_to_json(piece)} for piece in array.pieces]
    return {"shape": list(array.shape), "pieces": pieces}


def _piece_to_json(piece: Piece) -> dict[str, Any]:
    place = dataclasses.asdict(piece.place) | {"shape": list(piece.place.shape)}
    return {"file": piece.file, **place}


def _array_from_json(entry: Mapping[str, Any]) -> ArrayEntry:
    if "pieces" not in entry:
        piece = _piece_from_json(entry, 0)
        return ArrayEntry(piece.place.shape, (piece,))
    shape = json_text.dimensions(entry, "shape")
    if not isinstance(entry["pieces"], list):
        raise ValueError(f"pieces: expected a list, found {entry['pieces']!r:.60}")
    pieces = tuple(
        _piece_from_json(
            json_text.mapping(one, "pieces"), json_text.whole(one, "start")
        )
        for one in entry["pieces"]
    )
    _check_pieces(shape, pieces)
    return ArrayEntry(shape, pieces)


def _check_pieces(shape: tuple[int, ...], pieces: Sequence[Piece]) -> None:
    """Raise ValueError unless the pieces are all rows of an array, in their order."""
    row = 0
    for piece in pieces:
        rows, *rest = piece.place.shape or (0,)
        is_alike = piece.place.dtype == pieces[0].place.dtype
        # A piece without rows is refused, because any number of them would fit.
        if piece.start != row or rows < 1 or (*rest,) != shape[1:] or not is_alike:
            raise ValueError(
                f"a piece of shape {list(piece.place.shape)} at row {piece.start} does "
                f"not continue an array of shape {list(shape)} at row {row}"
            )
        row = piece.stop
    if (row,) != shape[:1] or not pieces:
        raise ValueError(f"pieces of {row} rows do not fill a shape of {list(shape)}")


def _piece_from_json(entry: Mapping[str, Any], start: int) -> Piece:
    place = tensors.Entry(
        dtype=json_text.text(entry, "dtype"),
        shape=json_text.dimensions(entry, "shape"),
        offset=json_text.whole(entry, "offset"),
        size=json_text.whole(entry, "size"),
        crc_before=_crc(entry, "crc_before"),
        crc_after=_crc(entry, "crc_after"),
    )
    return Piece(json_text.text(entry, "file"), place, start)


def _crc(entry: Mapping[str, Any], key: str) -> int:
    return json_text.whole(entry, key, below=2**32)


def _content_crc(content: Mapping[str, Any]) -> int:
    # The checksum is in the same file, so it covers the values and not the bytes.
    compact = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return zlib.crc32(compact.encode())
