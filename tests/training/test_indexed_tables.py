"""`table[ids]` in training: updated by row where the result is that of indexing."""

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
from estimax.staging.packing import pack
from estimax.training import UpdateKind

V, D = 250_000, 4  # the smallest tables that are read by row
DRAW = np.random.default_rng(0)
BATCHES = [
    (
        {"a": DRAW.integers(-V, V, (8, 3)) // n, "word": np.array([b"x", b"y"] * 4)},
        np.arange(8, dtype=np.float32),
    )
    for n in (1, 1000, 5000)
]


def table():
    def values(key, shape, dtype):
        return jnp.sin(jnp.arange(np.prod(shape), dtype=dtype)).reshape(shape)

    return ex.get_variable("emb", (V, D), initializer=values)


def indexed(features):
    return table()[features["a"]]


def taken(features):
    return jnp.take(table(), features["a"], axis=0)


def looked_up(features):
    return ex.embedding_lookup(table(), features["a"])


def computed(features):
    return table()[features["a"] // 2]


def computed_and_looked_up(features):
    return ex.embedding_lookup(table(), features["a"] // 2)


def twice(features):
    return table()[features["a"]] * table_again()[features["a"][:, :1]]


def table_again():
    with ex.variable_scope("", reuse=True):
        return ex.get_variable("emb", (V, D))


def words(features):
    place = ex.lookup.string_to_index(features["word"], ["x", "y"], num_oov_buckets=1)
    return table()[place][:, None]


def vectors(features):
    return ex.get_variable("emb", (V * D,), initializer=0.5)[features["a"]][..., None]


def kept_in_range(features):
    return table().at[features["a"]].get(mode="clip")


def record(net, train_op=ex.optimizers.Adagrad(0.5), **options):  # noqa: B008
    def function(features, labels):
        loss = jnp.mean(jnp.square(net(features).sum(axis=(1, 2)) - labels))
        return ex.EstimatorSpec("train", loss=loss, train_op=train_op)

    (batch,) = positive(BATCHES[:1])
    return training.record(function, plans.flatten(*batch), "train", **options)


def kind(recording):
    return training.compile(recording).updates["emb"].kind


def trained(recording, batches=BATCHES):
    """The losses, and the table after a step on each batch."""
    program = training.compile(recording)
    prepared = [pack(program.plan.prepare(plans.flatten(*batch))) for batch in batches]
    state = program.init(jax.random.key(0), prepared[0])
    losses = []
    for batch in prepared:
        state, outputs = program.step(state, batch)
        losses.append(np.asarray(outputs["loss"]))
    return np.array(losses), np.asarray({**state.params, **state.tables}["emb"])


def positive(batches):
    return [({**f, "a": np.abs(f["a"]) % V}, labels) for f, labels in batches]


@pytest.mark.parametrize(
    ("net", "lookup", "expected"),
    [
        (indexed, looked_up, UpdateKind.ROWS),
        (taken, looked_up, UpdateKind.ROWS),
        (computed, computed_and_looked_up, UpdateKind.MASKED),
    ],
)
def test_indexing_gives_the_bits_of_a_lookup(net, lookup, expected):
    recording = record(net)
    assert kind(recording) is kind(record(lookup)) is expected
    assert training.compile(recording).advice == []
    found = trained(recording, positive(BATCHES))
    wanted = trained(record(lookup), positive(BATCHES))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


SGD, CLIPPED = ex.optimizers.SGD(0.5), ex.optimizers.Adagrad(0.5, global_clipnorm=0.1)


@pytest.mark.parametrize(
    ("net", "train_op"),
    [(indexed, SGD), (words, SGD), (vectors, SGD), (twice, CLIPPED)],
)
def test_training_by_row_gives_what_dense_training_gives(net, train_op):
    # Ids are also negative, and count from the end.
    assert kind(record(net, train_op)) in (UpdateKind.ROWS, UpdateKind.MASKED)
    dense = record(net, train_op, reads_by_row=False)
    assert kind(dense) is UpdateKind.WHOLE
    pairs = zip(trained(record(net, train_op)), trained(dense), strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("offset", [0, 1])  # from the host, and computed
@pytest.mark.parametrize("net", [indexed, kept_in_range])
def test_an_id_beyond_the_table_does_what_it_does_in_jax(net, offset):
    def shifted(features):
        ids = features["a"]
        return net({"a": ids + offset if offset else ids})

    beyond = np.array([[V, -V - 2, 3]] * 8), BATCHES[0][1]
    batches = [({**BATCHES[0][0], "a": beyond[0]}, beyond[1])]
    found = trained(record(shifted), batches)
    wanted = trained(record(shifted, reads_by_row=False), batches)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_an_id_beyond_the_table_gives_nan_with_take():
    features, labels = BATCHES[0]
    losses, _ = trained(record(taken), [({**features, "a": features["a"] + V}, labels)])
    assert np.isnan(losses).all()


def penalized(features):
    both = table()
    return both[features["a"]] + jnp.mean(both**2)


def cast(features):
    return table().astype(jnp.bfloat16)[features["a"]].astype(jnp.float32)


def one_column(features):
    return table()[features["a"], 0][..., None]


def recomputed(features):
    return jax.checkpoint(lambda t, ids: t[ids])(table(), features["a"])


@pytest.mark.parametrize("net", [penalized, cast, one_column, recomputed])
def test_a_table_that_is_also_read_otherwise_stays_whole_and_is_told(net):
    recording = record(net)
    assert kind(recording) is UpdateKind.WHOLE
    (advice,) = training.compile(recording).advice
    assert advice.startswith(f"emb [{V}, {D}]: the model_fn reads rows by indexing")


CHANGING = {
    "Adam": ex.optimizers.Adam(0.1),
    "LazyAdam": ex.optimizers.LazyAdam(0.1),
    "momentum": ex.optimizers.SGD(0.1, momentum=0.9),
    "optax": optax.sgd(0.1),
}


@pytest.mark.parametrize("optimizer", CHANGING.values(), ids=CHANGING)
def test_an_optimizer_that_may_change_every_row_gets_the_whole_table(optimizer):
    assert kind(record(indexed, optimizer)) is UpdateKind.WHOLE


class Net(nn.Module):
    """All that a model may do beside indexing a table."""

    indexes: bool

    @nn.compact
    def __call__(self, features):
        init = nn.initializers.normal()
        emb = self.param("emb", init, (V, D))
        other = self.param("other", init, (10, D))
        ids = features["a"]
        rows = emb[ids] if self.indexes else ex.embedding_lookup(emb, ids)
        rows += ex.embedding_lookup(other, ids % 10)
        fc = ex.feature_columns
        word = fc.categorical_column_with_hash_bucket("word", 10)
        column = fc.input_layer(features, [fc.embedding_column(word, D)])
        hidden = nn.BatchNorm(use_running_average=False)(rows.sum(axis=1))
        hidden = nn.Dropout(0.5, deterministic=False)(hidden + column)
        return jax.jit(nn.relu)(nn.Dense(1, name="out")(hidden))[:, 0]


def net_fn(features, labels, mode, params):
    y = Net(params["indexes"], name="net")(features)
    loss = jnp.mean(jnp.square(y - labels))
    ex.summary.scalar("half", loss / 2)
    ex.log_value("most", y.max())
    rate = 0.1 / (1 + ex.get_global_step())
    train_op = ex.minimize(ex.optimizers.Adagrad(rate), loss=loss)
    return ex.EstimatorSpec(mode, {"y": y}, loss, train_op)


class Watch(ex.hooks.Hook):
    def __init__(self):
        self.seen = []

    def before_run(self, context):
        return ["loss", "most"]

    def after_run(self, context, values):
        self.seen.append((float(values["loss"]), float(values["most"])))


def test_a_model_that_does_much_else_trains_as_with_a_lookup(tmp_path):
    seen = []
    for indexes in (True, False):
        config = ex.RunConfig(tf_random_seed=3, devices=1)
        folder, watch = tmp_path / str(indexes), Watch()
        model = ex.Estimator(net_fn, folder, config, {"indexes": indexes})
        model.train(lambda: iter(positive(BATCHES)), hooks=[watch])
        seen.append(watch.seen)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3


def test_ids_on_the_host_are_clipped_as_an_index_is():
    ids = IndexIds("a", 9, clips=True)({"a": np.array([[7, -1, 9], [-9, -10, 0]])})
    assert ids.tolist() == [[7, 8, 8], [0, 0, 0]]
    with pytest.raises(FeatureError, match="beyond 32 bits"):
        IndexIds("a", 9, clips=True)({"a": np.array([2**40])})


def test_the_first_nan_is_found_in_a_model_that_indexes_a_table(tmp_path):
    def nan_fn(features, labels, mode):
        rows = nn.Dense(1, name="out")(taken(features).sum(axis=1))
        loss = jnp.mean(jnp.square(rows[:, 0] - labels))
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.1))

    features, labels = BATCHES[0]
    bad = {**features, "a": np.full((8, 3), V)}, labels
    model = ex.Estimator(nan_fn, tmp_path, ex.RunConfig(debug="nan", devices=1))
    with pytest.raises(NanLossError, match="out"):
        model.train(lambda: iter([bad]))
