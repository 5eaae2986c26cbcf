"""Flax's `nn.Embed` in training: updated by row where the result is that of Flax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import estimax as ex
from estimax import training
from estimax.core.errors import FeatureError, NanLossError
from estimax.feature_columns.transforms.embedding_lookups import IndexIds
from estimax.staging import host_plan as plans
from estimax.training import UpdateKind

V, D = 25_000, 4
NAME = "words/embedding"
DRAW = np.random.default_rng(0)
BATCHES = [
    ({"a": DRAW.integers(-V, V, (8, 3)) // n}, np.arange(8, dtype=np.float32))
    for n in (1, 1000, 3, 5000)
]


class FlaxEmbed(nn.Embed):
    """The layer as Flax has it: only `nn.Embed` itself is read by row."""


def net_of(layer, ids):
    return nn.Dense(1, name="out")(layer(ids).mean(axis=1))[:, 0]


def plain(make, features):
    return net_of(make(V, D, name="words"), features["a"])


def computed(make, features):
    return net_of(make(V, D, name="words"), features["a"] + 0)


def twice(make, features):
    layer = make(V, D, name="words")
    first = layer(features["a"][:, 0]).sum(axis=1)
    return first + net_of(layer, features["a"])


def attending(make, features):
    layer = make(V, D, name="words")
    rows = layer(features["a"]).mean(axis=1)
    return layer.attend(rows)[:, 0]


def penalized(make, features):
    layer = make(V, D, name="words")
    return net_of(layer, features["a"]) + jnp.mean(layer.embedding**2)


def narrow(make, features):
    return net_of(make(V, D, dtype=jnp.bfloat16, name="words"), features["a"])


def small(make, features):
    return net_of(make(V // 4, D, name="words"), features["a"] // 4)


def mapped(make, features):
    every = nn.vmap(make, variable_axes={"params": None}, split_rngs={"params": False})
    return net_of(every(V, D, name="words"), features["a"])


def recomputed(make, features):
    return net_of(nn.remat(make)(V, D, name="words"), features["a"])


class Looped(nn.Module):
    make: type[nn.Module]

    @nn.compact
    def __call__(self, carry, ids):
        return carry, self.make(V, D, name="inner")(ids)


def looped(make, features):
    scan = nn.scan(
        Looped, variable_broadcast="params", split_rngs={"params": False}, in_axes=1
    )
    _, rows = scan(make, name="words")(jnp.zeros(()), features["a"])
    return rows.mean(axis=(0, 2))


def model_fn_of(net, optimizer, make):
    def model_fn(features, labels, mode):
        y = net(make, features)
        if mode == ex.ModeKeys.PREDICT:
            return ex.EstimatorSpec(mode, predictions={"y": y})
        loss = jnp.mean(jnp.square(y - labels))
        return ex.EstimatorSpec(mode, loss=loss, train_op=optimizer)

    return model_fn


def kinds(net, optimizer, make=nn.Embed, **options):
    """How each variable is updated."""
    model_fn = model_fn_of(net, optimizer, make)
    recording = training.record(
        lambda features, labels: model_fn(features, labels, "train"),
        plans.flatten(*BATCHES[0]),
        "train",
        **options,
    )
    updates = training.compile(recording).updates
    return {name: update.kind for name, update in updates.items()}


def trained(net, optimizer, make, model_dir=None, batches=BATCHES):
    config = ex.RunConfig(tf_random_seed=3, save_summary_steps=0, devices=1)
    model = ex.Estimator(model_fn_of(net, optimizer, make), model_dir, config)
    return model.train(lambda: iter(batches))


def weights(model):
    return [n for n in model.get_variable_names() if not n.startswith("training/")]


def assert_same(one, other):
    names = weights(one)
    assert names == weights(other)
    for name in names:
        found, wanted = one.get_variable_value(name), other.get_variable_value(name)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7, err_msg=name)


SAME = {
    "SGD": ex.optimizers.SGD(0.5),
    "Adagrad": ex.optimizers.Adagrad(0.5),
    "clipped": ex.optimizers.Adagrad(0.5, global_clipnorm=0.1),
}


@pytest.mark.parametrize("optimizer", SAME.values(), ids=SAME)
@pytest.mark.parametrize("net", [plain, computed, twice])
def test_training_by_row_gives_the_variables_of_flax(net, optimizer):
    expected = UpdateKind.MASKED if net in (computed, twice) else UpdateKind.ROWS
    assert kinds(net, optimizer)[NAME] is expected
    assert kinds(net, optimizer, FlaxEmbed)[NAME] is UpdateKind.WHOLE
    assert_same(trained(net, optimizer, nn.Embed), trained(net, optimizer, FlaxEmbed))


CHANGING = {
    "Adam": ex.optimizers.Adam(0.1),
    "AdamW": ex.optimizers.AdamW(0.1),
    "LazyAdam": ex.optimizers.LazyAdam(0.1),
    "momentum": ex.optimizers.SGD(0.1, momentum=0.9),
    "Ftrl": ex.optimizers.Ftrl(0.1),
    "RMSProp": ex.optimizers.RMSProp(0.1),
    "optax": optax.sgd(0.1),
    "changed gradients": ex.minimize(
        ex.optimizers.SGD(0.1), clip=lambda grads: jax.tree.map(jnp.sign, grads)
    ),
}


@pytest.mark.parametrize("optimizer", CHANGING.values(), ids=CHANGING)
def test_an_optimizer_that_may_change_every_row_gets_the_whole_table(optimizer):
    assert kinds(plain, optimizer)[NAME] is UpdateKind.WHOLE


@pytest.mark.parametrize(
    "net", [attending, penalized, narrow, small, mapped, recomputed, looped]
)
def test_a_layer_that_does_more_than_index_its_table_is_left_to_flax(net):
    found = kinds(net, SAME["Adagrad"])
    assert set(found.values()) == {UpdateKind.WHOLE}
    one, other = (trained(net, SAME["SGD"], make) for make in (nn.Embed, FlaxEmbed))
    assert_same(one, other)


def test_a_model_on_several_devices_is_left_to_flax():
    found = kinds(plain, SAME["SGD"], reads_by_row=False)
    assert found[NAME] is UpdateKind.WHOLE


def test_a_run_that_flax_began_is_resumed_by_row(tmp_path):
    whole = trained(plain, SAME["Adagrad"], FlaxEmbed, batches=BATCHES * 2)
    trained(plain, SAME["Adagrad"], FlaxEmbed, tmp_path)
    resumed = trained(plain, SAME["Adagrad"], nn.Embed, tmp_path)
    assert_same(resumed, whole)
    again = trained(plain, SAME["Adagrad"], FlaxEmbed, tmp_path)
    assert again.get_variable_value("global_step") == 12


def test_evaluation_and_prediction_give_the_results_of_flax():
    one, other = (trained(plain, SAME["SGD"], make) for make in (nn.Embed, FlaxEmbed))
    found, wanted = (m.evaluate(lambda: iter(BATCHES)) for m in (one, other))
    assert found == pytest.approx(wanted, rel=1e-6)
    predictions = [
        [row["y"] for row in m.predict(lambda: iter([BATCHES[0][0]]))]
        for m in (one, other)
    ]
    np.testing.assert_allclose(*predictions, rtol=1e-5)


@pytest.mark.parametrize("make", [nn.Embed, FlaxEmbed])
@pytest.mark.parametrize("net", [plain, computed])
def test_an_id_beyond_the_table_makes_the_loss_nan(make, net):
    beyond = {"a": np.full((8, 3), V)}, BATCHES[0][1]
    with pytest.raises(NanLossError):
        trained(net, SAME["SGD"], make, batches=[beyond])


def test_ids_on_the_host_follow_the_rules_of_an_index():
    found = IndexIds("a", 9)({"a": np.array([[7, -1, 9], [-9, -10, 0]])})
    assert found.tolist() == [[7, 8, -1], [0, -1, 0]]
    assert found.dtype == np.int32
    with pytest.raises(FeatureError, match="beyond 32 bits"):
        IndexIds("a", 9)({"a": np.array([2**40])})


@pytest.mark.parametrize("optimizer", [ex.optimizers.Adam(0.1), optax.sgd(0.1)])
def test_a_large_table_that_is_updated_whole_is_told_with_the_lines_to_write(optimizer):
    def model_fn(features, labels):
        rows = nn.Embed(250_000, D, name="words")(features["a"])
        loss = jnp.mean((rows.sum(axis=(1, 2)) - labels) ** 2)
        return ex.EstimatorSpec(ex.ModeKeys.TRAIN, loss=loss, train_op=optimizer)

    batch = plans.flatten(*BATCHES[0])
    recording = training.record(model_fn, batch, ex.ModeKeys.TRAIN)
    (advice,) = training.compile(recording).advice
    assert advice.startswith(f"{NAME} [250000, {D}]: nn.Embed reads rows")
    assert f"(250000, {D})) and ex.embedding_lookup(table, ids)" in advice
