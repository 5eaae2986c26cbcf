"""The last batch of an evaluation is padded, where rows are computed by themselves."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex

fc = ex.feature_columns
N = 14
X = np.random.default_rng(3).normal(size=N).astype(np.float32)
BINARY = (X > 0).astype(np.int32)
HASHED = fc.categorical_column_with_hash_bucket("city", 10)
COLUMNS = [fc.numeric_column("x"), fc.embedding_column(HASHED, 2)]
CONFIG = ex.RunConfig(tf_random_seed=1, save_summary_steps=0, devices=1)


def input_fn():
    cities = np.array([f"city {i % 5}".encode() for i in range(N)])
    rows = {"x": X, "city": cities, "w": np.linspace(0.5, 2.0, N)}
    return ex.input.Dataset.from_tensor_slices((rows, BINARY)).batch(8)


def programs_of_evaluation(model):
    (program,) = (p for k, p in model._programs.items() if k[0] == ex.ModeKeys.EVAL)
    return program.step._cache_size()


def test_the_last_batch_runs_in_the_program_of_the_others(tmp_path):
    model = ex.DNNClassifier(
        [2], COLUMNS, str(tmp_path), weight_column="w", batch_norm=True, config=CONFIG
    )
    model.train(input_fn, steps=2)
    found = model.evaluate(input_fn)
    assert programs_of_evaluation(model) == 1
    plain = ex.Estimator(model._model_fn, model.model_dir, CONFIG)
    assert plain.evaluate(input_fn) == pytest.approx(found, rel=1e-6, abs=1e-6)
    assert programs_of_evaluation(plain) == 2, "nobody knows that it is by row"
    # A hook may request values of a layer, in which padding would be seen.
    hooks = [ex.hooks.StopAtStepHook(last_step=100)]
    hooked = model.evaluate(input_fn, hooks=hooks)
    assert hooked == pytest.approx(found, rel=1e-6, abs=1e-6)
    assert programs_of_evaluation(model) == 2


@pytest.mark.parametrize(
    "model",
    [
        ex.DNNRegressor([2], COLUMNS),
        ex.LinearClassifier([HASHED], n_classes=3, weight_column="w"),
        ex.DNNLinearCombinedClassifier(None, [HASHED], "Ftrl", COLUMNS, "SGD", [2]),
        ex.TabularClassifier(fc.tabular_columns({"x": X, "city": ["a", "b"] * 7})),
        ex.AverageEstimator(
            ex.heads.BinaryClassHead(),
            {
                "linear": ex.LinearClassifier([HASHED]),
                "trees": ex.BoostedTreesClassifier(COLUMNS[:1]),
            },
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_ready_made_models_are_padded(model):
    assert model._masks_padding


@dataclasses.dataclass(frozen=True, repr=False)
class OwnHead(ex.heads.BaseHead):
    logits_dimension = 1

    def example_losses(self, labels, logits, features):
        return jnp.square(logits - jnp.mean(logits))  # mixes rows

    def all_predictions(self, logits):
        return {"y": logits}


def without_mean(x):
    return x - jnp.mean(x)


X_COLUMN = fc.numeric_column("x")
MIXED = fc.numeric_column("x", normalizer_fn=without_mean)
SORTED = fc.numeric_column("x", normalizer_fn=jnp.sort)
LOSS = ex.heads.BinaryClassHead(loss_fn=lambda labels, logits: logits)


@pytest.mark.parametrize(
    "model",
    [
        ex.DNNEstimator(OwnHead(), [4], [X_COLUMN]),
        ex.DNNClassifier([4], [X_COLUMN], activation_fn=without_mean),
        ex.DNNClassifier([4], [MIXED]),
        ex.LinearClassifier([SORTED]),
        ex.LinearEstimator(LOSS, [X_COLUMN]),
        ex.add_metrics(ex.LinearClassifier([X_COLUMN]), lambda labels: {}),
        ex.Estimator(lambda features, labels, mode: None),
    ],
)
def test_functions_of_the_user_may_mix_rows(model):
    assert not model._masks_padding
