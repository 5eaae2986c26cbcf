"""Writing checkpoints beside training, and removing old ones.

    saver = Saver(model_dir, keep_max=5)
    saver.save(100, snapshot(flatten_state(state)), {"input": position})
    saver.wait()                                # raises what went wrong while writing

`save` returns as soon as the write before it is done; the file work is a thread's. A
process killed at any moment leaves the checkpoints that were there before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints import manager
from estimax.core.errors import ConfigError, MissingFileError
from estimax.wire import atomic, json_text, locks
from estimax.wire.atomic import Pathish


class Saver:
    """Writes the checkpoints of one model directory, at most one at a time.

    Keeps the newest `keep_max` (0 or None: all). Of those that would go, one every
    `keep_every_n_hours` is marked and stays for good.
    """

    def __init__(
        self,
        model_dir: Pathish,
        *,
        keep_max: int | None = 5,
        keep_every_n_hours: float | None = None,
        clock: Callable[[], float] = time.time,
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="estimax-saver")
        self._writing: Future[None] | None = None
        self.model_dir.mkdir(parents=True, exist_ok=True)
        atomic.remove_leftovers(self.model_dir)
        self._preserve_after = self._first_preservation()

    def save(
        self, step: int, snapshot: Mapping[str, NDArray[Any]], extra: Any = None
    ) -> Path:
        """Start writing a checkpoint; returns where it will be.

        The arrays must not change until the next call: hand over a `snapshot`. Waits
        for the write before this one and raises what went wrong there.
        """
        formats.check_extra(extra)
        self.wait()
        self._writing = self._thread.submit(self._write, step, snapshot, extra)
        return manager.path_of(self.model_dir, step)

    def wait(self) -> None:
        """Wait until nothing is being written; raises what went wrong in the thread."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait, then let the thread go."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _write(
        self, step: int, snapshot: Mapping[str, NDArray[Any]], extra: Any
    ) -> None:
        path = manager.path_of(self.model_dir, step)
        self._check_directory()
        # A resumed run begins by saving what it has just read: that is there already.
        if not formats.holds(path, snapshot, extra):
            was_marked = _marked(path)
            try:
                formats.write(path, snapshot, step, extra)
            except FileNotFoundError:  # perhaps deleted while it was being written
                self._check_directory()
                raise
            except OSError as error:  # a full disk does not say whose
                error.add_note(f"while writing the checkpoint {path}")
                raise
            if was_marked:
                atomic.write_bytes(path / manager.KEEP_MARK, b"")
        self._prune(just_written=path)
        self._write_state_file()

    def _check_directory(self) -> None:
        """Raise if the directory was deleted or taken over since training began."""
        locks.check_held(self.model_dir)
        if not self.model_dir.is_dir():  # it may have no lock
            raise MissingFileError(
                f"{self.model_dir} was deleted while it was trained in. Start training "
                "again."
            )

    def _prune(self, *, just_written: Path) -> None:
        if not self._keep_max:
            return
        paths = [p for p in manager.all_checkpoints(self.model_dir) if not _marked(p)]
        # By step, but never the one just written: after a damaged checkpoint was passed
        # over, training continues below steps that are still on disk.
        old = [path for path in paths if path != just_written]
        excess = max(0, len(paths) - self._keep_max)
        for path in old[:excess]:
            if self._is_to_preserve(path):
                atomic.write_bytes(path / manager.KEEP_MARK, b"")
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
        """When the next checkpoint to stay is due; the hours go on across restarts."""
        if self._hours is None:
            return float("inf")
        try:
            state = json_text.parse((self.model_dir / manager.STATE_FILE).read_bytes())
            return float(state["preserve_after"])
        except (OSError, ValueError, KeyError, TypeError):
            return self._clock() + self._hours * 3600

    def _write_state_file(self) -> None:
        paths = manager.all_checkpoints(self.model_dir)
        state: dict[str, Any] = {
            "latest": paths[-1].name if paths else None,
            "all": [path.name for path in paths],
        }
        if self._hours is not None:
            state["preserve_after"] = self._preserve_after
        atomic.write_json(self.model_dir / manager.STATE_FILE, state)


def _marked(path: Path) -> bool:
    return (path / manager.KEEP_MARK).exists()
