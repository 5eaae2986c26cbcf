"""Attacks on the lock of a model directory: two trainers at once, and killed owners."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from pathlib import Path

from chaos import tiny
from chaos.attack import Attack, AttackFailedError, Note, Outcome, shortened
from chaos.trainers import PATIENCE, Trainer, started


class TwoTrainers(Attack):
    """Starts two trainers in one directory: one trains, the other is refused."""

    tries = 8
    patience = 2 * PATIENCE
    memory = None

    def prepare(self, folder: Path) -> None:
        self.model_dir = folder / "model"
        tiny.train(folder / "whole")
        self.expected = tiny.final(folder / "whole")

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        shutil.rmtree(self.model_dir, ignore_errors=True)
        offset = draw.choice([0.0, 0.01, 0.1, 1.0]) * draw.random()
        note(f"two trainers, {offset:.4f} s apart")
        with contextlib.ExitStack() as stack:
            both = [
                stack.enter_context(started("train", self.model_dir)) for _ in range(2)
            ]
            self._start(both, offset)
            words = {trainer: trainer.hear() for trainer in both}
            self._check(list(words.values()))
            for trainer, said in words.items():
                if said == "training":
                    trainer.tell("go on")
                    trainer.finish()
        return check_final(self.model_dir, self.expected, Outcome.REFUSED)

    def _start(self, trainers: list[Trainer], offset: float) -> None:
        for trainer in trainers:
            if trainer.hear() != "ready":
                raise AttackFailedError("a process could not start")
        for trainer in trainers:
            trainer.tell("start")
            time.sleep(offset)

    def _check(self, words: list[str]) -> None:
        refused = [said for said in words if said.startswith("refused")]
        if words.count("training") != 1 or len(refused) != 1:
            raise AttackFailedError(f"expected one to train and one refused: {words}")
        if str(self.model_dir) not in refused[0]:
            raise AttackFailedError(
                f"the error does not name the directory: {refused[0]}"
            )


class StaleLock(TwoTrainers):
    """Kills a trainer at a random moment: the next one can train at once."""

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        shutil.rmtree(self.model_dir, ignore_errors=True)
        moment = draw.choice(["training", "any"])
        delay = draw.random() * (0.02 if moment == "training" else 3.0)
        note(f"killed at moment '{moment}', {delay:.4f} s later")
        with (
            started("train", self.model_dir) as first,
            started("train", self.model_dir) as second,
        ):
            self._start([first], 0.0)
            if moment == "training" and first.hear() != "training":
                raise AttackFailedError("the first could not train")
            time.sleep(delay)
            first.kill()
            self._start([second], 0.0)
            second.finish()
        return check_final(self.model_dir, self.expected, Outcome.HARMLESS)


def check_final(model_dir: Path, expected: object, outcome: Outcome) -> Outcome:
    """Return the outcome if the last checkpoint equals that of an undisturbed run."""
    found = tiny.final(model_dir)
    if found != expected:
        raise AttackFailedError(f"other variables or position: {shortened(found)}")
    return outcome
