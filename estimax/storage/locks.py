"""A lock that allows one writer per directory, and that a crash releases.

    with locks.hold(model_dir, "train"):
        ...                                  # a second training raises InUseError
    locks.check_held(model_dir)              # before a save: is the lock still ours?
    locks.hold(folder, "score", SCORING)     # another activity, with a file of its own

The lock is a file in the directory that names its holder: host, process id and start
time. Whether the holder still runs is decided in three ways:

- By process id and start time, if both processes run on one machine in one container.
  A reused id has another start time.
- By the kernel, if both run on one machine: the file is locked with `flock`, if the
  file system supports it, and the kernel unlocks it when the process ends.
- By time, if the holder runs on another machine: the holder touches the file every ten
  seconds, and the lock is taken over if that has not happened for five minutes.

The time of the last touch is compared with the time of a new file in the same
directory, so the clocks of different machines need not agree.
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
from estimax.storage import atomic, json_text, processes
from estimax.storage.atomic import Pathish
from estimax.storage.processes import Process

if sys.platform != "win32":
    import fcntl

FILE = "training.lock"
TOUCH_SECONDS = 10.0
STALE_SECONDS = 300.0

_log = logging.getLogger("estimax")


@dataclass(frozen=True)
class Activity:
    """What only one process may do in a directory, as messages call it."""

    file: str  # the name of the lock file
    name: str  # "training"
    harm: str  # what two of them would do
    instead: str  # how to avoid it


TRAINING = Activity(
    FILE,
    "training",
    "Two trainings in one directory would overwrite each other's checkpoints.",
    "use another model_dir",
)


@contextlib.contextmanager
def hold(
    directory: Pathish, purpose: str, activity: Activity = TRAINING
) -> Iterator[None]:
    """Hold the lock of an activity in a directory, for one purpose at a time.

    The directory is created if it does not exist. The thread that holds a lock may take
    it again for another purpose, as `train` does inside of `train_and_evaluate`.

    Raises:
      InUseError: Another process or thread holds the lock, or this thread holds it for
        the same purpose. The message says who and what to do.
      MissingFileError: The lock file was removed before the end of the block.
    """
    os.makedirs(directory, exist_ok=True)
    key = _key(directory, activity)
    with _registry:
        held = _held.get(key)
        if held is None:
            held = _held[key] = _Lock(Path(directory), activity)
            is_first = True
        else:
            held.check_reentry(purpose)
            is_first = False
        held.purposes.append(purpose)
    try:
        if is_first:
            held.acquire()
        yield
        check_held(directory, activity)
    finally:
        with _registry:
            held.purposes.remove(purpose)
            if is_first:
                held.release()
                _held.pop(key, None)


def _key(directory: Pathish, activity: Activity) -> tuple[str, str]:
    return os.path.realpath(directory), activity.file


def check_held(directory: Pathish, activity: Activity = TRAINING) -> None:
    """Raise if this process took the lock of a directory and has lost it.

    Do nothing if this process did not take it.

    Raises:
      InUseError: Another process has taken the lock over.
      MissingFileError: The lock file or the directory was removed.
    """
    held = _held.get(_key(directory, activity))
    if held is not None:
        held.check()


def check_free(directory: Pathish) -> None:
    """Raise `InUseError` if the lock of a directory is held."""
    path = Path(directory) / FILE
    if path.exists():
        with hold(directory, "check"):
            pass


@dataclass(frozen=True)
class _Record:
    """The content of a lock file: who holds the lock since when."""

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
        """Return the content of a lock file; None if it is incomplete."""
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

    def encode(self) -> bytes:
        content = dataclasses.asdict(self)
        content |= content.pop("owner")
        return json.dumps(content, indent=1).encode() + b"\n"


class _Lock:
    """The lock of one directory, held or being taken by this process."""

    def __init__(self, directory: Path, activity: Activity) -> None:
        self.purposes: list[str] = []
        self._activity = activity
        self._thread = threading.get_ident()
        self._path = directory.absolute() / activity.file
        self._record = _Record.new()
        self._file: int | None = None
        self._ended = threading.Event()

    def check_reentry(self, purpose: str) -> None:
        if threading.get_ident() == self._thread and purpose not in self.purposes:
            return
        raise InUseError(
            f"{self._path.parent}: this process is {self._activity.name} here already "
            f"({self.purposes[0]}, since {self._record.since}). {self._activity.harm} "
            f"Wait until the other one has ended, or {self._activity.instead}."
        )

    def acquire(self) -> None:
        for attempt in itertools.count():
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o666)
            except OSError as error:
                error.add_note(
                    f"{self._path.parent}: {self._activity.name} must write here."
                )
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
        """Take the lock; return False to try again, raise `InUseError` if held."""
        is_locked = _flock(file)
        # The holder may have removed the file since we opened it: open the new one.
        # Some file systems do not keep the inode numbers that `samestat` compares, so
        # the number of attempts is limited.
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
            # Not os.write, which may write a part without raising.
            with open(file, "wb", closefd=False) as opened:
                opened.write(self._record.encode())
            os.fsync(file)
        return True

    def _is_stale(self, file: int, found: _Record, is_locked: bool | None) -> bool:
        """Return whether a holder that cannot be seen from here has ended."""
        # On one kernel, a file that could be locked has no holder. A holder with our
        # host name and another boot was this machine before a restart.
        same_kernel = found.boot == processes.boot()
        same_host = found.owner.host == processes.current().host
        if is_locked and (same_kernel or same_host):
            return True
        now = atomic.file_system_time(self._path.parent)
        return now - os.fstat(file).st_mtime > STALE_SECONDS

    def check(self) -> None:
        """Raise unless the lock file exists and is ours."""
        directory, found = self._path.parent, self._current()
        if found is not None and found.token == self._record.token:
            return
        doing = self._activity.name
        if not directory.is_dir():
            raise MissingFileError(
                f"{directory} was deleted during {doing}, with all that was in it. "
                f"Start {doing} again."
            )
        if found is None:
            raise MissingFileError(
                f"{self._path} is gone: during {doing}, {directory} was deleted, "
                f"emptied or replaced, or the lock was removed. This {doing} stops, "
                "because another one may be writing there."
            )
        raise InUseError(
            f"{directory} was taken over by another {doing}, {_who(found)}: this one "
            f"did not touch its lock for {STALE_SECONDS:.0f} s, or the lock was "
            f"removed. This {doing} stops, because the other one is writing there."
        )

    def release(self) -> None:
        self._ended.set()
        if self._file is None:
            return
        found = self._current()
        is_ours = found is not None and found.token == self._record.token
        if sys.platform == "win32":  # an open file cannot be removed there
            os.close(self._file)
        # Remove the file while it is locked. Afterwards, another process might hold it.
        if is_ours:
            self._path.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(self._file)
        self._file = None

    def _current(self) -> _Record | None:
        """Return the present content of the lock file; None if there is no file."""
        try:
            return _Record.parse(self._path.read_bytes())
        except OSError:
            return None

    def forget(self) -> None:
        """Close the file in a forked child, which does not unlock it for the parent."""
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
                "This machine cannot see whether it still runs. If it does not, wait "
                f"until its lock is {STALE_SECONDS:.0f} s old, or remove {self._path}."
            )
        else:
            instead = self._activity.instead
            advice = f"Wait until it has ended, stop it, or {instead}."
        return InUseError(
            f"{directory} is in use: {who} is {self._activity.name} there. "
            f"{self._activity.harm} {advice}"
        )


_registry = threading.Lock()
_held: dict[tuple[str, str], _Lock] = {}  # by real path and file
_MOST_ATTEMPTS = 20
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


def _flock(file: int) -> bool | None:
    """Lock a file; return False if it is locked, None if locks are not supported."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system does not support it
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
    """Touch the file that is at `path` now every ten seconds, until `ended` is set."""
    # The file is opened once, so that a file which replaces it is not touched. If it is
    # gone, `check` reports it.
    with contextlib.suppress(OSError), open(path, "rb") as file:
        while not ended.wait(TOUCH_SECONDS):
            os.utime(file.fileno() if os.utime in os.supports_fd else path)


def _who(found: _Record) -> str:
    owner = found.owner
    return f"process {owner.pid} on {owner.host} (since {found.since})"


def _forget_in_child() -> None:
    # The child shares the open file, and would keep the lock if it outlives its parent.
    global _registry
    _registry = threading.Lock()
    for held in _held.values():
        held.forget()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
