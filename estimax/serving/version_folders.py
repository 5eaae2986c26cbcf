"""The folders of versions: on a disk, or in an object store with a copy on the disk.

    found = list_versions("s3://bucket/models/ctr")     # or "/models/ctr"
    found[7].fetch(check)                               # does nothing for a local one
    found[7].path                                       # the folder to load

Copies are in the cache of the user, one for each state of a version, so that several
servers of a machine share them. A version that is replaced in the store under its
number has another manifest, and thus another copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from estimax.core.errors import BundleError, ConfigError
from estimax.core.machine import user_cache_folder
from estimax.export.manifest import MANIFEST, version_names
from estimax.serving.threads import LoadStoppedError
from estimax.storage import atomic, files

Stamp = tuple[int, ...]  # inode, time and size of a manifest; in a store the last two
_OF_PYARROW: Final = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
_KEPT_SECONDS: Final = 24 * 3600.0  # of a copy whose version has left the store
_PART: Final = 8 << 20  # bytes that are copied between two checks


@dataclass(frozen=True)
class VersionFolder:
    """The folder of a version that is complete.

    Attributes:
      path: The folder; of a version in an object store, that of the copy.
      stamp: Changes when the manifest is written again; None if it cannot be read.
      url: Where the version is in an object store; "" for a local one.
    """

    path: Path
    stamp: Stamp | None
    url: str = ""

    def __str__(self) -> str:
        return self.url or str(self.path)

    def fetch(self, check: Callable[[], None] = lambda: None) -> None:
        """Copy the version from the object store, unless the copy exists.

        Args:
          check: Called between the parts of a file; raises to stop.

        Raises:
          BundleError: The store cannot be read, or the disk cannot be written.
        """
        if not self.url or (self.path / MANIFEST).is_file():
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic.remove_leftovers(self.path.parent)
            system, top, _ = files.file_system(self.url)
            # The copy has its name when it is complete.
            with atomic.folder(self.path) as copy:
                for source, name in _files_below(system, top):
                    target = copy / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with (
                        system.open_input_stream(source) as reader,
                        open(target, "wb") as writer,
                    ):
                        while part := reader.read(_PART):
                            check()
                            writer.write(part)
        except LoadStoppedError:
            raise
        except Exception as error:  # of any kind: each file system has its own
            told = files.reason(error)
            raise BundleError(
                f"{self.url}: the version cannot be copied to {self.path}: {told}."
            ) from error


def local_folder(base: str) -> Path:
    """Return the folder of the versions of a model, or of their copies."""
    if not files.is_remote(base):
        return Path(base)
    digest = hashlib.sha256(base.rstrip("/").encode()).hexdigest()[:16]
    return user_cache_folder() / "estimax" / "models" / digest


def check_store(url: str) -> None:
    """Raise an error if no installed package reads a kind of store; contacts none.

    Raises:
      ConfigError: There is none.
    """
    scheme = url.partition("://")[0]
    if scheme in _OF_PYARROW:  # making one of these may wait for the network
        return
    try:
        files.file_system(url)
    except Exception as error:  # of any kind: each file system has its own
        raise ConfigError(
            f"{url}: no installed package reads {scheme}://: {files.reason(error)}. "
            "Expected a folder, or a URL such as s3://bucket/models or "
            "gs://bucket/models; other stores need their package of fsspec."
        ) from None


def list_versions(base: str) -> dict[int, VersionFolder]:
    """Return the complete versions under a folder, or the one bundle that it is.

    Raises:
      OSError: The folder, or the object store, cannot be read.
      ValueError: The path has a zero byte, or there is no such kind of store.
    """
    # The manifest is written last, so a folder with one is complete.
    return _in_store(base) if files.is_remote(base) else _on_disk(Path(base))


def _on_disk(base: Path) -> dict[int, VersionFolder]:
    own = _stamp(base / MANIFEST)
    if own is not None:
        return {_number(base.name): VersionFolder(base, own)}
    found = {}
    for number, name in version_names(os.listdir(base)).items():
        path = base / name
        try:
            stamp = _stamp(path / MANIFEST)
        except OSError:
            # Listed all the same: loading it fails with the reason, which the status of
            # the model shows.
            found[number] = VersionFolder(path, None)
        else:
            if stamp is not None:
                found[number] = VersionFolder(path, stamp)
    return found


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 1


def _stamp(manifest: Path) -> Stamp | None:
    """Return the stamp of a manifest; None if there is no such file."""
    try:
        found = os.stat(manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None  # the folder is still being copied, or is no folder
    if not stat.S_ISREG(found.st_mode):
        return None  # reading a pipe would never end
    return found.st_ino, found.st_mtime_ns, found.st_size


def _in_store(base: str) -> dict[int, VersionFolder]:
    from pyarrow import fs

    url = base.rstrip("/")
    system, top, _ = files.file_system(url)
    names = {info.base_name for info in system.get_file_info(fs.FileSelector(top))}
    if MANIFEST in names:
        chosen = {_number(posixpath.basename(top)): ""}
    else:
        chosen = version_names(names)
    paths = [posixpath.join(top, name, MANIFEST) for name in chosen.values()]
    found = {}
    for (number, name), manifest in zip(
        chosen.items(), system.get_file_info(paths), strict=True
    ):
        if manifest.is_file:
            stamp = (manifest.mtime_ns or 0, manifest.size or 0)
            copy = f"{number}-{stamp[0]:x}-{stamp[1]:x}"
            here = f"{url}/{name}" if name else url
            found[number] = VersionFolder(local_folder(base) / copy, stamp, here)
    _remove_old_copies(local_folder(base), {each.path.name for each in found.values()})
    return found


def _files_below(system: Any, top: str) -> Iterator[tuple[str, str]]:
    """Yield each file under a folder of a store, and its path relative to the folder.

    Raises:
      ValueError: The name of a file is not a relative path inside the folder.
    """
    from pyarrow import fs

    for info in system.get_file_info(fs.FileSelector(top, recursive=True)):
        if info.is_file:
            name = posixpath.relpath(info.path, top)
            files.check_name(name)
            yield info.path, name


def _remove_old_copies(folder: Path, kept: set[str]) -> None:
    """Remove copies of versions that left the store: their disk would fill up.

    Not at once, because another server may have listed the store earlier. A server that
    has loaded a copy does not need its folder any more.
    """
    try:
        copies = list(os.scandir(folder))
    except OSError:  # there is none yet
        return
    for copy in copies:
        if copy.name in kept or not copy.name.partition("-")[0].isdecimal():
            continue
        with contextlib.suppress(FileNotFoundError):  # another server removed it
            if time.time() - copy.stat().st_ctime > _KEPT_SECONDS:
                shutil.rmtree(copy.path, ignore_errors=True)
