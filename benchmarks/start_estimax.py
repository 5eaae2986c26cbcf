"""Starter: `ex.DNNLinearCombinedClassifier.train` up to its first step, and further."""

from __future__ import annotations

import tempfile

import start_task as task

import estimax as ex


class FirstStep(ex.hooks.Hook):
    """Tell when the loss of the first step is known."""

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        task.tell_first_step()

    def next_step(self, step):
        return 1 if step == 0 else ex.hooks.NEVER


def main() -> None:
    columns = ex.feature_columns
    words = [
        columns.categorical_column_with_hash_bucket(f"c{i}", task.BUCKETS)
        for i in range(task.WORDS)
    ]
    dense = [columns.embedding_column(word, task.WIDTH) for word in words]
    dense += [columns.numeric_column(f"x{i}") for i in range(task.NUMBERS)]

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices(task.examples())
        return rows.repeat().batch(task.BATCH_SIZE)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = ex.DNNLinearCombinedClassifier(
            model_dir=model_dir,
            linear_feature_columns=words,
            dnn_feature_columns=dense,
            dnn_hidden_units=task.HIDDEN_UNITS,
        )
        model.train(input_fn, hooks=[FirstStep()], steps=task.STEPS)


if __name__ == "__main__":
    main()
