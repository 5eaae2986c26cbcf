"""Two tiny models and the calls that the contracts make on them.

`canned` is a wide-and-deep classifier. `by_hand` is a `model_fn` with batch
normalization, dropout, an embedding table, a variable that no optimizer updates, and a
feature that only training reads.
"""

from pathlib import Path

import numpy as np
from flax import linen as nn

import estimax as ex

fc = ex.feature_columns
ROWS, BATCH, STEPS = 32, 8, 2
OPERATIONS = ["train", "evaluate", "predict", "export", "load"]
_random = np.random.default_rng(5)
X = _random.normal(size=(ROWS, 2)).astype(np.float32)
WORDS = np.array(["a", "b", "c", "d"], object)[_random.integers(0, 4, ROWS)]
NOISE = _random.normal(size=ROWS).astype(np.float32)
LABELS = (X[:, :1] + X[:, 1:] > 0).astype(np.int64)


def train_input():
    features = {"x": X, "word": WORDS, "noise": NOISE}
    rows = ex.input.Dataset.from_tensor_slices((features, LABELS))
    return rows.shuffle(ROWS, seed=3).repeat().batch(BATCH)


def eval_input():
    features = {"x": X, "word": WORDS, "noise": NOISE}
    return ex.input.Dataset.from_tensor_slices((features, LABELS)).batch(BATCH)


def predict_input():
    return ex.input.Dataset.from_tensor_slices({"x": X, "word": WORDS}).batch(BATCH)


def _columns():
    word = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
    return [fc.numeric_column("x", (2,)), fc.embedding_column(word, 3)]


def _canned(config, **options):
    word = fc.categorical_column_with_hash_bucket("word", 10)
    return ex.DNNLinearCombinedClassifier(
        linear_feature_columns=[word],
        dnn_feature_columns=_columns(),
        dnn_hidden_units=[4],
        dnn_dropout=0.2,
        config=config,
        **options,
    )


def _model_fn(features, labels, mode):
    is_training = mode == ex.ModeKeys.TRAIN
    net = fc.input_layer(features, _columns())
    if is_training:
        net = net + 0.01 * features["noise"][:, None]
        steps = ex.get_variable("steps", (), initializer=0.0, trainable=False)
        ex.assign(steps, steps + 1)
    net = nn.Dense(4)(net)
    net = nn.BatchNorm(use_running_average=not is_training, momentum=0.8)(net)
    net = nn.Dropout(0.2, deterministic=not is_training)(nn.relu(net))
    head = ex.heads.BinaryClassHead()
    return head.create_estimator_spec(
        features,
        mode,
        nn.Dense(1)(net),
        labels,
        optimizer=ex.optimizers.Adagrad(0.1),
    )


def _by_hand(config, **options):
    return ex.Estimator(_model_fn, config=config, **options)


MODELS = {"canned": _canned, "by_hand": _by_hand}


class Calls:
    """The operations of an Estimator, by name. Each returns numbers, or None."""

    def __init__(self, estimator):
        self.estimator = estimator
        self.exports = Path(estimator.model_dir) / "bundles"

    def step(self):
        return int(self.estimator.get_variable_value("global_step"))

    def train(self):
        self.estimator.train(train_input, steps=STEPS)

    def evaluate(self):
        return self.estimator.evaluate(eval_input)

    def predict(self):
        rows = self.estimator.predict(predict_input)
        return {"logits": np.stack([row["logits"] for row in rows])}

    def export(self):
        self.estimator.export_saved_model(self.exports / str(self.step()))

    def load(self):
        """Predict with the bundle of the latest export; its step is in its path."""
        path = max(self.exports.iterdir(), key=lambda each: int(each.name))
        (version,) = sorted(path.iterdir())[-1:]
        bundle = ex.export.load(version)
        found = bundle.predict({"x": X, "word": WORDS}, "predict")["logits"]
        return {"step": int(path.name), "logits": np.asarray(found)}


def order_of(operations, length):
    """Return a sequence that contains every order of `length` operations.

    It is a de Bruijn sequence: 27 operations hold all 25 pairs of five, and 127 all 125
    orders of three.
    """
    k, found, word = len(operations), [], [0] * len(operations) * length

    def extend(t, p):
        if t > length:
            if length % p == 0:
                found.extend(word[1 : p + 1])
            return
        word[t] = word[t - p]
        extend(t + 1, p)
        for i in range(word[t - p] + 1, k):
            word[t] = i
            extend(t + 1, t)

    extend(1, 1)
    return [operations[i] for i in found + found[: length - 1]]
