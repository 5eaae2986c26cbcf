"""Write hooks: one that stops on a plateau, and one that keeps a log file.

    python examples/custom_hook/plateau.py

`StopOnPlateau` reads the loss every 10 steps, compares the mean of the last 20 with
that of the 20 before, and asks to stop when it no longer falls. `LossFile` writes a
line of JSON every 25 steps, which a monitor could follow. Steps at which no hook is
called run in one compiled loop. `ex.hooks.stop_if_no_decrease_hook` looks at
evaluations instead of the training loss.
"""

import collections
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import estimax as ex


class StopOnPlateau(ex.hooks.Hook):
    """Stops when the mean loss of a window is not lower than that of the one before.

    Args:
      window: Number of losses to average over.
      least_gain: Stop if the mean fell by less than this share.
      every: How often to read the loss, in steps.
    """

    def __init__(self, window=20, least_gain=0.02, every=10):
        self.window, self.least_gain, self.every = window, least_gain, every

    def begin(self, context):
        # Here and not in __init__: a hook may be used for several runs.
        self.losses = collections.deque(maxlen=2 * self.window)
        self.stopped_at = None

    def next_step(self, step):
        return step + self.every

    def before_run(self, context):
        return ["loss"]  # copied to the host for this step only

    def after_run(self, context, values):
        self.losses.append(float(values["loss"]))
        if len(self.losses) < 2 * self.window:
            return
        before, now = np.reshape(self.losses, (2, self.window)).mean(axis=1)
        if now > before * (1 - self.least_gain):
            self.stopped_at = context.step
            context.request_stop()


class LossFile(ex.hooks.Hook):
    """Writes step, loss and seconds as lines of JSON.

    Args:
      path: The file; lines are appended.
      every: How often to write, in steps.
    """

    def __init__(self, path, every=25):
        self.path, self.every = Path(path), every

    def begin(self, context):
        self.started = time.monotonic()
        self.file = self.path.open("a")

    def next_step(self, step):
        return step + self.every

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        line = {"step": context.step, "loss": float(values["loss"])}
        line["seconds"] = round(time.monotonic() - self.started, 3)
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def end(self, context):
        self.file.close()


def main(most_steps=2000):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(4000, 4)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5, 0.0], np.float32) + draw.normal(0, 0.5, 4000)
    rows = ex.input.Dataset.from_tensor_slices(({"x": x}, y.astype(np.float32)))
    with tempfile.TemporaryDirectory() as folder:
        model = ex.DNNRegressor(
            [16],
            [ex.feature_columns.numeric_column("x", (4,))],
            f"{folder}/model",
            optimizer=ex.optimizers.Adam(0.01),
            config=ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
        )
        stop, log = StopOnPlateau(), LossFile(f"{folder}/losses.jsonl")
        model.train(
            lambda: rows.shuffle(4000, seed=1).repeat().batch(64),
            hooks=[stop, log],
            max_steps=most_steps,
        )
        lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    for line in lines[:: max(1, len(lines) // 5)]:
        print(f"step {line['step']:4}: loss {line['loss']:.3f}")
    print(f"stopped at step {stop.stopped_at} of {most_steps}")
    return stop.stopped_at, lines


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
