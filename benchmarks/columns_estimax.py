"""Starter: `ex.DNNClassifier.train` with many embedding columns."""

from __future__ import annotations

import tempfile

import columns_task as task

import estimax as ex


class Timed(ex.hooks.Hook):
    """Take the time when the loss of some steps is known."""

    def __init__(self) -> None:
        self._clock = task.Clock()

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self._clock.step_done(context.step)

    def next_step(self, step):
        return 1 if step == 0 else step + task.MORE_STEPS


def main() -> None:
    names = task.columns()
    columns = ex.feature_columns
    ids = [
        columns.categorical_column_with_identity(name, task.VOCABULARY)
        for name in names
    ]
    data = task.examples(names)

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices(data)
        return rows.repeat().batch(task.BATCH_SIZE)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = ex.DNNClassifier(
            hidden_units=task.HIDDEN_UNITS,
            feature_columns=[columns.embedding_column(one, task.WIDTH) for one in ids],
            model_dir=model_dir,
            optimizer=ex.optimizers.Adagrad(task.LEARNING_RATE),
        )
        model.train(input_fn, hooks=[Timed()], steps=1 + 2 * task.MORE_STEPS)


if __name__ == "__main__":
    main()
