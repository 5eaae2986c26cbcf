"""Runs on eight simulated devices give what one device gives."""

import re

import jax
import jax.numpy as jnp
import mesh_models as models
import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints
from estimax.core.spec import ModeKeys
from estimax.staging.packing import pack


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """An Adagrad run of 6 steps on one device, with its losses."""
    model = models.estimator(model_dir=str(tmp_path_factory.mktemp("one")))
    return model, models.losses(model, make=models.input_fn(examples=96))


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """The same run on eight devices, one table sharded and one replicated."""
    model = models.estimator(
        model_dir=str(tmp_path_factory.mktemp("eight")), **models.MIXED
    )
    return model, models.losses(model, make=models.input_fn(examples=96))


def test_losses_and_variables_are_those_of_one_device(one, eight):
    np.testing.assert_allclose(eight[1], one[1], rtol=1e-5)
    models.assert_same_variables(one[0], eight[0])


@pytest.mark.parametrize(
    "above", [0, pytest.param(None, marks=pytest.mark.slow)], ids=str
)
def test_every_optimizer_trains_as_on_one_device(above, every_optimizer_alone):
    shared = models.estimator(
        function=models.every_optimizer_fn, devices=8, shard_tables_above=above
    )
    found = models.losses(shared)
    np.testing.assert_allclose(found, every_optimizer_alone[1], rtol=1e-5)
    models.assert_same_variables(every_optimizer_alone[0], shared)


@pytest.fixture(scope="module")
def every_optimizer_alone():
    model = models.estimator(function=models.every_optimizer_fn)
    return model, models.losses(model)


def test_a_short_last_batch_is_evaluated_and_predicted_exactly(one, eight):
    short = models.input_fn(examples=21)  # batches of 16 and 5
    expected, found = one[0].evaluate(short), eight[0].evaluate(short)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)
    five = models.input_fn(examples=5)
    rows = [[p["logits"] for p in model.predict(five)] for model in (one[0], eight[0])]
    assert len(rows[1]) == 5
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-4, atol=1e-5)


def test_a_checkpoint_has_tables_without_padding(eight):
    value = eight[0].get_variable_value(models.DEEP)
    assert value.shape == (models.ROWS, 3)


@pytest.mark.parametrize("then", [{}, models.MIXED], ids=["to one", "to eight"])
def test_a_run_resumes_on_another_number_of_devices(tmp_path, one, then):
    first = models.MIXED if not then else {}
    folder, make = str(tmp_path), models.input_fn(examples=96)
    models.losses(models.estimator(model_dir=folder, **first), steps=3, make=make)
    later = models.estimator(model_dir=folder, **then)
    rest = models.losses(later, steps=3, make=make)
    np.testing.assert_allclose(rest, one[1][3:], rtol=1e-5)


def test_hooks_see_tables_without_padding_and_evaluate_them_where_they_are(eight):
    class Look(ex.hooks.Hook):
        def before_run(self, context):
            return [models.DEEP]

        def after_run(self, context, values):
            self.shape = values[models.DEEP].shape

        def end(self, context):
            self.results = model.evaluate_state(context.state, models.input_fn())

    model, hook = models.estimator(**models.MIXED), Look()
    model.train(models.input_fn(), hooks=[hook], steps=1)
    assert hook.shape == (models.ROWS, 3)
    expected = model.evaluate(models.input_fn())
    assert hook.results["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_a_warm_start_fills_sharded_tables(one):
    model = ex.Estimator(
        models.model_fn,
        config=models.config(**models.MIXED),
        params={"optimizer": models.OPTIMIZERS["Adagrad"]()},
        warm_start_from=ex.WarmStartSettings(one[0].model_dir),
    )
    model.train(models.input_fn(), steps=1, hooks=[])
    path = f"{model.model_dir}/model.ckpt-0"
    np.testing.assert_array_equal(
        checkpoints.read_array(path, models.DEEP),
        one[0].get_variable_value(models.DEEP),
    )


def test_an_export_of_a_mesh_predicts_as_one_of_one_device(tmp_path, one, eight):
    features, _ = models.data(4)
    logits = [
        ex.export.load(model.export_saved_model(tmp_path)).predict(features)["logits"]
        for model in (one[0], eight[0])
    ]
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_batch_that_cannot_be_split_trains_as_on_one_device(caplog):
    make = models.input_fn(examples=20, batch=10)
    alone = models.losses(models.estimator(), make=make)
    shared = models.losses(models.estimator(**models.MIXED), make=make)
    np.testing.assert_allclose(shared, alone, rtol=1e-5)
    assert "A batch size of 8 or 16 is faster" in caplog.text


def compiled_step(model):
    """Return the text of the compiled step, and its state."""
    with model._open(ModeKeys.TRAIN, models.input_fn(), seed=1) as session:
        program = model._program(session)
        state = session.start_state(program, None, model._warm_start)
        batch = next(iter(session.feed.batches(program.plan, depth=1)))
        return program.step.lower(state, batch.arrays).compile().as_text(), state


def test_the_step_of_a_sharded_table_has_no_operation_of_its_size():
    text, state = compiled_step(models.estimator(**models.SHARDED))
    rows = state.tables[models.DEEP].shape[0]
    assert rows == 48
    assert {s.data.shape for s in state.tables[models.DEEP].addressable_shards} == {
        (6, 3)
    }
    assert f"f32[{rows // 8},3]" in text
    assert not re.findall(rf"\[({rows}|{models.ROWS})[,\]]", text)
    assert "custom-call" not in text


@pytest.mark.slow
def test_neither_initial_values_nor_evaluation_need_a_whole_table():
    model = models.estimator(**models.SHARDED)
    with model._open(ModeKeys.TRAIN, models.input_fn()) as session:
        program = model._program(session)
        prepared = program.plan.prepare(session.feed.first)
        packed = pack(prepared, session.placement)
        init = program.init.lower(jax.random.key(0), packed).compile().as_text()
    with model._open(ModeKeys.EVAL, models.input_fn()) as session:
        program = model._program(session)
        batch = next(iter(session.feed.batches(program.plan, depth=1)))
        forms = program.placement.forms(program.shapes)
        evaluation = program.step.lower(forms, batch.arrays).compile().as_text()
    for text in (init, evaluation):
        assert not re.findall(rf"\[(48|{models.ROWS})[,\]]", text)


@pytest.mark.slow
def test_gradients_of_small_tables_are_exchanged_by_row_not_by_table():
    text, _ = compiled_step(models.estimator(devices=8, shard_tables_above=None))
    exchanged = [line for line in text.splitlines() if "all-reduce(" in line]
    assert exchanged
    assert not [line for line in exchanged if f"f32[{models.ROWS}," in line]


ROWS = 64  # of variables: a multiple of the number of devices


def declared_fn(features, labels, mode, params):
    """Tables of every kind of update: by row, masked, frozen, and as a whole."""
    by_row = ex.get_variable("by_row", (ROWS, 2))
    masked = ex.get_variable("masked", (ROWS * 8, 2))
    whole = ex.get_variable("whole", (ROWS, 2))
    city = jnp.asarray(features["city"])
    rows = ex.embedding_lookup(by_row, features["city"])
    rows += ex.embedding_lookup(masked, (city * 3) % (ROWS * 8))
    rows += ex.embedding_lookup(whole, features["city"])
    logits = rows.sum(axis=(1, 2)) * features["x"]
    loss = jnp.mean((logits - labels) ** 2) + 0.01 * jnp.sum(whole**2)
    return ex.EstimatorSpec(mode, loss=loss, train_op=params["optimizer"])


def test_declared_tables_of_every_kind_are_sharded():
    alone = models.estimator(function=declared_fn)
    shared = models.estimator(function=declared_fn, **models.SHARDED)
    expected, found = models.losses(alone), models.losses(shared)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    models.assert_same_variables(alone, shared)
    results = [m.evaluate(models.input_fn())["loss"] for m in (alone, shared)]
    assert results[1] == pytest.approx(results[0], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"accumulate_steps": 2}, {"average_decay": 0.9}],
    ids=["accumulated", "averaged"],
)
def test_accumulation_and_averages_are_those_of_one_device(settings):
    alone = models.estimator(**settings)
    shared = models.estimator(**settings, **models.MIXED)
    expected, found = models.losses(alone), models.losses(shared)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    models.assert_same_variables(alone, shared)


def test_one_device_has_no_padding_and_no_collectives():
    text, state = compiled_step(models.estimator())
    assert state.row_counts == ()
    assert "all-reduce" not in text
    assert isinstance(state.step.sharding, jax.sharding.SingleDeviceSharding)


def columns():
    city = models.fc.categorical_column_with_identity("city", models.ROWS)
    deep = [models.fc.numeric_column("x"), models.fc.embedding_column(city, 3)]
    return [city], deep


@pytest.mark.slow
@pytest.mark.parametrize("above", [0, None], ids=["sharded", "replicated"])
@pytest.mark.parametrize("name", [*models.OPTIMIZERS])
def test_wide_and_deep_has_the_losses_of_one_device_over_200_steps(name, above):
    def losses(**settings):
        wide, deep = columns()
        model = ex.DNNLinearCombinedClassifier(
            linear_feature_columns=wide,
            linear_optimizer=models.OPTIMIZERS[name](),
            dnn_feature_columns=deep,
            dnn_optimizer=models.OPTIMIZERS[name](),
            dnn_hidden_units=[16],
            dnn_dropout=0.1,
            batch_norm=True,
            config=models.config(**settings),
        )
        return models.losses(model, make=models.input_fn(examples=3200))

    found = losses(devices=8, shard_tables_above=above)
    np.testing.assert_allclose(found, losses(), rtol=1e-5)
