"""Processes that attacks kill or run at once, forked from one that has imported jax.

trainer = Trainer("train", model_dir)
trainer.hear() == "ready"
trainer.tell("start")
trainer.hear()                  # "training", "refused: …" or "failed: …"
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import estimax as ex
from chaos import tiny
from chaos.attack import AttackFailedError
from chaos.data_files import ROWS, plain_rows
from estimax.core.errors import EstimaxError

PATIENCE = 300.0  # seconds; enough for a busy machine
HELD_STEP = 6  # the step at which a trainer sends "training" and waits

# Importing jax takes seconds, so processes are forked from one that has imported it.
# This works because jax starts its threads with the first computation, not on import.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["chaos.trainers", "estimax.canned", "estimax.export"])


class Trainer:
    """A process that runs one of the jobs below and talks to the attack by a pipe."""

    def __init__(self, job: str, folder: Path) -> None:
        self._mine, theirs = _context.Pipe()
        self._process = _context.Process(target=_work, args=(job, folder, theirs))
        self._process.start()
        theirs.close()

    def tell(self, text: str) -> None:
        """Send a message to the process; do nothing if it has died."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._mine.send(text)

    def hear(self, within: float = PATIENCE) -> str:
        """Return the next message of the process; "dead" if it has died."""
        if not self._mine.poll(within):
            raise AttackFailedError(f"a process said nothing for {within:.0f} s")
        try:
            return str(self._mine.recv())
        except (EOFError, ConnectionResetError):
            return "dead"

    def has_said(self) -> bool:
        """Return whether a message is waiting."""
        return self._mine.poll(0)

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self._process.kill()
        self._process.join()

    def finish(self) -> None:
        """Let the process finish its job; raise an error if it cannot."""
        said = self.hear()
        while said != "done":
            if said.startswith(("refused", "failed", "dead")):
                raise AttackFailedError(
                    f"an undisturbed process could not go on: {said}"
                )
            self.tell("go on")
            said = self.hear()
        self._process.join(PATIENCE)


@contextlib.contextmanager
def started(job: str, folder: Path) -> Iterator[Trainer]:
    """Start a process, and kill it at the end of the block."""
    trainer = Trainer(job, folder)
    try:
        yield trainer
    finally:
        trainer.kill()


def leftovers(folder: Path) -> list[str]:
    """Return the names of the temporary files in a folder."""
    found = [*folder.rglob(".estimax-tmp*"), *folder.rglob("*.tmp*")]
    return sorted({str(path.relative_to(folder)) for path in found})


def age_leftovers(folder: Path) -> None:
    """Make temporary files an hour old, as they mostly are at the next start."""
    before = time.time() - 3600
    for name in leftovers(folder):
        path = folder / name
        for each in [*path.rglob("*"), path]:
            os.utime(each, (before, before), follow_symlinks=False)


def _work(job: str, folder: Path, pipe: Connection) -> None:
    try:
        _JOBS[job](folder, pipe)
        pipe.send("done")
    except EstimaxError as error:
        pipe.send(f"refused: {type(error).__name__}: {error}")
    # Any exception is sent to the attack, which reports it.
    except BaseException:
        pipe.send(f"failed: {traceback.format_exc()}")


def _train(folder: Path, pipe: Connection) -> None:
    pipe.send("ready")
    pipe.recv()
    tiny.train(folder, hooks=[_Held(pipe)])


class _Held(ex.hooks.Hook):  # type: ignore[misc]
    """Sends "training" at a step, and waits for an answer."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._is_held = False

    def after_run(self, context: Any, values: Any) -> None:
        if context.step >= HELD_STEP and not self._is_held:
            self._is_held = True
            self._pipe.send("training")
            self._pipe.recv()

    def next_step(self, step: int) -> int:
        return max(step, HELD_STEP)


def _export(folder: Path, pipe: Connection) -> None:
    estimator = tiny.make_estimator(folder / "model")
    pipe.send("ready")
    pipe.recv()
    estimator.export_saved_model(folder / "export")


def _write_cache(folder: Path, pipe: Connection) -> None:
    pipe.send("ready")
    pipe.recv()
    plain_rows(slow_rows(folder))


def slow_rows(folder: Path) -> ex.input.Dataset:
    """Return a cached dataset of many chunks."""
    data = tiny.rows().repeat(200).batch(ROWS).map(lambda x, y: (x, y))
    return data.cache(str(folder / "rows"))


_JOBS: dict[str, Callable[[Path, Connection], None]] = {
    "train": _train,
    "export": _export,
    "cache": _write_cache,
}
