"""One trainer per model directory: a lock that a crash cannot leave behind.

    with locks.hold(model_dir, "train"):
        ...                                  # a second trainer gets InUseError at once
    locks.check_held(model_dir)              # before a save: is it still ours?

The lock is a file in the directory that names its holder: host, process id and start
time. Three things tell whether that holder still runs:

- The process id and the start time, if both processes are on one machine and in one
  container. An id that was given out again has another start time.
- The kernel, if both are on one machine: the file is locked with `flock`, where the
  file system has it, and that ends with the process, however it ends.
- Of another machine nothing can be seen. The holder therefore touches the file every
  ten seconds, and the lock is taken over when that has not happened for five minutes.

The time of the last touch is compared with that of a new file in the same directory, so
the clocks of different machines need not agree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from estimax.core.errors import InUseError, MissingFileError
from estimax.wire import atomic, json_text, processes
from estimax.wire.atomic import Pathish
from estimax.wire.processes import Process

if sys.platform != "win32":
    import fcntl

FILE = "training.lock"
TOUCH_SECONDS = 10.0
STALE_SECONDS = 300.0

_log = logging.getLogger("estimax")


@contextlib.contextmanager
def hold(directory: Pathish, purpose: str) -> Iterator[None]:
    """Hold a directory's lock within the block, for one purpose at a time.

    The directory is made if it does not exist. The thread that holds a lock may take
    it again for another purpose, as `train` does inside of `train_and_evaluate`.

    Raises:
      InUseError: Another process, another thread, or this thread for the same
        purpose, holds it; the message says who and what to do.
      MissingFileError: At the end of the block the lock is not there any more.
    """
    os.makedirs(directory, exist_ok=True)
    key = os.path.realpath(directory)
    with _registry:
        held = _held.get(key)
        if held is None:
            held = _held[key] = _Lock(Path(directory))
            is_first = True
        else:
            held.check_reentry(purpose)
            is_first = False
        held.purposes.append(purpose)
    try:
        if is_first:
            held.acquire()
        yield
        check_held(directory)
    finally:
        with _registry:
            held.purposes.remove(purpose)
            if is_first:
                held.release()
                _held.pop(key, None)


def check_held(directory: Pathish) -> None:
    """Raise if this process holds the directory's lock and has lost it.

    Without a lock of this process there is nothing to check.
    """
    held = _held.get(os.path.realpath(directory))
    if held is not None:
        held.check()


def check_free(directory: Pathish) -> None:
    """Raise InUseError if somebody holds the directory's lock."""
    path = Path(directory) / FILE
    if path.exists():
        with hold(directory, "check"):
            pass


@dataclass(frozen=True)
class _Record:
    """What a lock file says of its holder."""

    owner: Process
    boot: str
    since: str
    token: str

    @staticmethod
    def new() -> _Record:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        token = os.urandom(8).hex()
        return _Record(processes.current(), processes.boot(), now, token)

    @staticmethod
    def parse(data: bytes) -> _Record | None:
        """Return what the file says; None if its writer got no further than that."""
        try:
            content = json_text.mapping(json_text.parse(data), FILE)
            owner = Process(
                host=json_text.text(content, "host"),
                pid=json_text.whole(content, "pid"),
                system=json_text.text(content, "system"),
                started=json_text.text(content, "started"),
            )
            others = (json_text.text(content, k) for k in ("boot", "since", "token"))
            return _Record(owner, *others)
        except (ValueError, KeyError):
            return None

    def encoded(self) -> bytes:
        content = dataclasses.asdict(self)
        content |= content.pop("owner")
        return json.dumps(content, indent=1).encode() + b"\n"


class _Lock:
    """The lock of one directory, held or being taken by this process."""

    def __init__(self, directory: Path) -> None:
        self.purposes: list[str] = []
        self._thread = threading.get_ident()
        self._path = directory.absolute() / FILE
        self._record = _Record.new()
        self._file: int | None = None
        self._ended = threading.Event()

    def check_reentry(self, purpose: str) -> None:
        if threading.get_ident() == self._thread and purpose not in self.purposes:
            return
        raise InUseError(
            f"{self._path.parent}: this process is training here already "
            f"({self.purposes[0]}, since {self._record.since}). Two trainings in one "
            "directory would overwrite each other's checkpoints: wait for the other "
            "one, or use another model_dir."
        )

    def acquire(self) -> None:
        for attempt in itertools.count():
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o666)
            except OSError as error:
                error.add_note(f"{self._path.parent}: training has to write here.")
                raise
            try:
                self._file = file if self._take(file, attempt) else None
            finally:
                if self._file is None:
                    os.close(file)
            if self._file is not None:
                break
        touching = threading.Thread(
            target=_keep_touching,
            args=(self._path, self._ended),
            name="estimax-lock",
            daemon=True,
        )
        touching.start()

    def _take(self, file: int, attempt: int) -> bool:
        """Make the file ours; False to try again, InUseError if it is another's."""
        is_locked = _flock(file)
        # Its holder may have removed it just now. Some file systems do not keep the
        # numbers that tell files apart, so this is not asked for ever.
        if attempt < _MOST_ATTEMPTS and not _is_same_file(file, self._path):
            return False
        found = _Record.parse(_read(file))
        if is_locked is False:
            raise self._in_use(found)
        if found is not None:
            running = processes.is_running(found.owner)
            if running and found.owner != processes.current():
                raise self._in_use(found)
            if running is None and not self._is_stale(file, found, is_locked):
                raise self._in_use(found, from_elsewhere=True)
            _log.info("%s: taken over from %s, which ended", self._path, _who(found))
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        with atomic.names_file(self._path):
            # Not os.write, which may write a part and raise nothing.
            with open(file, "wb", closefd=False) as opened:
                opened.write(self._record.encoded())
            os.fsync(file)
        return True

    def _is_stale(self, file: int, found: _Record, is_locked: bool | None) -> bool:
        """Whether a holder that cannot be seen from here has ended."""
        # On one kernel a file that could be locked has no holder. A machine of our
        # name with another boot is this one before it was restarted.
        same_kernel = found.boot == processes.boot()
        same_host = found.owner.host == processes.current().host
        if is_locked and (same_kernel or same_host):
            return True
        now = atomic.file_system_time(self._path.parent)
        return now - os.fstat(file).st_mtime > STALE_SECONDS

    def check(self) -> None:
        """Raise unless the lock file is there and ours."""
        directory, found = self._path.parent, self._current()
        if found is not None and found.token == self._record.token:
            return
        if not directory.is_dir():
            raise MissingFileError(
                f"{directory} was deleted while it was trained in, and its checkpoints "
                "with it. Start training again."
            )
        if found is None:
            raise MissingFileError(
                f"{self._path} is gone: {directory} was deleted, emptied or replaced "
                "while it was trained in, or somebody removed the lock. This training "
                "stops, so as not to write beside another one."
            )
        raise InUseError(
            f"{directory} was taken over by another training, {_who(found)}: this one "
            f"was silent for over {STALE_SECONDS:.0f} s, or its lock was removed. It "
            "stops, so as not to write beside the other one."
        )

    def release(self) -> None:
        self._ended.set()
        if self._file is None:
            return
        found = self._current()
        is_ours = found is not None and found.token == self._record.token
        if sys.platform == "win32":  # where an open file cannot be removed
            os.close(self._file)
        # Removed while it is locked, never after: it might be another's by then.
        if is_ours:
            self._path.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(self._file)
        self._file = None

    def _current(self) -> _Record | None:
        """Return what the lock file says now; None if there is none."""
        try:
            return _Record.parse(self._path.read_bytes())
        except OSError:
            return None

    def forget(self) -> None:
        """Let go of the file in a forked child, without unlocking the parent's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _in_use(
        self, found: _Record | None, *, from_elsewhere: bool = False
    ) -> InUseError:
        directory = self._path.parent
        who = "another process" if found is None else _who(found)
        if from_elsewhere:
            advice = (
                "Whether it still runs cannot be seen from here. If it does not, wait "
                f"until its lock is {STALE_SECONDS:.0f} s old, or remove {self._path}."
            )
        else:
            advice = "Wait until it has ended, stop it, or use another model_dir."
        return InUseError(
            f"{directory} is being trained in by {who}. Two trainings in one directory "
            f"would overwrite each other's checkpoints. {advice}"
        )


_registry = threading.Lock()
_held: dict[str, _Lock] = {}  # by real path
_MOST_ATTEMPTS = 20
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


def _flock(file: int) -> bool | None:
    """Lock a file; False if another process has it locked, None if that is unknown."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # not on this file system
        return None
    return True


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, 1 << 16)


def _keep_touching(path: Path, ended: threading.Event) -> None:
    """Touch the file that is at `path` now, not one that may take its place."""
    # `check` tells when the file is gone.
    with contextlib.suppress(OSError), open(path, "rb") as file:
        while not ended.wait(TOUCH_SECONDS):
            os.utime(file.fileno() if os.utime in os.supports_fd else path)


def _who(found: _Record) -> str:
    owner = found.owner
    return f"process {owner.pid} on {owner.host} (since {found.since})"


def _forget_in_child() -> None:
    # A child that outlives us would keep the lock: it shares the open file.
    global _registry
    _registry = threading.Lock()
    for held in _held.values():
        held.forget()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
