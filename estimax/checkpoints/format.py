"""The files of a checkpoint: a folder with a safetensors file and a JSON manifest.

    format.write(model_dir / "model.ckpt-100", arrays, 100, {"input": position})
    checkpoint = format.read(model_dir / "model.ckpt-100")
    checkpoint.step, checkpoint.arrays["dnn/logits/kernel"], checkpoint.extra

Writing is atomic: the folder is written under a temporary name and renamed. Reading
verifies sizes and checksums, also that of the manifest, because a flipped bit in the
input position would resume at another place. Checksums find accidents, not forgeries,
so every field of the manifest is checked as well: files must be inside the folder, and
arrays inside their files.
"""

from __future__ import annotations

import dataclasses
import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError, MissingFileError, did_you_mean
from estimax.wire import atomic, files, json_text, tensors
from estimax.wire.atomic import Pathish

VERSION = 1
MANIFEST = "manifest.json"
STATE_FILE = "state-00000-of-00001.safetensors"


@dataclass(frozen=True)
class FileEntry:
    """Size and CRC-32 of one file of a checkpoint."""

    size: int
    crc: int


@dataclass(frozen=True)
class ArrayEntry:
    """One array of a checkpoint: its file, and dtype, shape and offset there."""

    file: str
    place: tensors.Entry

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.place.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's dtype."""
        return tensors.dtype_from_name(self.place.dtype, where=self.file)


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
    """A checkpoint in memory: step, arrays by name, and the extra JSON value."""

    step: int
    arrays: dict[str, NDArray[Any]]
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
        layout = tensors.write(temporary / STATE_FILE, arrays)
        files = {STATE_FILE: FileEntry(layout.size, layout.crc)}
        entries = {n: ArrayEntry(STATE_FILE, e) for n, e in layout.entries.items()}
        manifest = Manifest(int(step), time.time(), files, entries, extra)
        (temporary / MANIFEST).write_bytes(_encoded(manifest))
    return final


def read(folder: Pathish) -> Checkpoint:
    """Read a whole checkpoint; raise CheckpointError if it is damaged."""
    path = Path(folder)
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    arrays: dict[str, NDArray[Any]] = {}
    for name, file in manifest.files.items():
        inside = {n: a.place for n, a in manifest.arrays.items() if a.file == name}
        arrays |= tensors.read_all(file_path(path, name), inside, file.crc)
    return Checkpoint(manifest.step, arrays, manifest.extra)


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
    path = file_path(Path(folder), entry.file)
    try:
        return tensors.read(path, entry.place, name)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing.") from None


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
        if not path.parent.is_dir():
            raise MissingFileError(f"there is no checkpoint {path.parent}.") from None
        raise CheckpointError(f"{path} is missing: incomplete checkpoint.") from None
    return _decoded(data, path)


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
    if manifest.extra != _with_lists(extra):
        return False
    return manifest.arrays.keys() == arrays.keys() and all(
        tensors.is_same(entry.place, arrays[name])
        for name, entry in manifest.arrays.items()
    )


def check_extra(extra: Any) -> None:
    """Raise CheckpointError if `extra` would change when written as JSON and read."""
    try:
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


def _encoded(manifest: Manifest) -> bytes:
    content = {
        "format": "estimax checkpoint",
        "version": VERSION,
        "step": manifest.step,
        "written_at": manifest.written_at,
        "files": {
            name: {"size": file.size, "crc32": file.crc}
            for name, file in manifest.files.items()
        },
        "arrays": {
            name: {"file": array.file, **_place_to_json(array.place)}
            for name, array in manifest.arrays.items()
        },
        "extra": manifest.extra,
    }
    text = json.dumps({**content, "crc32": _content_crc(content)}, indent=1)
    return text.encode() + b"\n"


def _decoded(data: bytes, path: Path) -> Manifest:
    try:
        content = dict(json_text.mapping(json_text.parse(data), "the manifest"))
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
        return _checked(content)
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        missing = isinstance(error, KeyError)
        reason = f"{error} is missing" if missing else error
        raise CheckpointError(f"{path} is damaged: {reason}.") from error


def _checked(content: Mapping[str, Any]) -> Manifest:
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
        if array.file not in files:
            raise ValueError(f"array {name!r}: its file {array.file!r} is not listed")
    for name, file in files.items():
        inside = {n: a.place for n, a in arrays.items() if a.file == name}
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


def _array_from_json(entry: Mapping[str, Any]) -> ArrayEntry:
    place = tensors.Entry(
        dtype=json_text.text(entry, "dtype"),
        shape=json_text.dimensions(entry, "shape"),
        offset=json_text.whole(entry, "offset"),
        size=json_text.whole(entry, "size"),
        crc_before=_crc(entry, "crc_before"),
        crc_after=_crc(entry, "crc_after"),
    )
    return ArrayEntry(json_text.text(entry, "file"), place)


def _crc(entry: Mapping[str, Any], key: str) -> int:
    return json_text.whole(entry, key, below=2**32)


def _place_to_json(place: tensors.Entry) -> dict[str, Any]:
    return dataclasses.asdict(place) | {"shape": list(place.shape)}


def _content_crc(content: Mapping[str, Any]) -> int:
    # The checksum is in the same file, so it covers the values and not the bytes.
    compact = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return zlib.crc32(compact.encode())
