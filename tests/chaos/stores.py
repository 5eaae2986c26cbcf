"""Attacks on checkpoints: damaged files, forged manifests, and resuming after those."""

from __future__ import annotations

import json
import random
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from chaos import mutations, tiny
from chaos.attack import AttackFailedError, FileAttack, Note, Outcome, shortened
from chaos.tiny import bits
from estimax import checkpoints
from estimax.core.errors import CheckpointError, MissingFileError

STEPS = (5, 10)
MANIFEST = "manifest.json"
SECRET = b"SECRET!!" * 64


class CheckpointAttack(FileAttack):
    """Damages checkpoints; the older one must be used if it is intact."""

    spares_one = False  # whether the last damage left the older checkpoint alone

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        outcome = super().attempt(draw, note)
        if outcome is Outcome.REFUSED and self.spares_one:
            raise AttackFailedError("the older checkpoint is intact, but was not used")
        return outcome


class Checkpoints(CheckpointAttack):
    """Damages one or both of two checkpoints: each is read correctly or refused."""

    tries = 500

    def prepare(self, folder: Path) -> None:
        super().prepare(folder)
        self.each = {step: _content(step) for step in STEPS}

    def make(self, folder: Path) -> None:
        for step in STEPS:
            path = checkpoints.path_of(folder, step)
            checkpoints.write(path, _arrays(step), step, _extra(step))
            # The time is fixed, so that a try damages the same bytes in every run.
            _reseal(path / MANIFEST, written_at=1e9)
        state = {"latest": "model.ckpt-10", "all": ["model.ckpt-5", "model.ckpt-10"]}
        (folder / "checkpoint").write_text(json.dumps(state))

    def damage(self, folder: Path, draw: random.Random) -> str:
        done = [_damage_once(folder, draw, newest=True)]
        self.spares_one = not done[0].startswith("swap")
        if draw.random() < 0.3:
            self.spares_one = False
            done.append(_damage_once(folder, draw, newest=False))
        return "; ".join(done)

    def read(self, folder: Path) -> Any:
        self._read_one_by_one(folder)
        found = checkpoints.restore_latest(folder)
        return None if found is None else (found.step, bits(found.arrays), found.extra)

    def judge(self, found: Any) -> Outcome:
        if found == self.each[10]:
            return Outcome.HARMLESS
        if found == self.each[5]:
            return Outcome.FELL_BACK
        raise AttackFailedError(f"values of no checkpoint: {shortened(found)}")

    def _read_one_by_one(self, folder: Path) -> None:
        """Read by the other functions: each returns the values or raises our error."""
        checkpoints.all_checkpoints(folder)
        checkpoints.latest(folder)
        for step in STEPS:
            path = checkpoints.path_of(folder, step)
            try:
                names = checkpoints.names(path)
                found = {name: checkpoints.read_array(path, name) for name in names}
            except (CheckpointError, MissingFileError) as error:
                self.check_error(error)
                continue
            # An intact checkpoint under another name is still valid.
            if bits(found) not in [bits(_arrays(one)) for one in STEPS]:
                raise AttackFailedError(f"{path}: values of no checkpoint")


class ForgedCheckpoints(Checkpoints):
    """Manifests that lie, with a checksum that confirms the lie.

    Content that was forged consistently can be read. No file outside the checkpoint is
    read, and nothing crashes, hangs, or raises what is not ours.
    """

    tries = 500

    def make(self, folder: Path) -> None:
        super().make(folder)
        (folder / "secret").write_bytes(SECRET)

    def damage(self, folder: Path, draw: random.Random) -> str:
        self.spares_one = True
        path = folder / "model.ckpt-10" / MANIFEST
        if draw.random() < 0.15:
            return _point_outside(path, folder / "secret", draw)
        content = json.loads(path.read_text())
        del content["crc32"]
        done = []
        for _ in range(draw.choice([1, 1, 1, 2, 4])):
            if mutations.is_deep(content) or not isinstance(content, dict):
                break
            content, what = mutations.mutated_json(content, draw)
            done.append(what)
        _seal(path, content)
        return ", ".join(done)

    def judge(self, found: Any) -> Outcome:
        if any(b"SECRET!!" in data for _, _, data in found[1].values()):
            raise AttackFailedError("a file outside the checkpoint was read")
        if found not in self.each.values():
            return Outcome.CHANGED
        return super().judge(found)

    def _read_one_by_one(self, folder: Path) -> None:
        checkpoints.all_checkpoints(folder)
        checkpoints.latest(folder)
        path = folder / "model.ckpt-10"
        try:
            for name in checkpoints.names(path):
                if b"SECRET!!" in checkpoints.read_array(path, name).tobytes():
                    raise AttackFailedError("a file outside the checkpoint was read")
        except CheckpointError as error:
            self.check_error(error)


class Resume(CheckpointAttack):
    """Resumes from damaged checkpoints: ends with the bits of an undisturbed run."""

    tries = 25
    patience = 300.0

    def prepare(self, folder: Path) -> None:
        # One estimator for all tries, so that its programs are compiled once.
        self.estimator = tiny.make_estimator(folder / "copy")
        super().prepare(folder)

    def make(self, folder: Path) -> None:
        tiny.train(folder)
        shutil.rmtree(folder / f"model.ckpt-{tiny.STEPS}")

    def damage(self, folder: Path, draw: random.Random) -> str:
        done = _damage_once(folder, draw, newest=True)
        self.spares_one = not done.startswith("swap")
        return done

    def read(self, folder: Path) -> Any:
        self.estimator.train(tiny.input_fn, max_steps=tiny.STEPS)
        return tiny.final(folder)


def _arrays(step: int) -> dict[str, Any]:
    draw = np.random.default_rng(step)
    return {
        "line/kernel": draw.random((4, 3), np.float32),
        "line/bias": draw.random(3, np.float32),
        "table": draw.random((20, 2)),
        "global_step": np.int64(step),
        "key": draw.integers(0, 2**32, 2, np.uint32),
        "empty": np.zeros((0, 5), np.float32),
    }


def _extra(step: int) -> Any:
    position = {"file": 1, "offset": 100 * step, "seed": 7, "inner": [step, None]}
    return {"input": position, "tables": ["table"]}


def _content(step: int) -> Any:
    return step, bits(_arrays(step)), _extra(step)


def _damage_once(folder: Path, draw: random.Random, *, newest: bool) -> str:
    """Damage the newest checkpoint, or any file of the model directory."""
    paths = sorted(folder.glob("model.ckpt-*"), key=checkpoints.step_of)
    chosen = paths[-1] if newest else draw.choice(paths)
    other = paths[0] if chosen == paths[-1] else paths[-1]
    files = mutations.files_of(chosen)
    if not newest and draw.random() < 0.3:
        files = [path for path in folder.iterdir() if path.is_file()]
    if not files:
        return "nothing left to damage"
    file = draw.choice(files)
    twin = other / file.name
    kind = draw.choice(["bytes"] * 6 + ["json", "break", "swap", "folders", "copy"])
    # A file that is damaged already may not be JSON, or may not be copyable.
    if kind == "json" and file.name == MANIFEST and newest:
        return _unsealed(file, draw)
    if kind == "break":
        return mutations.break_file(file, draw)
    if kind == "swap" and twin.is_file():
        return mutations.swap(file, twin)
    if kind == "folders":
        return mutations.swap(chosen, other)
    if kind == "copy" and newest:
        step = draw.choice([0, 7, 12, 10**30])
        shutil.copytree(chosen, folder / f"model.ckpt-{step}", dirs_exist_ok=True)
        return f"copy {chosen.name} to model.ckpt-{step}"
    return mutations.mutate_file(file, draw, twin if twin.is_file() else None)


def _unsealed(path: Path, draw: random.Random) -> str:
    content, what = mutations.mutated_json(json.loads(path.read_text()), draw)
    path.write_text(mutations.json_text(content))
    return f"{path.name}: {what}"


def _point_outside(path: Path, secret: Path, draw: random.Random) -> str:
    """Forge an array that is in a file outside the checkpoint, with valid checksums."""
    content = json.loads(path.read_text())
    del content["crc32"]
    name = draw.choice([f"../{secret.name}", str(secret), f"x/../../{secret.name}"])
    if draw.random() < 0.3:
        (path.parent / "link").symlink_to(secret)
        name = "link"
    size, crc = len(SECRET), zlib.crc32(SECRET)
    place = {"offset": 0, "size": size, "crc_before": 0, "crc_after": crc}
    array = {"file": name, "dtype": "uint8", "shape": [size], **place}
    content["files"][name] = {"size": size, "crc32": crc}
    content["arrays"]["stolen"] = array
    _seal(path, content)
    return f"an array in {name}"


def _reseal(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    del content["crc32"]
    _seal(path, {**content, **changes})


def _seal(path: Path, content: Any) -> None:
    """Write a manifest with a valid checksum."""
    if isinstance(content, dict) and not mutations.is_deep(content):
        compact = json.dumps(content, sort_keys=True, separators=(",", ":"))
        content = {**content, "crc32": zlib.crc32(compact.encode())}
    path.write_text(mutations.json_text(content))
