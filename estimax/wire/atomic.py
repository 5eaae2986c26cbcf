"""Files and folders that are there whole or not at all, whenever the power goes.

    atomic.write_json(path, {"step": 100})
    with atomic.folder(model_dir / "model.ckpt-100") as temporary:
        (temporary / "weights").write_bytes(data)

Everything is written beside its place under a temporary name, fsynced, and renamed in.
A process that is killed leaves at most a temporary; `remove_leftovers` finds those: the
name says which process made it (see `processes`).
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

from estimax.wire import processes

Pathish = str | os.PathLike[str]

# Processes of another container or boot cannot be seen. With our host name they are
# most likely those of this container before it was restarted, but they may be writing.
DEAD_AFTER_SECONDS = 60.0
# For processes of another host only age tells.
FOREIGN_AFTER_SECONDS = 24 * 3600.0

_PREFIX = ".estimax-tmp"
_NAME = re.compile(
    re.escape(_PREFIX) + r"-(?P<host>.*)-(?P<pid>\d+)"
    # Absent in names that older versions made.
    r"(?:-s(?P<system>[0-9a-f]{8})t(?P<started>[0-9a-f]*))?"
    r"-\d+-[0-9a-f]{8}~(?P<final>.*)"
)
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# What `write`, `fsync` and `close` fail with when a disk is full or broken.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_counter = itertools.count()
_in_use: set[str] = set()  # names of this process's temporaries


def write_bytes(path: Pathish, data: bytes) -> None:
    """Write a file whole; readers see the old content or the new, never a part."""
    with file(path) as opened:
        opened.write(data)


@contextlib.contextmanager
def file(final_path: Pathish) -> Iterator[BinaryIO]:
    """Yield a new file that takes `final_path` at a clean exit.

    After an exception nothing has changed.
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
    """Write a JSON file whole, indented for people."""
    write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


@contextlib.contextmanager
def folder(final_path: Pathish) -> Iterator[Path]:
    """Yield an empty folder that takes `final_path` at a clean exit.

    A folder that is already there is replaced. After an exception nothing has changed.
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
        # After a replacement the temporary name holds what was there before.
        shutil.rmtree(temporary, ignore_errors=True)
        _in_use.discard(temporary.name)


@contextlib.contextmanager
def names_file(path: Pathish) -> Iterator[None]:
    """Add `path` to an error of a full disk, which the system raises without a name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_ERRORS:
            error.filename = os.fspath(path)
        raise


def remove_folder(path: Pathish) -> None:
    """Remove a folder so that no reader ever finds it half empty."""
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
    """Remove the temporaries of processes that ended; return their names.

    Those of running processes are never removed. A process of another container or
    host cannot be seen: its temporaries are removed when nothing was written to them
    for a minute (same host name) or a day.

    Args:
      directory: Where to look.
      depth: How many levels of folders inside to look into as well; links are not
        followed.
      sole_writer_of: Tells for a file's final name whether the caller knows, by a lock,
        that no other process writes it. Temporaries of such files are removed
        without waiting, unless their process is seen to run.
      now: The time in seconds since 1970.
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
            patience = -math.inf  # whatever clock the file's time is of
        if now - _last_written(entry) < patience:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
        removed.append(entry.name)
    return removed


def file_system_time(directory: Pathish) -> float:
    """Return the time that the file system gives to a new file in a directory.

    It may differ from this machine's clock: network file systems have their own.
    """
    path = _temporary_beside(Path(directory) / "time")
    _in_use.add(path.name)
    try:
        path.touch(exist_ok=False)
        return path.stat().st_mtime
    finally:
        path.unlink(missing_ok=True)
        _in_use.discard(path.name)


def sync_directory(path: Pathish) -> None:
    """Make the names in a directory durable, not only the content behind them."""
    if sys.platform == "win32":  # directories cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_beside(final: Path) -> Path:
    # The system and the start time tell us from a process that had our id before, as
    # the first process of a restarted container has; the random part is for systems
    # that know neither.
    me = processes.current()
    owner = f"{me.host}-{me.pid}-s{me.system}t{me.started}-{next(_counter)}"
    return final.parent / f"{_PREFIX}-{owner}-{os.urandom(4).hex()}~{final.name}"


def _sync_tree(root: Path) -> None:
    for parent, _, files in os.walk(root):
        for name in files:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
        sync_directory(parent)


def _move_in(temporary: Path, final: Path) -> None:
    try:
        os.rename(temporary, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return
    if _exchanged(temporary, final):
        return
    # No exchange on this system: for an instant neither is in place. Both are
    # complete then, under temporary names.
    aside = _temporary_beside(final)
    os.rename(final, aside)
    os.rename(temporary, final)
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two paths in one step, where the system can (Linux since 3.15)."""
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
    """Return after how many seconds without a write a temporary is a leftover."""
    owner = processes.Process(
        name["host"], int(name["pid"]), name["system"] or "", name["started"] or ""
    )
    me = processes.current()
    if owner == me:  # and not in use
        return DEAD_AFTER_SECONDS
    running = processes.is_running(owner)
    if running is not None:
        return math.inf if running else 0.0
    if owner.host != me.host:
        return FOREIGN_AFTER_SECONDS
    # Not visible; if a process of ours has that id, it is likely not the same one.
    if name["system"] is None and owner.pid != me.pid and processes.exists(owner.pid):
        return FOREIGN_AFTER_SECONDS
    return DEAD_AFTER_SECONDS


def _last_written(path: Path) -> float:
    try:
        inside = [entry.stat().st_mtime for entry in path.glob("*")]
        return max([path.stat().st_mtime, *inside])
    except FileNotFoundError:  # its owner just finished
        return float("inf")
