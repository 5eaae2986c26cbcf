"""Find the versions of a model on disk.

    list_versions(Path("/models/ctr"))      # {7: VersionFolder(.../ctr/7, ...)}

One folder that cannot be read hides no other: it is listed, and loading it fails with
the reason. Only if the folder of the model itself cannot be read is there no list.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from estimax.export.manifest import MANIFEST, version_names

Stamp = tuple[int, int, int]  # inode, time and size of a manifest


@dataclass(frozen=True)
class VersionFolder:
    """The folder of a version that is complete.

    Attributes:
      path: The folder.
      stamp: Changes when the manifest is written again; None if it cannot be read.
    """

    path: Path
    stamp: Stamp | None


def list_versions(base: Path) -> dict[int, VersionFolder]:
    """Return the complete versions under a folder, or the one bundle that it is.

    Raises:
      OSError: The folder cannot be read.
      ValueError: The path has a zero byte.
    """
    own = _stamp(base / MANIFEST)
    if own is not None:
        return {
            int(base.name) if base.name.isdecimal() else 1: VersionFolder(base, own)
        }
    found = {}
    for number, name in version_names(os.listdir(base)).items():
        path = base / name
        try:
            stamp = _stamp(path / MANIFEST)
        except OSError:
            found[number] = VersionFolder(path, None)
        else:
            if stamp is not None:
                found[number] = VersionFolder(path, stamp)
    return found


def _stamp(manifest: Path) -> Stamp | None:
    """Return the stamp of a manifest; None if there is no such file."""
    try:
        found = os.stat(manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None  # the folder is still being copied, or is no folder
    if not stat.S_ISREG(found.st_mode):
        return None  # reading a pipe would never end
    return found.st_ino, found.st_mtime_ns, found.st_size
