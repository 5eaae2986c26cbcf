"""The manifest of a bundle, reading its files safely, and the version folders.

    write_manifest(folder, about)                  # last: it lists every other file
    files = BundleFiles.open(folder)               # reads and checks the manifest
    files.read("signatures.json")                  # checked against size and sha256
    resolve(Path("export"))                        # the newest complete version

A folder without a manifest is a bundle that is still being copied. Hashes detect
accidental damage only, since a manifest may be forged too. So every field is checked,
and no file outside the bundle's folder is opened, whatever names and symbolic links it
has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from estimax.core.errors import BundleError, MissingFileError
from estimax.storage import atomic, files, json_text

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
_CHUNK = 1 << 20
_NUMBER = re.compile(r"[0-9]+")
_SECONDS = re.compile(r"[0-9]{10}")  # names of exports: seconds, until the year 2286
_LARGEST = 2**63 - 1
_AGAIN = "Copy or export the bundle again."


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the list of all files of a folder with sizes and hashes. Call it last."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = {"size": path.stat().st_size, "sha256": _hash_file(path)}
    record = {"format_version": FORMAT_VERSION, **about, "files": files}
    record["checksum"] = _checksum(record)
    (folder / MANIFEST).write_text(json.dumps(record, indent=2) + "\n")


@dataclass(frozen=True)
class BundleFiles:
    """The files of a bundle, read through its manifest."""

    folder: Path
    manifest: Mapping[str, Any]

    @staticmethod
    def open(folder: Path) -> BundleFiles:
        """Read the manifest and check that it is whole and of a known format."""
        path = _inside(folder, MANIFEST)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise BundleError(
                f"{path}: expected a manifest, found none; the bundle is incomplete "
                "or still being copied."
            ) from None
        record = parse_json(path, data)
        _check_format(path, record)
        if record.get("checksum") != _checksum(record):
            raise BundleError(
                f"{path}: expected the checksum {_checksum(record)}, found "
                f"{record.get('checksum')}; the manifest was changed. {_AGAIN}"
            )
        try:
            _check_fields(record)
        except (ValueError, KeyError) as error:
            raise BundleError(f"{path}: {error}. {_AGAIN}") from error
        return BundleFiles(folder, record)

    def read(self, name: str) -> bytes:
        """Return the content of a file, checked against the manifest."""
        self.check(name, content=False)
        data = self.path(name).read_bytes()
        self._compare(name, "sha256", hashlib.sha256(data).hexdigest())
        return data

    def read_json(self, name: str) -> Any:
        """Return the parsed content of a JSON file."""
        return parse_json(self.path(name), self.read(name))

    def path(self, name: str) -> Path:
        """Return the path of a file; raise if its name or a link leads out."""
        return _inside(self.folder, name)

    def check_all(self, *, content: bool) -> None:
        """Check that every listed file exists; with `content`, its hash too."""
        for name in self.manifest["files"]:
            self.check(name, content=content)

    def check(self, name: str, *, content: bool) -> None:
        """Check the size of one file; with `content`, its hash too."""
        path = self.path(name)
        if name not in self.manifest["files"]:
            raise BundleError(f"{path}: the file is not listed in {MANIFEST}.")
        if not path.is_file():
            size = self.manifest["files"][name]["size"]
            raise BundleError(
                f"{path}: expected a file of {size} bytes, found none. {_AGAIN}"
            )
        self._compare(name, "size", path.stat().st_size)
        if content:
            self._compare(name, "sha256", _hash_file(path))

    def _compare(self, name: str, what: str, found: Any) -> None:
        expected = self.manifest["files"][name][what]
        if found != expected:
            raise BundleError(
                f"{self.path(name)}: expected {what} {expected}, found {found}; the "
                f"file is damaged. {_AGAIN}"
            )


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of an evaluation as JSON values.

    >>> plain_metrics({"loss": np.float32(0.5), "curve": np.array([0, 1])})
    {'loss': 0.5, 'curve': [0, 1]}
    """
    return {str(name): _plain(value) for name, value in metrics.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    array = np.asarray(value)
    return array.tolist() if array.dtype.kind in "biuf" else str(value)


def version_folders(base: Path) -> dict[int, Path]:
    """Return version to folder, oldest first. Folders with other names are ignored.

    If two names are the same number (7 and 007), the lexically later one counts.
    """
    if not base.is_dir():
        return {}
    names = (path.name for path in base.iterdir() if path.is_dir())
    return {number: base / name for number, name in version_names(names).items()}


def version_names(names: Iterable[str]) -> dict[int, str]:
    """Return version to name, oldest first, of the names that are versions.

    >>> version_names(["10", "9", "007", "7", "temporary"])
    {7: '7', 9: '9', 10: '10'}
    """
    found = {int(name): name for name in sorted(names) if _NUMBER.fullmatch(name)}
    return {number: found[number] for number in sorted(found) if number <= _LARGEST}


def resolve(path: Path) -> Path:
    """Return `path` if it is a bundle, else the newest complete version under it."""
    if (path / MANIFEST).is_file():
        return path
    if not path.is_dir():
        raise MissingFileError(f"{path}: expected a bundle's folder, found none.")
    complete = [p for p in version_folders(path).values() if (p / MANIFEST).is_file()]
    if not complete:
        raise BundleError(
            f"{path}: expected {MANIFEST}, or version folders that have one; found "
            "neither. The bundle is incomplete, or still being copied."
        )
    return complete[-1]


def next_version(base: Path, now: float) -> int:
    """Return the version of an export at this time: later than all existing ones.

    It is later even if the clock went back, because servers load the newest version.
    """
    exports = [v for v, p in version_folders(base).items() if _is_export(p)]
    return max([int(now), *(version + 1 for version in exports)])


def remove_empty(base: Path, now: float) -> None:
    """Remove empty version folders that a killed export left behind.

    Recent ones stay: another export or a copy may be about to fill them.
    """
    for folder in version_folders(base).values():
        with contextlib.suppress(OSError):  # not empty, or gone
            if now - folder.stat().st_mtime > atomic.DEAD_AFTER_SECONDS:
                folder.rmdir()


def prune(base: Path, keep: int | None, *, protect: Collection[str] = ()) -> list[str]:
    """Remove all but the newest `keep` exports and return the names removed.

    Only folders with names of ten digits are removed, and none in `protect`.
    """
    if keep is None:
        return []
    exports = [p for p in version_folders(base).values() if _is_export(p)]
    doomed = [
        p for p in exports[: max(len(exports) - keep, 0)] if p.name not in protect
    ]
    for folder in doomed:
        atomic.remove_folder(folder)
    return [folder.name for folder in doomed]


def parse_json(path: Path, data: bytes) -> Any:
    """Parse JSON; raise BundleError with the path if it is invalid."""
    try:
        return json_text.parse(data)
    except ValueError as error:
        raise BundleError(
            f"{path}: expected JSON, found invalid text ({error}). {_AGAIN}"
        ) from error


def _check_format(path: Path, record: Any) -> None:
    found = record.get("format_version") if isinstance(record, dict) else None
    if type(found) is not int:
        raise BundleError(
            f"{path}: expected an estimax manifest, found something else. {_AGAIN}"
        )
    if found > FORMAT_VERSION:
        raise BundleError(
            f"{path}: expected format version {FORMAT_VERSION} or older, found "
            f"{found}; the bundle was written by a newer estimax. Update this one."
        )


def _check_fields(record: Mapping[str, Any]) -> None:
    """Raise ValueError or KeyError unless the fields that are read are valid."""
    for name, entry in json_text.mapping(record["files"], "files").items():
        files.check_name(name)
        json_text.whole(json_text.mapping(entry, name), "size")
        json_text.text(entry, "sha256")
    platforms = record["platforms"]
    if not isinstance(platforms, list) or not all(
        isinstance(platform, str) for platform in platforms
    ):
        raise ValueError(f"platforms: expected a list of names, found {platforms!r}")
    # Bundles of earlier versions have none.
    json_text.mapping(record.get("metrics", {}), "metrics")
    if record.get("examples_name") is not None:
        json_text.text(record, "examples_name")


def _inside(folder: Path, name: str) -> Path:
    try:
        return files.regular_file(folder, name)
    except ValueError as error:
        raise BundleError(f"{folder / MANIFEST}: {error}.") from None


def _checksum(record: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _is_export(folder: Path) -> bool:
    return _SECONDS.fullmatch(folder.name) is not None
