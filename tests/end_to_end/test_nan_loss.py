"""A loss that becomes NaN ends the run, and no checkpoint ever holds the NaN."""

import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import NanLossError

BATCH = 8
BAD_STEP = 7


def model_fn(features, labels, mode):
    predictions = nn.Dense(1)(features["x"])[:, 0]
    loss = ((predictions - labels) ** 2).mean()
    train_op = ex.minimize(ex.optimizers.Adam(0.01))
    return ex.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    x = np.random.default_rng(0).random((BATCH * 40, 3), np.float32)
    y = x.sum(axis=1)
    y[(BAD_STEP - 1) * BATCH + 2] = np.nan
    return ex.input.Dataset.from_tensor_slices(({"x": x}, y)).batch(BATCH)


def make_estimator(model_dir, **settings):
    config = ex.RunConfig(save_checkpoints_steps=3, tf_random_seed=1, **settings)
    return ex.Estimator(model_fn, model_dir, config)


@pytest.mark.parametrize("max_steps", [BAD_STEP, 9, 30])
def test_error_names_the_step_at_which_the_loss_became_nan(tmp_path, max_steps):
    with pytest.raises(NanLossError, match=rf"step {BAD_STEP}\b"):
        make_estimator(tmp_path).train(input_fn, max_steps=max_steps)
    latest = checkpoints.read(checkpoints.latest(tmp_path))
    assert latest.step == 6
    assert all(np.isfinite(array).all() for array in latest.arrays.values())


def test_error_names_the_loop_in_which_the_loss_became_nan(tmp_path):
    estimator = make_estimator(tmp_path, iterations_per_loop=3)
    with pytest.raises(NanLossError, match=r"NaN since step 9\b"):
        estimator.train(input_fn, max_steps=30)
    assert checkpoints.step_of(checkpoints.latest(tmp_path)) == 6


def test_training_goes_on_from_the_last_finite_state(tmp_path):
    estimator = make_estimator(tmp_path)
    with pytest.raises(NanLossError):
        estimator.train(input_fn, max_steps=30)
    estimator.train(lambda: input_fn().skip(10), max_steps=12)
    latest = checkpoints.read(checkpoints.latest(tmp_path))
    assert latest.step == 12
    assert all(np.isfinite(array).all() for array in latest.arrays.values())


def exploding_model_fn(features, labels, mode):
    """All weights are 1e38 after a step, infinite after four; then the loss is NaN."""
    weights = ex.get_variable("weights", [4], initializer=nn.initializers.ones)
    loss = (weights - weights).sum() - weights.sum()
    train_op = ex.minimize(ex.optimizers.SGD(1e38))
    return ex.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.parametrize("histograms_every", [1, 10])
def test_weights_that_explode_are_summarized_until_the_nan_is_told(
    tmp_path, histograms_every
):
    config = ex.RunConfig(save_summary_steps=0, iterations_per_loop=1)
    estimator = ex.Estimator(exploding_model_fn, tmp_path, config)
    summaries = ex.hooks.SummarySaverHook(
        1, output_dir=tmp_path, histograms_every=histograms_every
    )
    with pytest.raises(NanLossError, match=r"the loss is NaN"):
        estimator.train(lambda: input_fn().repeat(), [summaries], max_steps=200)
    events = list(tmp_path.glob("events.out.tfevents.*"))
    assert sum(path.stat().st_size for path in events) > 1000


def test_the_default_hooks_survive_weights_that_are_all_huge(tmp_path):
    config = ex.RunConfig(save_summary_steps=1)
    estimator = ex.Estimator(exploding_model_fn, tmp_path, config)
    estimator.train(input_fn, max_steps=2)
    with pytest.raises(NanLossError):
        estimator.train(lambda: input_fn().repeat(), max_steps=200)
