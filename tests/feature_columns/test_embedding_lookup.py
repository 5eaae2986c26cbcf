"""Tables that a model_fn declares and looks up: results, updates, errors, advice."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import estimax as ex
from estimax import optimizers, training
from estimax.core.errors import FeatureError
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack
from estimax.training import UpdateKind
from estimax.training import gradients as of_step
from estimax.training.updates import UpdatePlan

V, D = 40, 3
BATCHES = [
    ({"a": np.array(ids)}, np.arange(len(ids), dtype=np.float32))
    for ids in ([[0, 2], [2, 39]], [[2, 2], [7, 0]], [[39, 0], [5, 5]])
]


def values(key, shape, dtype=jnp.float32):
    return jnp.sin(jnp.arange(np.prod(shape), dtype=dtype)).reshape(shape)


def table_and_weights():
    table = ex.get_variable("emb", (V, D), initializer=values)
    return table, ex.get_variable("linear", (V,), initializer=values)


def looked_up(features):
    table, linear = table_and_weights()
    ids = features["a"]
    rows, weights = ex.embedding_lookup(table, ids), ex.embedding_lookup(linear, ids)
    assert (rows.shape, weights.shape) == ((*ids.shape, D), ids.shape)
    return rows.sum(axis=(1, 2)) + weights.sum(axis=1)


def computed(features):
    table, linear = table_and_weights()
    ids = features["a"] + 0
    rows, weights = ex.embedding_lookup(table, ids), ex.embedding_lookup(linear, ids)
    return rows.sum(axis=(1, 2)) + weights.sum(axis=1)


def mixed(features):
    table, linear = table_and_weights()
    ids = features["a"]
    rows = [ex.embedding_lookup(table, ids[:, 0]), ex.embedding_lookup(table, ids)]
    linear = ex.embedding_lookup(linear, ids).sum(axis=1)
    return rows[1].sum(axis=(1, 2)) + 0 * rows[0].sum(axis=1) + linear


def indexed(features):
    table, linear = table_and_weights()
    ids = features["a"]
    return table[ids].sum(axis=(1, 2)) + jnp.take(linear, ids, axis=0).sum(axis=1)


def recording_of(net, train_op, batch=BATCHES[0], **options):
    def function(features, labels):
        loss = jnp.mean(jnp.square(net(features) - labels))
        return ex.EstimatorSpec("train", loss=loss, train_op=train_op)

    return training.record(function, plans.flatten(*batch), "train", **options)


def program_of(net, train_op, batch=BATCHES[0], **options):
    return training.compile(recording_of(net, train_op, batch, **options))


def trained(net, train_op, batches=BATCHES):
    """The variables after a step on each batch."""
    program = program_of(net, train_op)
    prepared = [pack(program.plan.prepare(plans.flatten(*batch))) for batch in batches]
    state = program.init(jax.random.key(0), prepared[0])
    for batch in prepared:
        state, _ = program.step(state, batch)
    return {**state.params, **state.tables}


@pytest.mark.parametrize(
    "train_op",
    [
        optimizers.Adagrad(0.5),
        optimizers.Adam(0.1),
        optax.adam(0.1),
        optimizers.SGD(0.1, global_clipnorm=0.1),
    ],
    ids=["adagrad", "adam", "optax", "clipped"],
)
@pytest.mark.parametrize("net", [looked_up, computed, mixed])
def test_training_gives_what_indexing_gives(net, train_op):
    found, expected = trained(net, train_op), trained(indexed, train_op)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("net", [looked_up, computed, mixed])
def test_rows_that_no_id_names_keep_their_momentum(net):
    # With a dense gradient, momentum would go on moving rows of earlier batches.
    found = trained(net, optimizers.Momentum(0.1, 0.9), BATCHES[:2])
    first = trained(net, optimizers.Momentum(0.1, 0.9), BATCHES[:1])
    np.testing.assert_array_equal(found["emb"][39], first["emb"][39])
    assert not np.array_equal(first["emb"][39], values(None, (V, D))[39])


@pytest.mark.parametrize(
    ("net", "kind"),
    [
        (looked_up, UpdateKind.ROWS),
        (computed, UpdateKind.MASKED),
        (mixed, UpdateKind.MASKED),
    ],
)
def test_a_variable_that_is_only_looked_up_is_updated_by_row(net, kind):
    program = program_of(net, optimizers.Adagrad(0.1))
    assert program.updates["emb"].kind is kind
    assert not program.shapes.params


WORDS = [f"w{i}" for i in range(V - 1)]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ({"num_oov_buckets": 1}, UpdateKind.ROWS),
        ({"default_value": 5}, UpdateKind.ROWS),
        ({}, UpdateKind.MASKED),  # the host cannot promise that -1 does not occur
        ({"num_oov_buckets": 2}, UpdateKind.MASKED),  # one id more than rows
    ],
)
def test_words_found_on_the_host_are_updated_by_row(words, kind):
    def net(features):
        table, _ = table_and_weights()
        ids = ex.lookup.string_to_index(features["a"], WORDS, **words)
        return ex.embedding_lookup(table, ids).sum(axis=(1, 2))

    texts = np.array([["w0", "w2"], ["other", "w38"]], object)
    batch = ({"a": texts}, np.arange(2, dtype=np.float32))
    program = program_of(net, optimizers.Adagrad(0.1), batch)
    assert program.updates["emb"].kind is kind


def test_words_train_the_rows_that_their_indices_train():
    def net(features):
        table, linear = table_and_weights()
        ids = ex.lookup.string_to_index(features["a"], WORDS, num_oov_buckets=1)
        rows, weights = (ex.embedding_lookup(t, ids) for t in (table, linear))
        return rows.sum(axis=(1, 2)) + weights.sum(axis=1)

    def worded(features):
        texts = [[f"w{i}" for i in row] for row in features["a"]]
        return {"a": np.array(texts, object)}

    # The last row is that of words out of the vocabulary, such as "w39".
    texts = [(worded(features), labels) for features, labels in BATCHES]
    program = program_of(net, optimizers.Adagrad(0.5), texts[0])
    prepared = [pack(program.plan.prepare(plans.flatten(*batch))) for batch in texts]
    state = program.init(jax.random.key(0), prepared[0])
    for batch in prepared:
        state, _ = program.step(state, batch)
    expected = trained(looked_up, optimizers.Adagrad(0.5))
    for name, value in {**state.params, **state.tables}.items():
        np.testing.assert_array_equal(value, expected[name])


def test_a_bag_of_words_is_updated_by_row():
    def net(features):
        table, _ = table_and_weights()
        ids = ex.lookup.string_to_index(features["a"], WORDS)
        return ex.embedding_lookup_sparse(table, ids, combiner="sum").sum(axis=1)

    bags = ex.Sparse.of_rows([["w3", "w3"], ["other"]])
    batch = ({"a": bags}, np.arange(2, dtype=np.float32))
    program = program_of(net, optimizers.Adagrad(0.1), batch)
    assert program.updates["emb"].kind is UpdateKind.ROWS


def test_tables_of_one_size_share_their_distinct_ids():
    plan = program_of(looked_up, optimizers.Adagrad(0.1)).plan
    (group,) = plan.groups
    assert plan.prepare(plans.flatten(*BATCHES[0])).unique[group.name].tolist() == [
        *(0, 2, 39, V)
    ]


def test_the_gradient_of_computed_ids_has_the_size_of_the_batch():
    recording = recording_of(computed, optimizers.Adagrad(0.1))
    updates, program = UpdatePlan.from_recording(recording), training.compile(recording)
    arrays = pack(program.plan.prepare(plans.flatten(*BATCHES[0])))
    state = program.form(jax.random.key(0), arrays)

    def gradients(state, batch):
        found, _ = of_step.compute_gradients(updates, state, batch)
        return found.rows, found.whole

    prepared = program.plan.prepare(plans.flatten(*BATCHES[0]))
    rows, whole = jax.eval_shape(gradients, state, prepared)
    assert rows["emb"].shape == (4, D)
    assert not whole["tables"]


def test_a_variable_that_the_loss_also_reads_whole_is_updated_whole():
    def net(features):
        return looked_up(features) + jnp.sum(penalized(features))

    def penalized(features):
        with ex.variable_scope(ex.get_variable_scope(), reuse=True):
            return 0.01 * jnp.square(ex.get_variable("emb", (V, D)))

    program = program_of(net, optimizers.Adagrad(0.1))
    assert list(program.shapes.params) == ["emb"]
    assert list(program.shapes.tables) == ["linear"]


def test_a_histogram_of_the_table_leaves_it_updated_by_row():
    def net(features):
        table = ex.get_variable("emb", (V, D))
        ex.summary.histogram("emb", table)
        return ex.embedding_lookup(table, features["a"]).sum(axis=(1, 2))

    program = program_of(net, optimizers.Adagrad(0.1))
    assert program.updates["emb"].kind is UpdateKind.ROWS


def test_a_table_shared_by_two_scopes_is_looked_up_twice_and_updated_once():
    def net(features):
        total = 0.0
        for place in range(2):
            with ex.variable_scope("shared", reuse=ex.AUTO_REUSE):
                table = ex.get_variable("emb", (V, 1), initializer=values)
            total += ex.embedding_lookup(table, features["ab"[place]])[:, 0]
        return total

    ids = {"a": np.array([3, 5]), "b": np.array([5, 3], np.int32)}
    batch = (ids, np.zeros(2, np.float32))
    program = program_of(net, optimizers.SGD(1.0), batch)
    arrays = pack(program.plan.prepare(plans.flatten(*batch)))
    state, _ = program.step(program.init(jax.random.key(0), arrays), arrays)
    # Each example's total is w3 + w5, and its gradient reaches both rows twice.
    w = np.sin(np.arange(V, dtype=np.float32))
    expected = w[[3, 5]] - 2 * (w[3] + w[5])
    np.testing.assert_allclose(state.tables["shared/emb"][[3, 5], 0], expected, 1e-5)


def test_an_array_that_is_no_variable_is_looked_up_too():
    def net(features):
        kernel = nn.Dense(D, use_bias=False, name="d")(jnp.eye(V))
        return ex.embedding_lookup(kernel, features["a"]).sum(axis=(1, 2))

    assert list(program_of(net, optimizers.SGD(0.1)).shapes.params) == ["d/kernel"]


def test_an_id_of_the_input_out_of_range_is_an_error_that_names_it():
    plan = program_of(looked_up, optimizers.Adagrad(0.1)).plan
    wrong = {"a": np.array([[0, 1], [2, V]])}, BATCHES[0][1]
    words = r"feature 'a', row 1, column 1: id 40 is not in \[0, 40\)"
    with pytest.raises(FeatureError, match=words):
        plan.prepare(plans.flatten(*wrong))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1.0], "'ids' holds float64; ids must be integers"),
        (["x"], "'ids' holds text"),
        (ex.Sparse.of_rows([[1]]), "Use ex.embedding_lookup_sparse"),
        ([0, -1], r"row 1: id -1 is not in \[0, 4\)"),
        ([2**40], r"id 1099511627776 is not"),
    ],
)
def test_wrong_ids_are_told_what_is_wrong(ids, words):
    with pytest.raises(FeatureError, match=words):
        ex.embedding_lookup(jnp.ones((4, 2)), ids)


def test_weights_must_be_where_the_ids_are():
    ids, weights = ex.Sparse.of_rows([[1, 2]]), ex.Sparse.of_rows([[1.0]])
    with pytest.raises(FeatureError, match="one weight where feature 'ids'"):
        ex.embedding_lookup_sparse(jnp.ones((4, 2)), ids, weights)
    with pytest.raises(FeatureError, match="unknown combiner 'men'; did you mean 'me"):
        ex.embedding_lookup_sparse(jnp.ones((4, 2)), ids, combiner="men")


def test_dense_bags_are_padded_with_minus_one():
    table, ids = jnp.eye(4), np.array([[1, -1], [3, 3], [-1, -1]])
    found = ex.embedding_lookup_sparse(table, ids, combiner="sum")
    assert found.tolist() == [[0, 1, 0, 0], [0, 0, 0, 2], [0, 0, 0, 0]]
    flat = ex.embedding_lookup_sparse(jnp.arange(4.0), ids, combiner="mean")
    assert flat.tolist() == [1, 3, 0]


def test_weights_that_add_up_to_zero_give_zeros():
    ids = np.array([[0, 1]])
    weights = np.array([[1.0, -1.0]], np.float32)
    found = ex.embedding_lookup_sparse(jnp.eye(2), ids, weights)
    assert found.tolist() == [[0, 0]]


def test_a_norm_is_over_all_of_a_row():
    found = ex.embedding_lookup(jnp.full((2, 2, 2), 3.0), [1], max_norm=1.0)
    np.testing.assert_allclose(found, np.full((1, 2, 2), 0.5), rtol=1e-6)


LARGE = (62_500, 16)


def large_lookup(features):
    return ex.embedding_lookup(ex.get_variable("big", LARGE), features["a"]).sum((1, 2))


def large_index(features):
    return ex.get_variable("big", LARGE)[features["a"]].sum((1, 2))


def large_take(features):
    table = ex.get_variable("big", LARGE)
    return jnp.take(table, features["a"], axis=0).sum((1, 2))


def large_penalty(features):
    table = ex.get_variable("big", LARGE)
    rows = ex.embedding_lookup(table, features["a"])
    return rows.sum((1, 2)) + jnp.sum(table**2)


@pytest.mark.parametrize(
    ("net", "train_op", "words"),
    [
        (large_index, optimizers.Adam(0.1), "big [62500, 16]: the model_fn reads"),
        (large_take, optimizers.LazyAdam(0.1), "Write ex.embedding_lookup(table, ids)"),
        (large_penalty, optimizers.Adagrad(0.1), "also reads the table as a whole"),
        (large_lookup, optimizers.Adam(0.1), "62,500 rows here (big [62500, 16])"),
        (large_lookup, optimizers.Adam(0.1), "Use ex.optimizers.LazyAdam"),
        (large_lookup, optax.adam(0.1), "updates every row of every table"),
    ],
)
def test_what_makes_large_tables_slow_is_told(net, train_op, words):
    (advice,) = program_of(net, train_op).advice
    assert words in advice


@pytest.mark.parametrize("net", [looked_up, indexed, large_lookup])
def test_small_tables_and_rows_need_no_advice(net):
    assert program_of(net, optimizers.Adagrad(0.1)).advice == []
    assert program_of(net, optimizers.LazyAdam(0.1)).advice == []


def head_of(mode, predicted, labels):
    loss = None if labels is None else jnp.mean(jnp.square(predicted - labels))
    return ex.EstimatorSpec(
        mode,
        predictions={"sum": predicted},
        loss=loss,
        train_op=optimizers.Adagrad(0.5),
        export_outputs={"serving_default": ex.PredictOutput({"sum": predicted})},
    )


def whole_model_fn(features, labels, mode):
    table, linear = table_and_weights()
    rows = ex.embedding_lookup(table, features["a"]).sum(axis=(1, 2))
    bags = ex.embedding_lookup_sparse(table, features["tags"], features["w"], "sum")
    moved = ex.embedding_lookup(linear, features["a"][:, 0] + 30)
    return head_of(mode, rows + bags.sum(axis=1) + moved, labels)


def features_of(rows):
    draw = np.random.default_rng(3)
    bags = [draw.integers(0, V, n).tolist() for n in draw.integers(0, 4, rows)]
    return {
        "a": draw.integers(0, 20, (rows, 2)),
        "tags": ex.Sparse.of_rows(bags),
        "w": ex.Sparse.of_rows([[0.5] * len(bag) for bag in bags]),
    }


def input_fn():
    rows = (features_of(24), np.arange(24, dtype=np.float32))
    return ex.input.Dataset.from_tensor_slices(rows).repeat().batch(4)


@pytest.fixture(scope="module")
def estimator(tmp_path_factory):
    config = ex.RunConfig(tf_random_seed=1, save_checkpoints_steps=10)
    folder = tmp_path_factory.mktemp("model")
    return ex.Estimator(whole_model_fn, folder, config).train(input_fn, max_steps=20)


def test_an_estimator_evaluates_and_predicts_with_the_trained_rows(estimator):
    def data():
        return [(features_of(24), np.arange(24, dtype=np.float32))]

    loss = estimator.evaluate(data)["loss"]
    found = np.array([p["sum"] for p in estimator.predict(data)])
    np.testing.assert_allclose(loss, np.mean((found - np.arange(24)) ** 2), rtol=1e-5)
    assert loss < 100 < np.mean(np.arange(24.0) ** 2)
    # What it predicts, from the variables that it has saved.
    raw = features_of(24)
    table, linear = map(estimator.get_variable_value, ("emb", "linear"))
    expected = table[raw["a"]].sum((1, 2))
    clamped = np.minimum(raw["a"][:, 0] + 30, V - 1)
    expected += linear[clamped]
    np.add.at(
        expected, raw["tags"].indices[:, 0], 0.5 * table[raw["tags"].values].sum(1)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_run_that_stops_and_resumes_ends_with_the_same_bits(estimator, tmp_path):
    config = ex.RunConfig(tf_random_seed=1)
    for steps in (7, 13):
        other = ex.Estimator(whole_model_fn, tmp_path, config)
        other.train(input_fn, steps=steps)
    for name in estimator.get_variable_names():
        expected = estimator.get_variable_value(name)
        np.testing.assert_array_equal(other.get_variable_value(name), expected)


def test_a_bundle_looks_ids_up_and_checks_them(estimator, tmp_path):
    bundle = ex.export.load(estimator.export_saved_model(tmp_path))
    request = features_of(5)
    expected = [p["sum"] for p in estimator.predict(lambda: [(request, None)])]
    np.testing.assert_allclose(bundle.predict(request)["sum"], expected, rtol=1e-5)
    request["a"] = request["a"] + V
    with pytest.raises(FeatureError, match="feature 'a', row 0, column 0"):
        bundle.predict(request)


def test_a_warm_start_copies_the_rows(estimator, tmp_path):
    other = ex.Estimator(whole_model_fn, tmp_path, warm_start_from=estimator.model_dir)
    data = [(features_of(24), np.arange(24, dtype=np.float32))]
    loss = estimator.evaluate(lambda: data)["loss"]
    assert other.evaluate(lambda: data)["loss"] == loss


def test_computed_ids_out_of_range_are_counted_in_one_warning(tmp_path, caplog):
    def model_fn(features, labels, mode):
        table = ex.get_variable("emb", (V,), initializer=values)
        rows = ex.embedding_lookup(table, features["a"] - 1)
        return head_of(mode, rows.sum(axis=1), labels)

    def data():
        ids = np.array([[0, 1], [V + 5, 9]])
        rows = ({"a": ids}, np.zeros(2, np.float32))
        return ex.input.Dataset.from_tensor_slices(rows).repeat().batch(2)

    model = ex.Estimator(model_fn, tmp_path, ex.RunConfig(tf_random_seed=1))
    with caplog.at_level(logging.WARNING, "estimax"):
        model.train(data, steps=70)
    (told,) = [r.getMessage() for r in caplog.records if "out of range" in r.message]
    assert "140 ids for emb of 40 rows were out of range by step 70" in told
    caplog.clear()
    with caplog.at_level(logging.WARNING, "estimax"):
        model.evaluate(data, steps=3)
    assert "6 ids for emb of 40 rows" in caplog.text


def test_a_run_of_indexing_goes_on_with_lookups(tmp_path):
    def model_fn_of(net):
        return lambda features, labels, mode: head_of(mode, net(features), labels)

    config = ex.RunConfig(tf_random_seed=1)
    results = []
    for name, second in (("same", indexed), ("changed", looked_up)):
        for net in (indexed, second):
            model = ex.Estimator(model_fn_of(net), tmp_path / name, config)
            model.train(lambda: BATCHES, steps=3)
        results.append(model.get_variable_value("emb"))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def both(features):
    other = ex.get_variable("other", (V, D), initializer=values)
    rows = ex.embedding_lookup(other, features["a"] + 0)
    return looked_up(features) + rows.sum(axis=(1, 2))


def test_a_step_without_jit_updates_the_same_rows():
    program = program_of(both, optimizers.Adagrad(0.5), eager=True)
    assert sorted(program.shapes.tables) == ["emb", "linear", "other"]
    batch = pack(program.plan.prepare(plans.flatten(*BATCHES[0])))
    with jax.disable_jit():
        state, _ = program.step(program.init(jax.random.key(0), batch), batch)
    expected = trained(both, optimizers.Adagrad(0.5), BATCHES[:1])
    for name, value in state.tables.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5)


def test_batches_whose_gradients_are_averaged_train_like_one_batch():
    program = program_of(both, optimizers.Adagrad(0.5))
    parts = [plans.flatten(*batch) for batch in BATCHES[:2]]
    ids = np.concatenate([features["a"] for features, _ in BATCHES[:2]])
    labels = np.concatenate([labels for _, labels in BATCHES[:2]])
    whole = plans.flatten({"a": ids}, labels)
    first = pack(program.plan.prepare(parts[0]))
    found = []
    for prepared in (program.plan.prepare_parts(parts), program.plan.prepare(whole)):
        state = program.init(jax.random.key(0), first)
        found.append(program.step(state, pack(prepared))[0].tables)
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=1e-5)
