"""Attacks that kill a process with SIGKILL at a random moment while it writes files."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import processes

from chaos import tiny
from chaos.attack import Attack, AttackFailedError, Note, Outcome
from chaos.data_files import plain_rows
from chaos.trainers import (
    PATIENCE,
    Trainer,
    age_leftovers,
    leftovers,
    slow_rows,
    started,
)
from estimax import export


class KillTraining(Attack):
    """Kills a training program repeatedly: it ends with the bits of a whole run."""

    tries = 2
    patience = 3600.0  # every wait inside has its own limit
    memory = None
    kills = 4

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        self.data = processes.write_data(folder / "data")
        self.env = processes.compilation_cache(folder / "compiled")
        whole = processes.Run(self.data, folder / "whole", env=self.env)
        whole.finish()
        self.whole = whole.model_dir

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        shutil.rmtree(self.folder / "killed", ignore_errors=True)
        (self.folder / "killed.log").unlink(missing_ok=True)
        options = ("--pause", "0.02", "--save-steps", str(draw.choice([2, 5])))
        killed = self.folder / "killed"
        run = processes.Run(self.data, killed, *options, env=self.env)
        done = []
        try:
            for _ in range(self.kills):
                run.start()
                done.append(self._wait_for_a_moment(run, draw))
                run.stop(signal.SIGKILL)
                note(f"killed {', '.join(done)}")
                age_leftovers(run.model_dir)
            run.finish()
        finally:
            run.kill_if_running()
        found = processes.differences(run.model_dir, self.whole)
        if found:
            raise AttackFailedError(f"differs from the undisturbed run in {found}")
        return check_no_leftovers(run.model_dir)

    def _wait_for_a_moment(self, run: processes.Run, draw: random.Random) -> str:
        moment = draw.choice(["starting", "stepping", "writing", "written"])
        if moment == "starting":
            time.sleep(draw.uniform(0, 5))
            return moment
        if moment == "stepping":
            steps = draw.randrange(1, 15)
            run.wait_until(lambda: (run.step or 0) >= steps)
        elif moment == "writing":
            run.wait_until(run.is_writing)
            time.sleep(draw.uniform(0, 0.003))
        else:
            before = run.newest_saved()
            run.wait_until(lambda: run.newest_saved() > before)
        return f"{moment} at step {run.step}"


class KillExport(Attack):
    """Kills an export: no incomplete bundle is visible, and the next export works."""

    tries = 6
    patience = 2 * PATIENCE
    memory = None
    job = "export"

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        tiny.train(folder / "model")
        began = time.monotonic()
        with started(self.job, folder) as trainer:
            trainer.finish()
        self.duration = time.monotonic() - began
        self.expected = self.read()
        self.clear()

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        self.clear()
        done = []
        for _ in range(3):
            with started(self.job, self.folder) as trainer:
                if trainer.hear() != "ready":
                    raise AttackFailedError("a process could not start")
                trainer.tell("start")
                done.append(self._wait(trainer, draw))
                note(f"killed {', '.join(done)}")
            self.check_killed()
            age_leftovers(self.folder)
        with started(self.job, self.folder) as trainer:
            trainer.finish()
        if self.read() != self.expected:
            raise AttackFailedError("differs from what an undisturbed process wrote")
        return check_no_leftovers(self.folder)

    def _wait(self, trainer: Trainer, draw: random.Random) -> str:
        """Wait for a random moment; in half of the tries while a file is written."""
        if draw.random() < 0.5:
            delay = draw.uniform(0, self.duration)
            time.sleep(delay)
            return f"after {delay:.3f} s"
        while not leftovers(self.folder) and not trainer.has_said():
            time.sleep(0.0005)
        delay = draw.uniform(0, 0.03)
        time.sleep(delay)
        return f"{delay:.4f} s after a temporary appeared"

    def clear(self) -> None:
        """Remove the files of earlier tries."""
        shutil.rmtree(self.folder / "export", ignore_errors=True)

    def check_killed(self) -> None:
        """Check that every version that a killed process left is complete."""
        for path in (self.folder / "export").glob("[0-9]*"):
            export.load(path, self_test=True)

    def read(self) -> Any:
        bundle = export.load(self.folder / "export", self_test=True)
        return tiny.bits(bundle.predict(tiny.REQUEST))


class KillCache(KillExport):
    """Kills a process that writes a cache: the next one can write or read it."""

    tries = 15
    job = "cache"

    def clear(self) -> None:
        for path in self.folder.glob("*rows*"):
            path.unlink()

    def check_killed(self) -> None:
        """Check nothing: the next process writes an incomplete cache again."""

    def read(self) -> Any:
        return plain_rows(slow_rows(self.folder))


def check_no_leftovers(folder: Path) -> Outcome:
    """Check that there are no temporary files, not even of killed processes."""
    if leftovers(folder):
        raise AttackFailedError(f"temporaries were left: {leftovers(folder)}")
    return Outcome.HARMLESS
