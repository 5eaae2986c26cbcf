"""Racer: `ex.DNNClassifier.train` over many numeric columns, up to its first step."""

from __future__ import annotations

import tempfile

import numeric_columns_task as task

import estimax as ex


class FirstStep(ex.hooks.Hook):
    """Tell when the loss of the first step is known."""

    def __init__(self, clock: task.Clock) -> None:
        self.clock = clock

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.clock.step_is_done()

    def next_step(self, step):
        return 1 if step == 0 else ex.hooks.NEVER


def main() -> None:
    examples = task.examples()

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices(examples)
        return rows.repeat().batch(task.BATCH_SIZE)

    clock = task.Clock()
    columns = [ex.feature_columns.numeric_column(name) for name in examples[0]]
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = ex.DNNClassifier(task.HIDDEN_UNITS, columns, model_dir)
        model.train(input_fn, hooks=[FirstStep(clock)], steps=task.STEPS)
        clock.tell(task.STEPS - 1)


if __name__ == "__main__":
    main()
