"""Idioms of tf.estimator programs: variables, steps, rates and gradients."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from jax.experimental import checkify, io_callback
from tiny_models import data, features_only, once

import estimax as ex
from estimax.core.errors import BundleError, SpecError


def spec_of(mode, y, labels, train_op, **more):
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y}, **more)
    loss = jnp.mean(jnp.square(y - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=train_op, **more)


def line(features):
    w = ex.get_variable("w", (1, 1), initializer=0.25)
    b = ex.get_variable("b", (1,), initializer=0.0)
    return features["x"] @ w + b, w, b


class TestVarList:
    def trained(self, make, var_list_of):
        def model_fn(features, labels, mode):
            y, w, b = line(features)
            y = nn.Dense(1, name="layer")(y)
            op = ex.minimize(ex.optimizers.SGD(0.001), var_list=var_list_of(w, b))
            return spec_of(mode, y, labels, op)

        model = make(model_fn).train(data(), steps=2)
        first = model.get_variable_value("w").item()
        return first != 0.25, model.get_variable_value("b").item() != 0.0, model

    def test_the_arrays_of_get_variable_are_trained_alone(self, make):
        assert self.trained(make, lambda w, b: [w])[:2] == (True, False)

    def test_one_array_need_not_be_in_a_list(self, make):
        assert self.trained(make, lambda w, b: b)[:2] == (False, True)

    def test_arrays_and_names_mix(self, make):
        assert self.trained(make, lambda w, b: [w, "layer/"])[:2] == (True, False)

    def test_a_name_is_not_a_prefix_of_another(self, make):
        def model_fn(features, labels, mode):
            y, w, _ = line(features)
            other = ex.get_variable("w_2", (1,), initializer=0.0)
            op = ex.minimize(ex.optimizers.SGD(0.001), var_list=[w])
            return spec_of(mode, y + other, labels, op)

        model = make(model_fn).train(data(), steps=2)
        assert model.get_variable_value("w_2").item() == 0.0

    def test_a_collection_of_trainable_variables_includes_layers(self, make):
        def of_layer(w, b):
            keys = ex.GraphKeys.TRAINABLE_VARIABLES
            return ex.get_collection(keys, scope="layer")

        w, b, model = self.trained(make, of_layer)
        assert (w, b) == (False, False)
        assert model.get_variable_value("layer/bias").item() != 0.0

    def test_trainable_variables_are_a_list_as_in_tensorflow(self, make):
        def all_in_scope(w, b):
            (found,) = ex.trainable_variables("w")
            assert found is w
            return ex.trainable_variables("b")

        assert self.trained(make, all_in_scope)[:2] == (False, True)

    def test_trainable_variables_by_name(self, make):
        def without_bias(w, b):
            made = ex.variables_by_name()
            assert list(made) == ["b", "layer/bias", "layer/kernel", "w"]
            return [v for name, v in made.items() if "b" not in name]

        assert self.trained(make, without_bias)[:2] == (True, False)

    def test_a_dict_of_variables(self, make):
        found = self.trained(make, lambda w, b: ex.variables_by_name("w"))
        assert found[:2] == (True, False)

    def test_another_array_is_refused(self, make):
        with pytest.raises(SpecError, match=r"var_list.*not a variable.*get_variable"):
            self.trained(make, lambda w, b: [w + 1])

    def test_a_head_takes_the_arrays(self, make):
        def model_fn(features, labels, mode):
            y, w, _ = line(features)
            return ex.RegressionHead().create_estimator_spec(
                features,
                mode,
                y,
                labels,
                optimizer=ex.optimizers.SGD(0.001),
                trainable_variables=[w],
            )

        model = make(model_fn).train(data(), steps=2)
        assert model.get_variable_value("b").item() == 0.0
        assert model.get_variable_value("w").item() != 0.25

    def test_a_penalty_over_a_collected_table_has_a_gradient(self, make):
        def model_fn(features, labels, mode):
            table = ex.get_variable("table", (8, 2), initializer=1.0)
            ids = features["x"][:, 0].astype(jnp.int32)
            y = ex.embedding_lookup(table, ids).sum(-1, keepdims=True)
            spec = spec_of(mode, y, labels, ex.optimizers.SGD(0.1))
            penalty = sum(ex.optimizers.l2_loss(v) for v in ex.trainable_variables())
            return spec._replace(loss=0.0 * spec.loss + penalty)

        model = make(model_fn).train(data(), steps=1)
        assert model.get_variable_value("table") == pytest.approx(np.full((8, 2), 0.9))


class TestStep:
    def decayed(self, rate_of, **settings):
        def model_fn(features, labels, mode):
            y, _, _ = line(features)
            return spec_of(mode, y, labels, rate_of(ex.get_global_step()))

        return model_fn

    def test_a_rate_that_is_an_array_of_the_step(self, make, tmp_path):
        def computed(step):
            return ex.optimizers.SGD(0.01 * 0.5 ** step.astype(jnp.float32))

        model = make(self.decayed(computed)).train(data(), steps=4)
        schedule = ex.optimizers.SGD(lambda step: 0.01 * 0.5 ** jnp.float32(step))
        other = ex.Estimator(self.decayed(lambda _: schedule), tmp_path / "other")
        other.train(data(), steps=4)
        assert model.get_variable_value("w") == other.get_variable_value("w")

    @pytest.mark.parametrize(
        "settings",
        [
            {"debug": True},
            {"debug": "nan"},
            {"accumulate_steps": 2},
            {"iterations_per_loop": 2},
            {"precision": "bfloat16", "average_decay": 0.9},
        ],
        ids=str,
    )
    def test_in_every_way_to_run(self, make, settings):
        def at_step_two(step):
            return ex.optimizers.SGD(jnp.where(step == 2, 0.01, 0.0))

        model = make(self.decayed(at_step_two), **settings)
        model.train(data(repeat=10), steps=2)
        assert model.get_variable_value("w").item() == 0.25
        model.train(data(repeat=10), steps=1)
        assert model.get_variable_value("w").item() != 0.25

    def test_the_optimizer_of_a_canned_model_may_be_a_function_of_the_step(
        self, tmp_path
    ):
        def optimizer():
            rate = jnp.where(ex.get_global_step() < 1, 0.1, 0.0)
            return ex.optimizers.v1.FtrlOptimizer(rate)

        columns = [ex.feature_columns.numeric_column("x")]
        model = ex.LinearRegressor(columns, tmp_path / "model", optimizer=optimizer)
        model.train(data(), steps=1)
        bias = model.get_variable_value("linear/linear_model/bias_weights").item()
        assert bias != 0.0
        model.train(data(), steps=1)
        again = model.get_variable_value("linear/linear_model/bias_weights").item()
        assert again == bias

    def test_the_rate_is_logged(self, make):
        seen = []

        class Watch(ex.SessionRunHook):
            def before_run(self, context):
                return ["learning_rate"]

            def after_run(self, context, values):
                seen.append(float(values["learning_rate"]))

        model = make(self.decayed(lambda step: ex.optimizers.SGD(0.001 * (step + 1))))
        model.train(data(), steps=3, hooks=[Watch()])
        assert seen == pytest.approx([0.001, 0.002, 0.003])

    def test_a_rate_of_each_group(self, make):
        def model_fn(features, labels, mode):
            y, w, b = line(features)
            step = ex.get_global_step()
            op = ex.group(
                ex.minimize(ex.optimizers.SGD(0.0 * step), var_list=[w]),
                ex.minimize(ex.optimizers.Adagrad(0.01 * (step + 1)), var_list=[b]),
            )
            return spec_of(mode, y, labels, op)

        model = make(model_fn).train(data(), steps=2)
        assert model.get_variable_value("w").item() == 0.25
        assert model.get_variable_value("b").item() != 0.0

    def test_a_rate_for_the_rows_of_a_table(self, make):
        def model_fn(features, labels, mode):
            table = ex.get_variable("table", (8, 1), initializer=1.0)
            y = ex.embedding_lookup(table, features["x"][:, 0].astype(jnp.int32))
            rate = jnp.where(ex.get_global_step() == 0, 0.5, 0.0)
            return spec_of(mode, y, labels, ex.optimizers.SGD(rate))

        model = make(model_fn).train(data(), steps=3)
        table = model.get_variable_value("table")[:, 0]
        assert list(table != 1.0) == [True, True, *[False] * 6]

    def test_optax_with_an_array_of_the_model_says_what_to_write(self, make):
        model = make(self.decayed(lambda step: optax.sgd(0.01 / (1.0 + step))))
        with pytest.raises(SpecError, match=r"train_op.*array.*ex\.optimizers"):
            model.train(data(), steps=1)

    def test_evaluate_predict_and_export_have_the_step_of_the_checkpoint(self, make):
        def model_fn(features, labels, mode):
            y, _, _ = line(features)
            step = ex.get_or_create_global_step()
            return spec_of(
                mode,
                y * 0 + step,
                labels,
                ex.optimizers.SGD(0.001),
                eval_metric_ops=None
                if mode == ex.ModeKeys.PREDICT
                else {"step": ex.metrics.mean(jnp.float32(step))},
            )

        model = make(model_fn).train(data(), steps=3)
        assert model.evaluate(once())["step"] == 3
        assert next(iter(model.predict(features_only(repeat=1))))["y"].item() == 3
        bundle = ex.export.load(model.export_saved_model(model.model_dir + "/export"))
        row = {"x": np.ones((1, 1), np.float32)}
        assert bundle.predict(row)["y"].item() == 3
        model.train(data(), steps=1)
        assert model.evaluate(once())["step"] == 4
        bundle = ex.export.load(model.export_saved_model(model.model_dir + "/export"))
        assert bundle.predict(row)["y"].item() == 4

    def test_a_schedule_with_the_step_in_its_place_of_tensorflow(self, make):
        def model_fn(features, labels, mode):
            w = ex.get_variable("w", (), initializer=0.0)
            step = ex.get_global_step()
            rate = ex.optimizers.exponential_decay(1.0, step, 1, 0.5)
            sgd = ex.optimizers.v1.GradientDescentOptimizer(rate)
            return ex.EstimatorSpec(mode, loss=-w, train_op=sgd)

        model = make(model_fn).train(data(), steps=3)
        assert model.get_variable_value("w") == 1.75

    @pytest.mark.parametrize("names", [".*", ["w", "b", "global_step"]], ids=str)
    def test_a_warm_start_has_its_step(self, make, tmp_path, names):
        def model_fn(features, labels, mode):
            y, _, _ = line(features)
            y = y * 0 + ex.get_global_step()
            return spec_of(mode, y, labels, ex.optimizers.SGD(0.001))

        old = make(model_fn).train(data(), steps=3)
        settings = ex.WarmStartSettings(old.model_dir, names)
        new = ex.Estimator(model_fn, tmp_path / "new", warm_start_from=settings)
        found = next(iter(new.predict(features_only(repeat=1))))["y"].item()
        assert found == (0 if names == ".*" else 3)

    def test_outside_of_a_model_it_says_who_counts(self):
        with pytest.raises(
            SpecError, match=r"get_global_step.*model_fn.*context\.step"
        ):
            ex.get_global_step()

    @pytest.mark.parametrize("trainable", [True, False])
    def test_a_variable_of_that_name_is_refused_at_once(self, make, trainable):
        def model_fn(features, labels, mode):
            y, _, _ = line(features)
            ex.get_variable("global_step", (), initializer=0.0, trainable=trainable)
            return spec_of(mode, y, labels, ex.optimizers.SGD(0.001))

        with pytest.raises(SpecError, match=r"global_step.*ex\.get_global_step\(\)"):
            make(model_fn).train(data(), steps=1)

    def test_so_is_the_name_of_the_random_key(self, make):
        def model_fn(features, labels, mode):
            ex.get_variable("random_key", (2,))

        with pytest.raises(SpecError, match=r"'random_key'.*another name"):
            make(model_fn).train(data(), steps=1)

    def test_a_layer_of_that_name_is_no_variable(self, make):
        def model_fn(features, labels, mode):
            y = nn.Dense(1, name="global_step")(features["x"])
            return spec_of(mode, y, labels, ex.optimizers.SGD(0.001))

        model = make(model_fn).train(data(), steps=1)
        assert "global_step/kernel" in model.get_variable_names()


class TestMethodsOfVariables:
    @pytest.mark.parametrize(
        ("use", "words"),
        [
            (lambda v: v.name, r"'w'.*ex\.variables_by_name\(\)"),
            (lambda v: v.assign(1.0), r"ex\.assign\(variable, value\)"),
            (lambda v: v.assign_add(1.0), r"ex\.assign\(variable, variable \+ value\)"),
            (lambda v: v.assign_sub(1.0), r"ex\.assign\(variable, variable - value\)"),
            (lambda v: v.eval(), r"estimator\.get_variable_value\('w'\)"),
            (lambda v: v.read_value(), "array itself"),
            (lambda v: v.get_shape(), r"\.shape"),
            (lambda v: v.numpy(), r"RunConfig\(debug=True\)"),
        ],
    )
    def test_a_method_of_tensorflow_names_what_to_write(self, make, use, words):
        def model_fn(features, labels, mode):
            y, w, _ = line(features)
            use(w)
            return spec_of(mode, y, labels, ex.optimizers.SGD(0.001))

        with pytest.raises(AttributeError, match=words):
            make(model_fn).train(data(), steps=1)

    def test_another_attribute_error_is_left_alone(self, make):
        def model_fn(features, labels, mode):
            return features.no_such_thing

        with pytest.raises(AttributeError, match="no_such_thing") as caught:
            make(model_fn).train(data(), steps=1)
        assert "TensorFlow" not in str(caught.value)


class TestGradients:
    """Between `compute_gradients` and `apply_gradients`."""

    def test_a_function_changes_gradients_of_variables_and_rows_of_tables(self, make):
        seen = {}

        def halve_the_table(grads):
            seen.update(jax.tree.map(jnp.shape, grads))
            return {n: g / 2 if n == "table" else g * 0 for n, g in grads.items()}

        def model_fn(features, labels, mode):
            table = ex.get_variable("table", (8, 1), initializer=1.0)
            b = ex.get_variable("b", (1,), initializer=0.0)
            y = ex.embedding_lookup(table, features["id"]) + b
            loss = jnp.sum(y)  # the gradient of each row is 1
            op = ex.minimize(ex.optimizers.SGD(0.5), clip=halve_the_table)
            return ex.EstimatorSpec(mode, loss=loss, train_op=op)

        rows = {"id": np.array([2, 5], np.int32)}
        model = make(model_fn).train(lambda: [(rows, None)], steps=1)
        table = model.get_variable_value("table")[:, 0].tolist()
        assert table == [1, 1, 0.75, 1, 1, 0.75, 1, 1]
        assert model.get_variable_value("b").item() == 0.0
        assert sorted(seen) == ["b", "table"]

    def test_an_own_optax_transformation_before_our_optimizer(self, make, tmp_path):
        def estimator(op, name):
            def model_fn(features, labels, mode):
                y, _, _ = line(features)
                return spec_of(mode, y, labels, op)

            return ex.Estimator(model_fn, tmp_path / name).train(data(), steps=3)

        halved = optax.stateless(
            lambda updates, params: jax.tree.map(lambda g: g / 2, updates)
        )
        chained = optax.chain(halved, ex.optimizers.Adagrad(0.1).dense())
        by_clip = ex.minimize(
            ex.optimizers.Adagrad(0.1),
            clip=lambda grads: jax.tree.map(lambda g: g / 2, grads),
        )
        values = [
            estimator(op, name).get_variable_value("w").item()
            for op, name in [(chained, "chained"), (by_clip, "clip")]
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-6)

    def test_a_function_that_loses_a_gradient_is_named(self, make):
        def model_fn(features, labels, mode):
            y, _, _ = line(features)
            op = ex.minimize(ex.optimizers.SGD(0.5), clip=lambda grads: {})
            return spec_of(mode, y, labels, op)

        with pytest.raises(SpecError, match=r"clip.*'b'"):
            make(model_fn).train(data(), steps=1)

    def test_compute_gradients_names_the_way(self):
        with pytest.raises(AttributeError, match=r"ex\.minimize\(.*clip="):
            _ = ex.optimizers.Adam(0.1).compute_gradients


@pytest.mark.parametrize("ids", ["raw", "computed"])
def test_a_rate_of_the_step_on_eight_devices_with_a_sharded_table(make, ids):
    def model_fn(features, labels, mode):
        table = ex.get_variable("table", (16, 1), initializer=1.0)
        which = features["id"] if ids == "raw" else features["id"] + 0
        y = ex.embedding_lookup(table, which)
        rate = jnp.where(ex.get_global_step() == 0, 0.5, 0.0)
        more = {} if mode == "infer" else {"eval_metric_ops": {}}
        return spec_of(mode, y, labels, ex.optimizers.SGD(rate), **more)

    rows = {"id": np.arange(8, dtype=np.int32)}, np.zeros((8, 1), np.float32)
    model = make(model_fn, devices="all", shard_tables_above=0)
    model.train(lambda: [rows, rows], steps=2)
    table = model.get_variable_value("table")[:, 0]
    assert list(table != 1.0) == [*[True] * 8, *[False] * 8]
    assert model.evaluate(lambda: [rows])["global_step"] == 2


def test_a_metric_is_a_summary_and_a_metric(make, tmp_path):
    def model_fn(features, labels, mode):
        y, _, _ = line(features)
        near = ex.metrics.v1.accuracy(labels > 1, y > 1)
        ex.summary.scalar("near", near[1])
        return spec_of(
            mode, y, labels, ex.optimizers.SGD(0.0), eval_metric_ops={"near": near}
        )

    model = make(model_fn, save_summary_steps=1).train(once(), steps=4)
    found = ex.summary.read_scalars(model.model_dir)["near"]
    values = [float(value) for _, value in found]
    assert values == [1.0, 0.5, 0.5, 1.0]  # of each batch, not since the start
    assert model.evaluate(once())["near"] == 0.75


class TestArgumentsOfTpuEstimator:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"use_tpu": False}, r"use_tpu.*leave it out.*devices="),
            ({"train_batch_size": 8}, r"train_batch_size.*params=\{\"batch_size\": 8"),
            ({"eval_on_tpu": True}, "eval_on_tpu.*leave it out"),
            ({"modle_dir": "x"}, r"modle_dir.*model_dir"),
        ],
    )
    def test_say_what_to_write(self, given, words):
        with pytest.raises(TypeError, match=words):
            ex.Estimator(lambda features, labels, mode: None, **given)

    def test_an_input_fn_that_misses_the_batch_size_is_told(self, make):
        def input_fn(params):
            return once(params["batch_size"])()

        with pytest.raises(KeyError) as caught:
            make().train(input_fn)
        assert 'params={"batch_size": …}' in "".join(caught.value.__notes__)

    def test_params_hold_the_batch_size(self, make):
        def model_fn(features, labels, mode, params):
            y, _, _ = line(features)
            assert len(labels) == params["batch_size"]
            return spec_of(mode, y, labels, ex.optimizers.SGD(0.01))

        def input_fn(params):
            return once(params["batch_size"])()

        model = make(model_fn, {"batch_size": 4}).train(input_fn)
        assert model.get_variable_value("global_step") == 2


@pytest.mark.parametrize(
    "name", ["train_distribute", "eval_distribute", "experimental_distribute"]
)
def test_a_strategy_names_devices(name):
    with pytest.raises(ValueError, match=rf"{name}.*RunConfig\(devices="):
        ex.RunConfig(**{name: object()})


@pytest.mark.parametrize(
    "kind", ["pure_callback", "io_callback", "debug.print", "ffi.ffi_call"]
)
def test_a_call_of_python_or_native_code_cannot_be_exported(make, kind):
    def doubled(x):
        form = jax.ShapeDtypeStruct(x.shape, x.dtype)
        if kind == "ffi.ffi_call":
            return jax.ffi.ffi_call("no_such_target", form)(x)
        if kind == "debug.print":
            jax.debug.print("{x}", x=x)
            return x
        call = jax.pure_callback if kind == "pure_callback" else io_callback
        return call(lambda a: np.asarray(a) * 2, form, x)

    def model_fn(features, labels, mode):
        y, _, _ = line(features)
        if mode == ex.ModeKeys.PREDICT:
            y = jax.jit(doubled)(y)
        return spec_of(mode, y, labels, ex.optimizers.SGD(0.01))

    model = make(model_fn).train(data(), steps=1)
    words = rf"{re.escape(kind)}.*'infer'.*input_fn"
    with pytest.raises(BundleError, match=words):
        model.export_saved_model(model.model_dir + "/export")


class TestLookupInFlaxParameter:
    """`ex.embedding_lookup` of what `self.param` returned, in a ported Keras layer."""

    def trained(self, make, rows, cast, caplog, **settings):
        class Embedding(nn.Module):
            @nn.compact
            def __call__(self, ids):
                table = self.param("table", nn.initializers.ones, (rows, 1))
                if cast:
                    table = table.astype(jnp.bfloat16).astype(jnp.float32)
                return ex.embedding_lookup(table, ids)

        def model_fn(features, labels, mode):
            y = Embedding(name="emb")(features["id"])
            spec = spec_of(mode, y, labels, ex.optimizers.Momentum(0.1, 0.9))
            return spec

        batches = [
            ({"id": np.array([i], np.int32)}, np.zeros((1, 1), np.float32))
            for i in (0, 1)
        ]
        model = make(model_fn, **settings).train(lambda: batches)
        table = model.get_variable_value("emb/table")[:2, 0]
        return model, table.tolist(), [r.getMessage() for r in caplog.records]

    def test_only_the_rows_of_the_batch_are_updated(self, make, caplog):
        model, table, _ = self.trained(make, 8, False, caplog)
        assert table == pytest.approx([0.8, 0.8])  # a dense update moves row 0 twice
        row = {"id": np.array([1], np.int32)}
        (found,) = model.predict(lambda: iter([row]))
        assert found["y"] == pytest.approx(0.8)
        batch = row, np.zeros((1, 1), np.float32)
        assert model.evaluate(lambda: [batch])["loss"] == pytest.approx(0.64)
        model.train(lambda: [batch])
        bundle = ex.export.load(model.export_saved_model(model.model_dir + "/export"))
        assert bundle.predict(row)["y"] == pytest.approx(
            model.get_variable_value("emb/table")[1:2]
        )

    def test_a_large_one_needs_no_warning(self, make, caplog):
        _, _, messages = self.trained(make, 1_000_000, False, caplog)
        assert not any("emb/table" in message for message in messages)

    def test_a_changed_one_is_dense_and_the_warning_says_why(self, make, caplog):
        _, table, messages = self.trained(make, 1_000_000, True, caplog)
        assert table[0] < 0.75
        (message,) = [m for m in messages if "emb/table" in m]
        assert "the parameter itself" in message

    def test_on_eight_devices(self, make, caplog):
        settings = {"devices": "all", "shard_tables_above": 0}
        _, table, _ = self.trained(make, 16, False, caplog, **settings)
        assert table == pytest.approx([0.8, 0.8])


class TestAssertions:
    def model_fn(self, features, labels, mode, config):
        y, _, _ = line(features)
        if config.debug or self.always:
            checkify.check(jnp.all(labels >= 0), "a label is negative")
        return spec_of(mode, y, labels, ex.optimizers.SGD(0.01))

    always = False

    def test_they_run_behind_debug(self, make):
        bad = {"x": np.ones((1, 1), np.float32)}, -np.ones((1, 1), np.float32)
        make(self.model_fn).train(lambda: [bad])
        with pytest.raises(checkify.JaxRuntimeError, match="a label is negative"):
            make(self.model_fn, debug=True).train(lambda: [bad])

    def test_elsewhere_the_error_says_where(self, make):
        self.always = True
        with pytest.raises(SpecError, match=r"checkify\.check.*if config\.debug:"):
            make(self.model_fn).train(data(), steps=1)


def test_collections_of_losses(make):
    seen = {}

    def model_fn(features, labels, mode):
        w = ex.get_variable("w", (1, 1), regularizer=ex.optimizers.l2(0.1))
        ex.losses.add_loss(jnp.float32(2.0), "regularization_losses")
        ex.losses.add_loss(jnp.float32(3.0), "own")
        keys = ex.GraphKeys
        loss = ex.losses.mean_squared_error(labels, features["x"] @ w)
        seen["regularization"] = len(ex.get_collection(keys.REGULARIZATION_LOSSES))
        seen["losses"] = len(ex.get_collection(keys.LOSSES))
        seen["own"] = len(ex.get_collection("own"))
        with pytest.raises(SpecError, match="no collection 'other'"):
            ex.get_collection("other")
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.1))

    make(model_fn).train(data(), steps=1)
    assert seen == {"regularization": 2, "losses": 1, "own": 1}
