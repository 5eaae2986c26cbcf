"""Attacks on run files, and on the run file that a model directory saves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import damaged_text
from run_files import GOOD

from chaos import mutations
from chaos.attack import AttackFailedError, FileAttack, Outcome, shortened
from estimax.config import load
from estimax.config.dump import dump
from estimax.config.saved import claim_model_dir
from estimax.core.errors import EstimaxError

SHIPPED = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


class RunFiles(FileAttack):
    """Damages run files: each is a valid run, or an error of estimax."""

    tries = 600
    file = "run.yaml"

    def make(self, folder: Path) -> None:
        (folder / "run.yaml").write_text(GOOD)
        for path in SHIPPED:
            (folder / path.name).write_bytes(path.read_bytes())

    def damage(self, folder: Path, draw: random.Random) -> str:
        path = draw.choice(mutations.files_of(folder))
        self.file = path.name
        if draw.random() < 0.03:
            return mutations.break_file(path, draw)
        data = damaged_text.mutated(path.read_bytes(), draw)
        path.write_bytes(data)
        return f"{path.name}: {data!r}"

    def read(self, folder: Path) -> Any:
        run = load(folder / self.file, environment={"HOME": "/home/me"}).run
        text = dump(run)
        again = folder / "again.yaml"
        again.write_text(text, encoding="utf-8")
        if load(again, environment={}).run != run:
            raise AttackFailedError(
                f"the run differs after dump and load: {shortened(text)}"
            )
        return text

    def judge(self, found: Any) -> Outcome:
        # A damaged file may be a valid run with other values.
        return Outcome.HARMLESS if found == self.expected else Outcome.CHANGED


class SavedConfig(FileAttack):
    """Damages `config/` of a model directory, then resumes the same run in it."""

    tries = 200
    errors = (EstimaxError, OSError)  # OSError if a file cannot be written

    def make(self, folder: Path) -> None:
        _claim(folder)
        # It contains the time, so its bytes would differ in every run.
        (folder / "model" / "config" / "environment.json").write_text("{}")

    def damage(self, folder: Path, draw: random.Random) -> str:
        paths = mutations.files_of(folder / "model" / "config")
        path, other = draw.choice(paths), draw.choice(paths)
        if path.stat().st_size == 0 or draw.random() < 0.1:
            return mutations.break_file(path, draw)
        if path.suffix == ".yaml" and draw.random() < 0.5:
            path.write_bytes(damaged_text.mutated(path.read_bytes(), draw))
            return f"{path.name}: damaged text"
        return mutations.mutate_file(path, draw, other)

    def read(self, folder: Path) -> Any:
        _claim(folder)
        return (folder / "model" / "config" / "resolved.yaml").read_text()


def _claim(folder: Path) -> None:
    text = GOOD.replace("runs/small", str(folder / "model"))
    path = folder / "run.yaml"
    path.write_text(text)
    claim_model_dir(load(path))
