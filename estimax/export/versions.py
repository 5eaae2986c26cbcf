"""Version folders: children of a base folder whose whole name is a number.

export/final/1700000000/     # named by the second of the export
export/final/1700000123/     # newer, and what is loaded from export/final
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from pathlib import Path

from estimax.core.errors import BundleError, MissingFileError
from estimax.export.manifest import MANIFEST
from estimax.wire import atomic

_NUMBER = re.compile(r"[0-9]+")
_SECONDS = re.compile(r"[0-9]{10}")  # what exports are called until the year 2286
_LARGEST = 2**63 - 1


def version_folders(base: Path) -> dict[int, Path]:
    """Version -> folder, oldest first; other names are nobody's version.

    Of two spellings of one number (7 and 007) the lexically later one counts.
    """
    if not base.is_dir():
        return {}
    named = sorted(p for p in base.iterdir() if _NUMBER.fullmatch(p.name))
    found = {int(p.name): p for p in named if p.is_dir()}
    return {v: found[v] for v in sorted(found) if v <= _LARGEST}


def resolve(path: Path) -> Path:
    """The bundle that a path means: itself, or the newest version under it."""
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
    """The version for an export at this time: later than all that are there.

    Later even when the clock went back: the newest export is the one served.
    """
    exports = [v for v, p in version_folders(base).items() if _is_export(p)]
    return max([int(now), *(version + 1 for version in exports)])


def remove_empty(base: Path, now: float) -> None:
    """Remove version folders that a killed export has made and not filled.

    Younger ones may be of an export, or of a copy, that is under way.
    """
    for folder in version_folders(base).values():
        with contextlib.suppress(OSError):  # not empty, or gone
            if now - folder.stat().st_mtime > atomic.DEAD_AFTER_SECONDS:
                folder.rmdir()


def prune(base: Path, keep: int | None, *, protect: Collection[str] = ()) -> list[str]:
    """Remove all but the newest `keep` exports; returns the names removed.

    Only names of exactly ten digits are considered, and never the protected ones.
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


def _is_export(folder: Path) -> bool:
    return _SECONDS.fullmatch(folder.name) is not None
