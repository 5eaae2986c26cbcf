"""What first was not a number, by name and step."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import NanLossError

ROWS, BATCH = 24, 4


def model_fn(features, labels, mode, params):
    net = nn.relu(nn.Dense(3, name="hidden")(features["x"]))
    out = nn.Dense(1, name="out")
    net = params["break"](out(net), features)
    loss = jnp.mean(jnp.square(net - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=params.get("op", "SGD"))


class Root(nn.Module):
    """A layer whose output is NaN where its input is negative."""

    @nn.compact
    def __call__(self, x):
        return jnp.sqrt(x)


def data(x=None, repeat=1):
    rng = np.random.default_rng(0)
    features = {
        "x": rng.normal(size=(ROWS, 2)) if x is None else x,
        "id": rng.integers(0, 3, size=(ROWS, 1)),
        "sign": np.where(np.arange(ROWS) < 10, 1.0, -1.0)[:, None],
    }
    labels = np.ones((ROWS, 1))
    return lambda: (
        ex.input.Dataset.from_tensor_slices((features, labels))
        .repeat(repeat)
        .batch(BATCH)
    )


def make(folder, breaking=lambda net, features: net, op="SGD", **settings):
    config = ex.RunConfig(
        folder,
        tf_random_seed=1,
        save_summary_steps=0,
        log_step_count_steps=None,
        **settings,
    )
    return ex.Estimator(model_fn, config=config, params={"break": breaking, "op": op})


def nan_at(row):
    x = np.random.default_rng(0).normal(size=(ROWS, 2))
    x[row, 1] = np.nan
    return data(x)


def test_the_error_of_a_run_names_the_feature_that_was_nan(tmp_path):
    with pytest.raises(NanLossError) as caught:
        make(tmp_path).train(nan_at(9))
    message = str(caught.value)
    assert "\nstep 3: features/x holds NaN (1 of 8 values), then" in message
    assert "layer hidden holds NaN" in message
    # What the run saved is what it was before the step.
    latest = checkpoints.read(checkpoints.latest(tmp_path))
    assert all(np.isfinite(a).all() for a in latest.arrays.values())


def test_a_layer_that_gives_nan_is_named_though_its_input_is_fine(tmp_path):
    def root(net, features):
        return net + Root(name="root")(features["sign"])

    found = ex.inspection.find_nonfinite(make(tmp_path, root), data())
    assert (found.step, found.first.kind, found.first.name) == (3, "layer", "root")
    assert not (tmp_path / "checkpoints").exists()
    assert checkpoints.latest(tmp_path) is None


def test_a_gradient_is_named_when_the_loss_is_still_finite(tmp_path):
    column = ex.feature_columns.categorical_column_with_identity("id", 3)

    def root_of_nothing(net, features):
        rows = ex.feature_columns.embedding_column(column, 1)
        net = net + ex.feature_columns.input_layer(features, [rows])
        # sqrt(0) is 0, but its slope is infinite.
        return jnp.sqrt(jnp.maximum(net * 0.0, 0.0))

    found = ex.inspection.find_nonfinite(make(tmp_path, root_of_nothing), data())
    assert (found.step, found.first.kind) == (1, "gradient")
    named = {f.name for f in found.findings if f.kind == "gradient"}
    assert "out/kernel" in named
    assert any("id_embedding" in name for name in named)  # rows of a table, too


def test_an_update_that_overflows_names_the_variable(tmp_path):
    op = ex.optimizers.SGD(3e38)
    found = ex.inspection.find_nonfinite(make(tmp_path, op=op), data(repeat=None))
    assert found.first.kind in ("updated variable", "layer")


def test_looking_for_it_starts_at_the_checkpoint(tmp_path):
    model = make(tmp_path).train(nan_at(17), steps=3)
    found = ex.inspection.find_nonfinite(model, nan_at(17))
    assert (found.step, found.first.name) == (5, "features/x")


def test_a_sound_run_has_nothing_to_find(tmp_path):
    model = make(tmp_path)
    assert ex.inspection.find_nonfinite(model, data()) is None
    assert ex.inspection.find_nonfinite(model, data(repeat=None), max_secs=0.0) is None


def test_debug_nan_stops_at_the_very_step(tmp_path):
    model = make(tmp_path, debug="nan", save_checkpoints_steps=1)
    with pytest.raises(NanLossError, match=r"^step 5: features/x holds NaN") as caught:
        model.train(nan_at(17))
    assert str(caught.value).count("step 5") == 1
    assert checkpoints.step_of(checkpoints.latest(tmp_path)) == 4


def test_what_cannot_be_replayed_leaves_the_error_as_it_was(tmp_path, caplog):
    batches = nan_at(1)()
    given = []

    def only_once():
        assert not given, "no more data"
        given.append(True)
        return batches

    with pytest.raises(NanLossError) as caught:
        make(tmp_path).train(only_once)
    assert "the loss is NaN at step 1" in str(caught.value)
    assert "Training again from" not in str(caught.value)
    assert "could not be searched for: no more data" in caplog.text


def test_parts_of_a_step_are_looked_at_too(tmp_path):
    model = make(tmp_path, accumulate_steps=2)
    found = ex.inspection.find_nonfinite(model, nan_at(17))
    assert (found.step, found.first.name) == (3, "features/x")


def test_an_unknown_way_of_debugging_is_refused():
    with pytest.raises(ex.EstimaxError, match=r"True, False or"):
        ex.RunConfig(debug="inf")


def test_a_feature_of_a_matrix_of_numbers_is_named(tmp_path):
    fc = ex.feature_columns
    columns = [fc.numeric_column("x", 2), fc.numeric_column("id")]

    def with_columns(features, labels, mode):
        net = nn.Dense(1, name="out")(fc.input_layer(features, columns))
        loss = jnp.mean(jnp.square(net - labels))
        return ex.EstimatorSpec(mode, loss=loss, train_op="SGD")

    config = ex.RunConfig(str(tmp_path), save_summary_steps=0)
    with pytest.raises(NanLossError, match=r"features/x holds NaN \(1 of 8 values\)"):
        ex.Estimator(with_columns, config=config).train(nan_at(5))
