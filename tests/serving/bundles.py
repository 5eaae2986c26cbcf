"""Small bundles for the tests of the server."""

from pathlib import Path

import numpy as np

import estimax as ex


def export_clicks(base: Path, *, bias: float = 0.0) -> Path:
    """Export a classifier of a word, a list of words and two numbers; return its path.

    The model is a formula, so that tests know its answers: the logit is
    2 * age + hours + number of tags + bias.
    """

    def model_fn(features, labels, mode):
        fc = ex.feature_columns
        city = fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
        tags = fc.categorical_column_with_hash_bucket("tags", 10)
        counted = fc.input_layer(features, [fc.indicator_column(tags)])
        is_oslo = fc.input_layer(features, [fc.indicator_column(city)])[:, 0]
        weight = ex.get_variable("weight", (), initializer=2.0)
        logits = weight * features["age"] + features["hours"] + counted.sum(axis=1)
        logits = (logits + bias + 0.0 * is_oslo)[:, None]
        return ex.heads.BinaryClassHead().create_estimator_spec(
            features, mode, logits, labels, optimizer=ex.optimizers.SGD(0.0)
        )

    rows = {
        "age": np.array([1.0, 2.0], np.float32),
        "hours": np.array([3, 4], np.int64),
        "city": np.array(["Oslo", "Rome"]),
        "tags": ex.Sparse.of_rows([["a", "b"], []]),
    }
    estimator = ex.Estimator(model_fn)
    estimator.train(lambda: (rows, np.array([0, 1])), steps=1)
    receive = ex.export.build_raw_serving_input_receiver_fn(rows)
    return Path(estimator.export_saved_model(base, receive))


def logit(age: float, hours: int, tags: int) -> float:
    """Return the logit of the model for one row."""
    return 2 * age + hours + tags


def probability(age: float, hours: int, tags: int) -> float:
    """Return the probability of class 1."""
    return float(1 / (1 + np.exp(-logit(age, hours, tags))))
