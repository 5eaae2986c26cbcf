"""Files and folders that are there whole or not at all, whenever the power goes.

    atomic.write_json(path, {"step": 100})
    with atomic.folder(model_dir / "model.ckpt-100") as temporary:
        (temporary / "weights").write_bytes(data)

Everything is written beside its place under a temporary name, fsynced, and renamed in.
A process that is killed leaves at most a temporary; `remove_leftovers` finds those.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

Pathish = str | os.PathLike[str]

# A dead process's temporaries go after a minute: its id may belong to another
# container that shares our host name, and is then still writing.
DEAD_AFTER_SECONDS = 60.0
# Another host's processes cannot be seen, and ids are given out again: only age tells.
FOREIGN_AFTER_SECONDS = 24 * 3600.0

_PREFIX = ".estimax-tmp"
_NAME = re.compile(re.escape(_PREFIX) + r"-(?P<host>.*)-(?P<pid>\d+)-\d+-[0-9a-f]{8}~")
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


def remove_leftovers(directory: Pathish, *, now: float | None = None) -> list[str]:
    """Remove the temporaries of processes that died; returns their names.

    Those of running processes stay, and those of other hosts until they are a day old.
    """
    removed = []
    now = time.time() if now is None else now
    for entry in sorted(_entries(directory)):
        match = _NAME.match(entry.name)
        if match is None or entry.name in _in_use:
            continue
        limit = DEAD_AFTER_SECONDS if _is_dead(match) else FOREIGN_AFTER_SECONDS
        if now - _last_written(entry) < limit:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
        removed.append(entry.name)
    return removed


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
    # The random part tells us from a process that had our id in an earlier life, as
    # the first process of a restarted container has.
    owner = f"{socket.gethostname()}-{os.getpid()}-{next(_counter)}"
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
    except FileNotFoundError:
        return []


def _is_dead(name: re.Match[str]) -> bool:
    if name["host"] != socket.gethostname():
        return False
    pid = int(name["pid"])
    if pid == os.getpid():  # not in use, so from an earlier life of this id
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _last_written(path: Path) -> float:
    try:
        inside = [entry.stat().st_mtime for entry in path.glob("*")]
        return max([path.stat().st_mtime, *inside])
    except FileNotFoundError:  # its owner just finished
        return float("inf")
