"""Write files and folders atomically: a crash leaves the old one or the new one.

    atomic.write_json(path, {"step": 100})
    with atomic.folder(model_dir / "model.ckpt-100") as temporary:
        (temporary / "weights").write_bytes(data)

Everything is written under a temporary name in the same directory, fsynced, and then
renamed. A killed process leaves at most its temporaries. Their names say which process
made them (see `processes`), and `remove_leftovers` removes those of processes that have
ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from estimax.storage import processes
from estimax.storage.files import Pathish as Pathish

# A temporary without a write for so long is a leftover if its process cannot be seen,
# being of another container or boot. With our host name, it is most likely a process of
# this container before a restart, but it may still be writing.
DEAD_AFTER_SECONDS = 60.0
# The same for processes of another host.
FOREIGN_AFTER_SECONDS = 24 * 3600.0

_PREFIX = ".estimax-tmp"
_NAME = re.compile(
    re.escape(_PREFIX) + r"-(?P<host>.*)-(?P<pid>\d+)"
    # Names made by older versions lack this part.
    r"(?:-s(?P<system>[0-9a-f]{8})t(?P<started>[0-9a-f]*))?"
    r"-\d+-[0-9a-f]{8}~(?P<final>.*)"
)
# Constants of Linux for renameat2: swap the two paths; relative to the current folder.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# The errors of `write`, `fsync` and `close` when a disk is full or broken.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_counter = itertools.count()
_in_use: set[str] = set()  # names of the temporaries that this process is writing


def write_bytes(path: Pathish, data: bytes) -> None:
    """Write a file atomically: readers see the old content or the new content."""
    with file(path) as opened:
        opened.write(data)


@contextlib.contextmanager
def file(final_path: Pathish) -> Iterator[BinaryIO]:
    """Yield a new file that is renamed to `final_path` when the block ends.

    If the block raises, the new file is removed and `final_path` stays as it was.
    """
    final = Path(final_path)
    temporary = _temporary_beside(final)
    _in_use.add(temporary.name)
    try:
        with names_file(final), open(temporary, "xb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, final)
        sync_directory(final.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        _in_use.discard(temporary.name)


def write_json(path: Pathish, value: Any) -> None:
    """Write a JSON file atomically, indented to be readable."""
    write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


@contextlib.contextmanager
def folder(final_path: Pathish) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `final_path` when the block ends.

    An existing folder is replaced. If the block raises, the new folder is removed and
    `final_path` stays as it was.
    """
    final = Path(final_path)
    temporary = _temporary_beside(final)
    _in_use.add(temporary.name)
    try:
        temporary.mkdir()
        with names_file(final):
            yield temporary
            _sync_tree(temporary)
        _move_in(temporary, final)
        sync_directory(final.parent)
    finally:
        # After a replacement, the temporary name holds the old folder.
        shutil.rmtree(temporary, ignore_errors=True)
        _in_use.discard(temporary.name)


@contextlib.contextmanager
def names_file(path: Pathish) -> Iterator[None]:
    """Set the file name of an `OSError` for a full disk, which has none by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_ERRORS:
            error.filename = os.fspath(path)
        raise


def remove_folder(path: Pathish) -> None:
    """Remove a folder atomically: readers find all of it or nothing."""
    doomed = Path(path)
    temporary = _temporary_beside(doomed)
    _in_use.add(temporary.name)
    try:
        os.rename(doomed, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
    finally:
        _in_use.discard(temporary.name)


def remove_leftovers(
    directory: Pathish,
    *,
    depth: int = 0,
    sole_writer_of: Callable[[str], bool] = lambda name: False,
    now: float | None = None,
) -> list[str]:
    """Remove the temporaries of processes that have ended.

    Temporaries of running processes are never removed. A process of another container
    or host cannot be seen. Its temporaries are removed if they were not written to for
    a minute (same host name) or a day (another host).

    Args:
      directory: Where to look.
      depth: How many levels of folders inside `directory` to look into as well. Links
        are not followed.
      sole_writer_of: Returns for the final name of a file whether the caller knows, by
        a lock, that no other process writes it. Temporaries of such files are removed
        without waiting, unless their process is known to run.
      now: The time in seconds since 1970, by default the present time.

    Returns:
      The names of the temporaries that were removed.
    """
    removed = []
    now = time.time() if now is None else now
    for entry in sorted(_entries(directory)):
        match = _NAME.fullmatch(entry.name)
        if match is None:
            if depth and entry.is_dir() and not entry.is_symlink():
                removed += remove_leftovers(
                    entry, depth=depth - 1, sole_writer_of=sole_writer_of, now=now
                )
            continue
        if entry.name in _in_use:
            continue
        patience = _patience(match)
        if sole_writer_of(match["final"]) and patience < math.inf:
            # Even if the file is from the future by our clock.
            patience = -math.inf
        if now - _last_written(entry) < patience:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
        removed.append(entry.name)
    return removed


def file_system_time(directory: Pathish) -> float:
    """Return the present time by the clock of the file system of a directory.

    Network file systems have a clock of their own, which may differ from the local one.
    """
    path = _temporary_beside(Path(directory) / "time")
    _in_use.add(path.name)
    try:
        path.touch(exist_ok=False)
        return path.stat().st_mtime
    finally:
        path.unlink(missing_ok=True)
        _in_use.discard(path.name)


def sync_file(path: Pathish) -> None:
    """Flush the content of a file to disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Pathish) -> None:
    """Flush the names in a directory to disk; fsync of a file flushes its content."""
    if sys.platform == "win32":  # directories cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_beside(final: Path) -> Path:
    """Return a new name in the same folder that identifies this process."""
    # The system and the start time tell this process from an earlier one with the same
    # id, such as the first process of a container before a restart. The random part is
    # for platforms where both are unknown.
    me = processes.current()
    owner = f"{me.host}-{me.pid}-s{me.system}t{me.started}-{next(_counter)}"
    return final.parent / f"{_PREFIX}-{owner}-{os.urandom(4).hex()}~{final.name}"


def _sync_tree(root: Path) -> None:
    for parent, _, files in os.walk(root):
        for name in files:
            sync_file(os.path.join(parent, name))
        sync_directory(parent)


def _move_in(temporary: Path, final: Path) -> None:
    """Rename a folder to its final name, in exchange for a folder of that name."""
    try:
        os.rename(temporary, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return
    if _exchange_paths(temporary, final):
        return
    # The platform cannot exchange. Between the two renames `final` does not exist; both
    # folders are complete then, under temporary names.
    aside = _temporary_beside(final)
    os.rename(final, aside)
    os.rename(temporary, final)
    shutil.rmtree(aside, ignore_errors=True)


def _exchange_paths(one: Path, other: Path) -> bool:
    """Swap two paths atomically; return False if the platform cannot.

    Linux can since version 3.15.
    """
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    at = _AT_FDCWD
    return bool(rename(at, paths[0], at, paths[1], _RENAME_EXCHANGE) == 0)


def _entries(directory: Pathish) -> list[Path]:
    try:
        return list(Path(directory).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _patience(name: re.Match[str]) -> float:
    """Return the seconds without a write after which a temporary is a leftover."""
    owner = processes.Process(
        name["host"], int(name["pid"]), name["system"] or "", name["started"] or ""
    )
    me = processes.current()
    if owner == me:  # and the name is not in `_in_use`
        return DEAD_AFTER_SECONDS
    running = processes.is_running(owner)
    if running is not None:
        return math.inf if running else 0.0
    if owner.host != me.host:
        return FOREIGN_AFTER_SECONDS
    # The process cannot be seen. Names of older versions do not say which system it
    # belongs to: if the id exists here, it may be the writer, so wait longer.
    if name["system"] is None and owner.pid != me.pid and processes.exists(owner.pid):
        return FOREIGN_AFTER_SECONDS
    return DEAD_AFTER_SECONDS


def _last_written(path: Path) -> float:
    """Return the time of the last write to a file, or to a folder and its files."""
    try:
        inside = [entry.stat().st_mtime for entry in path.glob("*")]
        return max([path.stat().st_mtime, *inside])
    except FileNotFoundError:  # the owner has just renamed it
        return float("inf")
