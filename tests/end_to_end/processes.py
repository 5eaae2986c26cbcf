"""Starting the training program, watching it, and comparing what it left behind."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import xla_flags

from estimax import checkpoints

PROGRAM = Path(__file__).parent / "programs" / "train_wide_deep.py"
STEPS = 60
PATIENCE = 300.0  # seconds; generous, because a busy machine must not fail a test


def write_data(folder, *, rows=700):
    """Two files to train on and one to evaluate: text, numbers, missing values."""
    rng = np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train-0.csv", "train-1.csv", "eval.csv"):
        lines = ["age,city,device,clicked"]
        for _ in range(rows):
            age = rng.integers(15, 80) + rng.integers(0, 4) / 4
            city = f"city {int(rng.exponential(20))}"
            device = rng.choice(["phone", "tablet", "desk", "fridge", ""])
            clicked = int((age > 40) ^ (device == "phone") ^ (rng.random() < 0.1))
            shown = "" if rng.random() < 0.05 else age
            lines.append(f'{shown},"{city}",{device},{clicked}')
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def compilation_cache(folder):
    """Environment variables that let a start find what the start before compiled."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


class Run:
    """The training program on one model directory, started as often as need be."""

    def __init__(self, data, model_dir, *options, steps=STEPS, env=None):
        self.model_dir = Path(model_dir)
        self._log = Path(f"{model_dir}.log")
        self._command = [sys.executable, str(PROGRAM), str(data), str(model_dir)]
        self._command += ["--steps", str(steps), *options]
        # As users have it: one device, where tests have eight.
        self._env = {**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE, **(env or {})}
        self._process = None
        self._printed_before = 0

    def start(self, *options):
        """Start the program; its output goes on at the end of one log."""
        self._printed_before = len(self.log)
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                [*self._command, *options],
                env=self._env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self, signal):
        """Send a signal; returns the exit code and the last step that was printed."""
        self._process.send_signal(signal)
        return self._process.wait(PATIENCE), self.step

    def finish(self, *options):
        """Start the program and wait until it is done."""
        self.start(*options)
        assert self.wait() == 0, self.log

    def wait(self):
        """Wait until the program ends by itself; returns its exit code."""
        return self._process.wait(PATIENCE)

    @property
    def log(self):
        """All that was printed and logged so far."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def step(self):
        """The last step printed since the last start; None before the first."""
        # A signal's warning may come between a printed step and its end of line.
        steps = re.findall(r"^step (\d+)", self.log[self._printed_before :], re.M)
        return int(steps[-1]) if steps else None

    @property
    def is_running(self):
        """Whether the program has not ended yet."""
        return self._process is not None and self._process.poll() is None

    def wait_until(self, condition):
        """Wait for something to come true while the program runs; whether it did."""
        end = time.monotonic() + PATIENCE
        while self.is_running:
            if condition():
                return True
            assert time.monotonic() < end, f"waited {PATIENCE} s in vain:\n{self.log}"
            time.sleep(0.0005)
        return False

    def has_saved(self, step):
        """Whether the checkpoint of a step is in place."""
        return checkpoints.path_of(self.model_dir, step).exists()

    def newest_saved(self):
        """The step of the newest checkpoint that is in place; 0 without any."""
        paths = self.model_dir.glob("model.ckpt-*")
        return max((checkpoints.step_of(path) for path in paths), default=0)

    def is_writing(self):
        """Whether this process is in the middle of a checkpoint, or died in one."""
        names = f".estimax-tmp-*-{self._process.pid}-*~model.ckpt-*"
        return any(self.model_dir.glob(names))

    def kill_if_running(self):
        """Leave no process behind when a test fails."""
        if self.is_running:
            self._process.kill()
            self._process.wait()


def differences(one, other, *, step=STEPS):
    """The names of what two runs' last checkpoints do not have in common, bit by bit.

    Includes the input's position and the evaluation.
    """
    mine, theirs = (
        checkpoints.read(checkpoints.path_of(d, step)) for d in (one, other)
    )
    found = [] if mine.extra == theirs.extra else ["the input's position"]
    if evaluation(one) != evaluation(other):
        found.append("the evaluation")
    names = mine.arrays.keys() | theirs.arrays.keys()
    return found + sorted(
        name for name in names if _bits(mine, name) != _bits(theirs, name)
    )


def evaluation(model_dir):
    """What the program wrote in the end, as text."""
    return Path(model_dir, "evaluation.json").read_text()


def _bits(checkpoint, name):
    array = checkpoint.arrays.get(name)
    return None if array is None else (array.dtype, array.shape, array.tobytes())
