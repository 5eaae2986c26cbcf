"""What a training leaves for TensorBoard, read back by TensorBoard's own reader."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import data, line_model_fn, once

import estimax as ex
from estimax import hooks

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
)


def read(folder):
    """All that a folder's event files hold."""
    sizes = {"histograms": 0, "images": 0, "scalars": 0, "tensors": 0}
    found = event_accumulator.EventAccumulator(str(folder), size_guidance=sizes)
    return found.Reload()


def steps_of(events):
    return [event.step for event in events]


def telling_model_fn(features, labels, mode):
    """A line that logs a value of every kind."""
    spec = line_model_fn(features, labels, mode)
    if mode == ex.ModeKeys.PREDICT:
        return spec
    ex.summary.scalar("mean_x", jnp.mean(features["x"]))
    ex.summary.scalar("mean_x", jnp.float32(-1.0))
    ex.summary.histogram("x", features["x"])
    ex.summary.image("pixels", jnp.ones((2, 4, 5, 3)) * features["x"][0])
    ex.summary.image("one", features["x"].reshape(1, 1, 2, 1), max_outputs=1)
    ex.summary.text("about", "a **line**")
    ex.log_value("silent", jnp.float32(0.0))
    return spec


@pytest.mark.parametrize("loop", [1, 4])
def test_every_kind_of_value_is_written_at_its_steps(make, loop):
    model = make(telling_model_fn, save_summary_steps=3, iterations_per_loop=loop)
    model.train(data(), steps=8)
    found = read(model.model_dir)
    assert steps_of(found.Scalars("loss")) == [1, 4, 7]
    # Batches are (0, 1), (2, 3), (4, 5), (6, 7) and again: of the step itself.
    means = [event.value for event in found.Scalars("mean_x")]
    assert means == [0.5, 6.5, 4.5]
    assert [event.value for event in found.Scalars("mean_x_1")] == [-1.0] * 3
    counts = [event.histogram_value.num for event in found.Histograms("x")]
    assert counts == [2, 2, 2]
    assert "silent" not in found.Tags()["scalars"]
    text = found.Tensors("about/text_summary")
    assert steps_of(text) == [1, 4, 7]
    assert text[0].tensor_proto.string_val[0] == b"a **line**"


def test_images_have_tensorflows_tags_and_sizes(make):
    model = make(telling_model_fn, save_summary_steps=100)
    model.train(data(), steps=1)
    found = read(model.model_dir)
    assert found.Tags()["images"] == ["pixels/image/0", "pixels/image/1", "one/image"]
    image = found.Images("pixels/image/1")[0]
    assert (image.height, image.width) == (4, 5)
    assert image.encoded_image_string.startswith(b"\x89PNG")


def test_the_learning_rate_is_that_of_the_update(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        rate = ex.optimizers.exponential_decay(0.5, 1, 0.5)
        return spec._replace(train_op=ex.optimizers.SGD(rate))

    model = make(model_fn, save_summary_steps=1).train(data(), steps=3)
    rates = ex.summary.read_scalars(model.model_dir)["learning_rate"]
    assert rates == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_every_group_has_its_learning_rate(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        injected = optax.inject_hyperparams(optax.sgd)(learning_rate=0.25)
        train_op = ex.group(
            ex.minimize(ex.optimizers.SGD(0.125), var_list="line/kernel"),
            ex.minimize(injected, var_list="line/bias"),
        )
        return spec._replace(train_op=train_op)

    model = make(model_fn, save_summary_steps=1).train(data(), steps=1)
    found = ex.summary.read_scalars(model.model_dir)
    assert found["learning_rate/line_0"] == [(1, 0.125)]
    assert found["learning_rate/line_1"] == [(1, 0.25)]


def test_a_raw_optax_transformation_keeps_its_rate_to_itself(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec._replace(train_op=optax.adam(0.1))

    model = make(model_fn, save_summary_steps=1).train(data(), steps=1)
    assert ex.summary.read_scalars(model.model_dir).keys() == {"loss"}


def test_evaluation_writes_metrics_and_none_of_the_models_summaries(make):
    model = make(telling_model_fn).train(data(), steps=1)
    model.evaluate(once())
    tags = read(model.eval_dir()).Tags()
    assert sorted(tags["scalars"]) == ["error", "loss"]
    assert tags["histograms"] == tags["images"] == []
    assert tags["tensors"] == ["checkpoint_path/text_summary"]


def test_a_hook_writes_the_models_summaries_in_evaluation(make, tmp_path):
    model = make(telling_model_fn).train(data(), steps=2)
    hook = hooks.SummarySaverHook(save_steps=1, output_dir=tmp_path / "more")
    model.evaluate(once(), hooks=[hook])
    found = read(tmp_path / "more")
    # Of the first batch, at the step of the checkpoint.
    assert [(e.step, e.value) for e in found.Scalars("mean_x")] == [(2, 0.5)]
    assert steps_of(found.Histograms("x")) == [2]


def test_a_model_that_logs_can_be_exported(make, tmp_path):
    def model_fn(features, labels, mode):
        ex.summary.histogram("x", features["x"])
        ex.summary.image("pixels", features["x"][:, None, None, :])
        return line_model_fn(features, labels, mode)

    model = make(model_fn).train(data(), steps=1)
    assert model.export_saved_model(tmp_path / "export")


def test_watching_does_not_change_a_bit(make, tmp_path):
    watched = make(telling_model_fn, save_summary_steps=1).train(data(), steps=5)
    config = ex.RunConfig(save_summary_steps=0, tf_random_seed=1)
    alone = ex.Estimator(telling_model_fn, tmp_path / "alone", config)
    alone.train(data(), steps=5)
    for name in ("line/kernel", "line/bias"):
        np.testing.assert_array_equal(
            watched.get_variable_value(name), alone.get_variable_value(name)
        )


def test_a_model_may_log_its_loss_by_that_name(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        ex.summary.scalar("loss", spec.loss)
        return spec

    model = make(model_fn, save_summary_steps=1).train(data(), steps=2)
    assert steps_of(read(model.model_dir).Scalars("loss")) == [1, 2]


class TestCannedModels:
    """Tags of tf.estimator's canned models."""

    def tags(self, model, folder):
        def input_fn():
            x = np.arange(4, dtype=np.float32)
            features = {"x": x, "city": np.array(["a", "b", "a", "c"])}
            return ex.input.Dataset.from_tensor_slices(
                (features, (x > 1).astype(int))
            ).batch(2)

        model.train(input_fn)
        found = read(folder)
        named = found.Tags()
        return set(named["scalars"]), set(named["histograms"]), found

    number = ex.feature_columns.numeric_column("x")
    city = ex.feature_columns.categorical_column_with_hash_bucket("city", 10)

    def test_deep(self, tmp_path):
        model = ex.DNNClassifier([3, 2], [self.number], tmp_path)
        scalars, histograms, _ = self.tags(model, tmp_path)
        layers = ["dnn/hiddenlayer_0", "dnn/hiddenlayer_1", "dnn/logits"]
        assert {f"{name}/fraction_of_zero_values" for name in layers} <= scalars
        assert {f"{name}/activation" for name in layers} <= histograms
        assert {"loss", "learning_rate"} <= scalars

    def test_linear(self, tmp_path):
        model = ex.LinearClassifier([self.number, self.city], tmp_path)
        scalars, _, found = self.tags(model, tmp_path)
        assert {"loss", "bias", "fraction_of_zero_weights", "learning_rate"} <= scalars
        # Before the first step all weights are zero: one of x, ten of the cities.
        assert found.Scalars("fraction_of_zero_weights")[0].value == 1.0
        assert found.Scalars("bias")[0].value == 0.0

    def test_linear_with_several_logits_has_a_histogram_of_biases(self, tmp_path):
        model = ex.LinearClassifier([self.number], tmp_path, n_classes=3)
        scalars, histograms, _ = self.tags(model, tmp_path)
        assert "bias" in histograms
        assert "bias" not in scalars

    def test_combined(self, tmp_path):
        model = ex.DNNLinearCombinedClassifier(
            tmp_path,
            linear_feature_columns=[self.city],
            dnn_feature_columns=[self.number],
            dnn_hidden_units=[2],
        )
        scalars, histograms, _ = self.tags(model, tmp_path)
        assert {
            "linear/fraction_of_zero_values",
            "dnn/logits/fraction_of_zero_values",
            "fraction_of_zero_weights",
            "learning_rate/dnn",
            "learning_rate/linear",
        } <= scalars
        assert {"linear/activation", "dnn/logits/activation"} <= histograms
