"""Write checkpoints in a background thread, and remove old ones.

    saver = Saver(model_dir, keep_max=5)
    saver.save(100, snapshot(flatten_state(state)), {"input": position})
    saver.wait()                                # raises an error of the thread, if any

The caller's thread copies the state (`snapshot`) and calls `save`, which waits for the
last write, starts the next one and returns. All files are written and removed by one
thread, which all savers of a folder share, so there is never more than one writer. A
process killed at any moment leaves the earlier checkpoints intact.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from estimax.checkpoints import format as formats
from estimax.checkpoints import listing
from estimax.checkpoints.distributed import write_distributed
from estimax.core.display import format_path
from estimax.core.errors import ConfigError, MissingFileError
from estimax.parallel.processes import Processes
from estimax.storage import atomic, json_text, locks
from estimax.storage.atomic import Pathish

_log = logging.getLogger("estimax")
# Arrays by name; in a cluster, the rows of each that the process holds.
Snapshot = Mapping[str, Any]


class Saver:
    """Write the checkpoints of one model_dir, one at a time.

    The newest `keep_max` checkpoints are kept (0 or None: all). Of the older ones, one
    every `keep_every_n_hours` is marked and never removed.

    With `peers`, all processes of a cluster save at the same steps, and what they pass
    to `save` is `local_rows` of the state. Only the chief removes checkpoints.
    """

    def __init__(
        self,
        model_dir: Pathish,
        *,
        keep_max: int | None = 5,
        keep_every_n_hours: float | None = None,
        clock: Callable[[], float] = time.time,
        peers: Processes | None = None,
    ) -> None:
        if keep_max is not None and keep_max < 0:
            raise ConfigError(f"Saver: keep_max must be 0 or more, got {keep_max}.")
        if keep_every_n_hours is not None and keep_every_n_hours <= 0:
            raise ConfigError(
                f"Saver: keep_every_n_hours must be above 0, got {keep_every_n_hours}."
            )
        self.model_dir = Path(model_dir)
        self._keep_max = keep_max
        self._hours = keep_every_n_hours
        self._clock = clock
        self._peers = peers
        self._is_chief = peers is None or peers.is_chief
        self._thread: ThreadPoolExecutor | None = _thread_of(self.model_dir, peers)
        self._writing: Future[None] | None = None
        if self._is_chief:
            # Only the chief makes and renames folders here, so only the chief removes
            # what a killed run has left.
            self.model_dir.mkdir(parents=True, exist_ok=True)
            atomic.remove_leftovers(self.model_dir)
        self._preserve_after = self._first_preservation()

    def save(self, step: int, snapshot: Snapshot, extra: Any = None) -> Path:
        """Start writing a checkpoint and return its path.

        The arrays must not change until the write is done: pass a `snapshot`. Waits for
        the write before this one and raises its error, if it failed.
        """
        formats.check_extra(extra)
        if self._thread is None:
            raise RuntimeError(f"{self.model_dir}: the Saver is closed.")
        # At most one snapshot waits in memory: a disk that is slower than the interval
        # between saves slows training down here instead of filling the memory.
        self.wait()
        self._writing = self._thread.submit(self._write, step, snapshot, extra)
        return listing.path_of(self.model_dir, step)

    def wait(self) -> None:
        """Wait for the write in progress; raise its error, if it failed."""
        # Forgotten before it is asked, so that an error is raised once: `close`, which
        # follows, must not raise it again.
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the write in progress; the thread of the last saver ends."""
        try:
            self.wait()
        finally:
            self._thread = None

    def _write(self, step: int, snapshot: Snapshot, extra: Any) -> None:
        # Runs in the thread. The order matters: write the new checkpoint, then remove
        # old ones, then the file that lists them. A process killed in between leaves
        # too many checkpoints, never too few.
        path = listing.path_of(self.model_dir, step)
        if not self._is_chief:
            self._write_files(path, step, snapshot, extra)
            return
        # Before the write: a process that lost its lock must not add a checkpoint
        # beside those of the process that took the lock over.
        self._check_directory()
        try:
            self._write_new(path, step, snapshot, extra)
            self._prune(just_written=path)
            self._write_state_file()
        except FileNotFoundError as error:
            self._check_directory()
            # The folder is being deleted right now: some of its files are still there.
            raise MissingFileError(
                f"{error.filename or path} was deleted while {self.model_dir} was "
                "trained in. Start training again."
            ) from error

    def _write_new(self, path: Path, step: int, snapshot: Snapshot, extra: Any) -> None:
        """Write a checkpoint, unless the same is there already.

        A resumed run first saves the state that it has just read.
        """
        # The mark is a file in the folder, and the new folder replaces the old one.
        was_marked = _has_keep_mark(path)
        try:
            if not self._write_files(path, step, snapshot, extra):
                return
        except OSError as error:  # such as a full disk, which names no file
            error.add_note(f"while writing the checkpoint {path}")
            raise
        _log.info("saved step %d to %s", step, format_path(path))
        if was_marked:
            atomic.write_bytes(path / listing.KEEP_MARK, b"")

    def _write_files(
        self, path: Path, step: int, snapshot: Snapshot, extra: Any
    ) -> bool:
        """Write the files of a checkpoint; return False if it was there already."""
        if self._peers is not None:
            return write_distributed(self._peers, path, step, snapshot, extra)
        if formats.holds(path, snapshot, extra):
            return False
        formats.write(path, snapshot, step, extra)
        return True

    def _check_directory(self) -> None:
        """Raise if the folder was deleted, or locked by another process, meanwhile."""
        locks.check_held(self.model_dir)
        if not self.model_dir.is_dir():  # a Saver may be used without a lock
            raise MissingFileError(
                f"{self.model_dir} was deleted while it was trained in. Start training "
                "again."
            )

    def _prune(self, *, just_written: Path) -> None:
        if not self._keep_max:
            return
        paths = [
            p for p in listing.all_checkpoints(self.model_dir) if not _has_keep_mark(p)
        ]
        # Oldest step first, but never the one just written: if training resumed from an
        # earlier checkpoint because a later one is damaged, the new step is the lower.
        old = [path for path in paths if path != just_written]
        excess = max(0, len(paths) - self._keep_max)
        for path in old[:excess]:
            # Marked only now that it would be removed: until then the checkpoint may
            # be overwritten, or removed by hand, and its turn would be lost.
            if self._is_to_preserve(path):
                atomic.write_bytes(path / listing.KEEP_MARK, b"")
            else:
                atomic.remove_folder(path)

    def _is_to_preserve(self, path: Path) -> bool:
        if self._hours is None:
            return False
        if formats.read_manifest(path).written_at <= self._preserve_after:
            return False
        self._preserve_after += self._hours * 3600
        return True

    def _first_preservation(self) -> float:
        """Return the time after which a checkpoint is kept; it survives restarts."""
        if self._hours is None:
            return float("inf")
        try:
            state = json_text.parse((self.model_dir / listing.STATE_FILE).read_bytes())
            return float(state["preserve_after"])
        except (OSError, ValueError, KeyError, TypeError):
            # The file is for people and other tools. If it is missing or damaged, only
            # the schedule starts over; no checkpoint is lost.
            return self._clock() + self._hours * 3600

    def _write_state_file(self) -> None:
        paths = listing.all_checkpoints(self.model_dir)
        state: dict[str, Any] = {
            "latest": paths[-1].name if paths else None,
            "all": [path.name for path in paths],
        }
        if self._hours is not None:
            state["preserve_after"] = self._preserve_after
        atomic.write_json(self.model_dir / listing.STATE_FILE, state)


# By process and real path. A thread ends when no saver uses it.
_threads: WeakValueDictionary[tuple[int, str], ThreadPoolExecutor]
_threads = WeakValueDictionary()
_registry = threading.Lock()


def _thread_of(folder: Path, peers: Processes | None) -> ThreadPoolExecutor:
    """Return the thread that writes to a folder; in a cluster, to all folders.

    In a cluster the order of two writes must be the same in all processes, because they
    write together: it is the order in which the savers were called.
    """
    place = os.path.realpath(folder) if peers is None else f"process {peers.index}"
    key = (os.getpid(), place)
    with _registry:
        thread = _threads.get(key)
        if thread is None:
            thread = ThreadPoolExecutor(1, thread_name_prefix="estimax-saver")
            _threads[key] = thread
        return thread


def _has_keep_mark(path: Path) -> bool:
    return (path / listing.KEEP_MARK).exists()
