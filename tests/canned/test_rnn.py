"""Recurrent models: their numbers by hand, their names, and their way to a bundle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax import export
from estimax import feature_columns as fc
from estimax.canned.rnn import Cell, last_step
from estimax.core.errors import BundleError, LabelError, SpecError
from estimax.input import Dataset
from estimax.staging.variables.precision import computing_in

ROWS = [[3, 1, 4, 1, 5], [9, 2], [6], []]
NUMBERS = [[0.1, 0.2, 0.3, 0.4, 0.5], [-1.0, 1.0], [2.0], []]
LABELS = np.array([[1], [0], [1], [0]])
CLICKS = fc.sequence_categorical_column_with_identity("clicks", 10)


def columns():
    return [fc.embedding_column(CLICKS, 3), fc.sequence_numeric_column("dwell")]


def features(rows=ROWS, numbers=NUMBERS):
    return {"clicks": ex.Sparse.of_rows(rows), "dwell": ex.Sparse.of_rows(numbers)}


def batches(labels=LABELS, **given):
    return fed((features() | given, labels))


def fed(*ready):
    """An input_fn of batches that are ready."""
    return lambda: Dataset.from_batches(list(ready))


def quiet():
    return ex.RunConfig(
        tf_random_seed=1, save_summary_steps=0, log_step_count_steps=None
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(kind, weights, x):
    """The last output of one sequence [T, D], as Keras' documentation has it."""
    kernel, recurrent, bias = (
        weights[n] for n in ("kernel", "recurrent_kernel", "bias")
    )
    h = c = np.zeros(recurrent.shape[0])
    for step in x:
        if kind == "simple_rnn":
            h = np.tanh(step @ kernel + h @ recurrent + bias)
        elif kind == "lstm":
            i, f, g, o = np.split(step @ kernel + h @ recurrent + bias, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            xz, xr, xh = np.split(step @ kernel + bias[0], 3)
            hz, hr, hh = np.split(h @ recurrent + bias[1], 3)
            z = sigmoid(xz + hz)
            h = z * h + (1 - z) * np.tanh(xh + sigmoid(xr + hr) * hh)
    return h


def value(model, name):
    return model.get_variable_value(name).astype(np.float64)


@pytest.mark.parametrize("kind", ["simple_rnn", "lstm", "gru"])
def test_cells_compute_what_keras_documents(kind):
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    mask = np.arange(5) < np.array([[5], [2]])
    run = jax.jit(Cell(kind, 4).init_with_output)
    outputs, made = run(jax.random.key(0), x.astype(np.float32), mask)
    weights = {name: np.asarray(w) for name, w in made["params"].items()}
    wanted = [by_hand(kind, weights, x[0]), by_hand(kind, weights, x[1, :2])]
    np.testing.assert_allclose(last_step(outputs), wanted, rtol=1e-4, atol=1e-5)


def test_an_lstm_remembers_at_first():
    run = jax.jit(Cell("lstm", 2).init)
    made = run(jax.random.key(0), jnp.ones((1, 1, 3)), jnp.ones((1, 1), bool))
    assert made["params"]["bias"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_the_last_real_step_makes_the_logits(tmp_path):
    kind = "gru"
    model = ex.RNNClassifier(
        columns(), units=4, cell_type=kind, model_dir=tmp_path, config=quiet()
    )
    model.train(batches())
    cell = f"rnn_model/{kind}/{kind}_cell"
    names = ("kernel", "recurrent_kernel", "bias")
    weights = {name: value(model, f"{cell}/{name}") for name in names}
    wanted = [
        logits_by_hand(model, by_hand(kind, weights, x)) for x in inputs_by_hand(model)
    ]
    found = [row["logits"] for row in model.predict(batches())]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def both_ways_by_hand(model, kind, x):
    """Outputs [T, 2U] of one sequence, the steps of each direction in their places."""
    names = ("kernel", "recurrent_kernel", "bias")
    there, back = (
        {n: value(model, f"rnn_model/{way}/{kind}/{kind}_cell/{n}") for n in names}
        for way in ("forward", "backward")
    )
    steps = range(len(x))
    first = [by_hand(kind, there, x[: t + 1]) for t in steps]
    second = [by_hand(kind, back, x[t:][::-1]) for t in steps]
    return np.concatenate([first, second], axis=1)


def logits_by_hand(model, net):
    kernel = value(model, "rnn_model/logits/kernel")
    return net @ kernel + value(model, "rnn_model/logits/bias")


def inputs_by_hand(model):
    """[T, 4] for each row: an embedding and a number."""
    table = value(model, "sequence_features/clicks_embedding/embedding_weights")
    return [
        np.concatenate([table[ids], np.array(numbers)[:, None]], axis=1)
        for ids, numbers in zip(ROWS, NUMBERS, strict=True)
    ]


def widened(steps):
    """The same sequences, with more padding behind them."""
    return {
        key: ex.Sparse(v.indices, v.values, (len(v), steps))
        for key, v in features().items()
    }


def test_both_directions_end_where_a_sequence_does(tmp_path):
    kind = "lstm"
    model = ex.RNNClassifier(
        columns(), units=4, cell_type=kind, model_dir=tmp_path, config=quiet(),
        bidirectional=True,
    )  # fmt: skip
    model.train(batches())
    wanted = []
    for x in inputs_by_hand(model):
        net = np.zeros(8)
        if len(x):  # forward's last step, and backward's, which is the first
            outputs = both_ways_by_hand(model, kind, x)
            net = np.concatenate([outputs[-1, :4], outputs[0, 4:]])
        wanted.append(logits_by_hand(model, net))
    for given in (features(), widened(9)):
        found = [row["logits"] for row in model.predict(fed((given, None)))]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_every_step_knows_what_came_before_and_what_comes(tmp_path):
    model = ex.RNNClassifier(
        columns(), units=2, cell_type="gru", return_sequences=True, model_dir=tmp_path,
        config=quiet(), bidirectional=True,
    )  # fmt: skip
    model.train(batches(np.zeros((4, 5), np.int64)))
    for given in (features(), widened(9)):
        found = list(model.predict(fed((given, None))))
        for row, x in zip(found, inputs_by_hand(model), strict=True):
            if not len(x):
                continue
            wanted = logits_by_hand(model, both_ways_by_hand(model, "gru", x))
            np.testing.assert_allclose(
                row["logits"][: len(x)], wanted, rtol=1e-4, atol=1e-5
            )


def test_stacked_cells_are_named_as_in_tensorflow(tmp_path):
    context = fc.embedding_column(fc.categorical_column_with_identity("user", 5), 2)
    model = ex.RNNClassifier(
        columns(), [context], units=[4, 3], cell_type="gru", model_dir=tmp_path,
        config=quiet(),
    )  # fmt: skip
    model.train(batches(user=np.array([1, 2, 3, 4])))
    names = [n for n in model.get_variable_names() if not n.startswith("training/")]
    stack = "rnn_model/rnn/stacked_rnn_cells"
    for cell in ("gru_cell", "gru_cell_1"):
        assert f"{stack}/{cell}/recurrent_kernel" in names
    assert "dense_features/user_embedding/embedding_weights" in names
    # An embedding of 3, a number, and a context of 2 at every step.
    assert value(model, f"{stack}/gru_cell/kernel").shape == (6, 12)
    assert value(model, f"{stack}/gru_cell_1/kernel").shape == (4, 9)


def test_a_list_of_one_is_a_cell_in_an_rnn(tmp_path):
    model = ex.RNNClassifier(columns(), units=[4], model_dir=tmp_path, config=quiet())
    model.train(batches())
    assert value(model, "rnn_model/rnn/simple_rnn_cell/kernel").shape == (4, 4)


def test_a_network_learns_what_came_first(tmp_path):
    labels = np.array([[1], [0], [1], [0]] * 4)
    long = [[1, 5, 5, 5], [2, 5, 5], [1, 5], [2, 5, 5, 5]] * 4
    short = [[1, 5], [2], [1], [2, 5]] * 4  # another T, another program
    model = ex.RNNClassifier(
        [fc.embedding_column(CLICKS, 4)], units=8, cell_type="lstm",
        optimizer=ex.optimizers.Adam(0.05), model_dir=tmp_path, config=quiet(),
    )  # fmt: skip
    batches = [({"clicks": ex.Sparse.of_rows(rows)}, labels) for rows in (long, short)]
    model.train(fed(*batches * 30))
    assert model.evaluate(fed(*batches))["accuracy"] == 1.0


def test_flax_cells_may_be_used_instead(tmp_path):
    for name, cell in {
        "fn": {"rnn_cell_fn": lambda: nn.GRUCell(2)},
        "class": {"units": [3, 2], "cell_type": nn.SimpleCell},
        "both ways": {"rnn_cell_fn": lambda: nn.GRUCell(2), "bidirectional": True},
    }.items():
        model = ex.RNNClassifier(
            columns(), **cell, model_dir=tmp_path / name, config=quiet()
        )
        model.train(batches())
        longer = features([[*row, 7] for row in ROWS], [[*n, 0.0] for n in NUMBERS])
        short, long = (
            np.stack([row["logits"] for row in model.predict(fed((given, None)))])
            for given in (features(), longer)
        )
        assert not np.allclose(short, long)
        again = [row["logits"] for row in model.predict(fed((widened(9), None)))]
        np.testing.assert_allclose(short, again, rtol=1e-5, atol=1e-6)


def test_a_history_and_a_candidate_may_share_a_table(tmp_path):
    item = fc.categorical_column_with_identity("item", 10)
    tables = []
    for row_updates in (True, False):
        history, candidate = fc.shared_embeddings(
            [CLICKS, item], 3, initializer=nn.initializers.ones, row_updates=row_updates
        )
        model = ex.RNNClassifier(
            [history], [candidate], units=2, model_dir=tmp_path / str(row_updates),
            optimizer=ex.optimizers.Adagrad(0.1), config=quiet(),
        )  # fmt: skip
        given = {"clicks": features()["clicks"], "item": np.array([0, 9, 7, 7])}
        model.train(fed((given, LABELS)))
        tables.append(model.get_variable_value("clicks_item_shared_embedding"))
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-5)
    moved = (tables[0] != 1).any(axis=1)
    assert np.flatnonzero(moved).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_a_cell_computes_in_the_type_of_the_run_and_remembers_in_float32():
    x, mask = jnp.ones((2, 3, 4)), jnp.ones((2, 3), bool)
    with computing_in(jnp.bfloat16):
        jaxpr = jax.make_jaxpr(
            lambda: Cell("lstm", 2).init_with_output(jax.random.key(0), x, mask)[0]
        )()
    assert "bf16[2,8]" in str(jaxpr)
    assert jaxpr.out_avals[0].dtype == jnp.float32


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A model with logits at every step, trained once."""
    model = ex.RNNClassifier(
        columns(), units=4, return_sequences=True, n_classes=3,
        label_vocabulary=["noun", "verb", "rest"], weight_column="weight",
        model_dir=tmp_path_factory.mktemp("tagger"), config=quiet(),
    )  # fmt: skip
    model.train(fed(*[(features() | {"weight": WEIGHTS}, TAGS)] * 3))
    return model


TAGS = np.array(
    [
        ["noun", "verb", "rest", "noun", "verb"],
        ["noun", "rest", "", "", ""],
        ["verb", "", "", "", ""],
        ["", "", "", "", ""],
    ]
)
WEIGHTS = np.ones((4, 5), np.float32)


def test_every_step_has_a_label_and_padding_has_none(tagger):
    given = features() | {"weight": WEIGHTS}
    results = tagger.evaluate(fed((given, TAGS)))
    rows = list(tagger.predict(fed((given, None))))
    mask = np.stack([row["sequence_mask"] for row in rows])
    assert mask.sum(axis=1).tolist() == [5, 2, 1, 0]
    classes = np.stack([row["classes"] for row in rows])[..., 0][mask]
    right = [c.decode() for c in classes] == TAGS[TAGS != ""]
    assert results["accuracy"] == pytest.approx(right.mean())


def test_a_step_without_a_label_is_refused(tagger):
    given = features() | {"weight": WEIGHTS}
    with pytest.raises(LabelError, match=r"5 steps.*\[4, 4\]"):
        tagger.evaluate(fed((given, TAGS[:, :4])))


def test_a_label_of_a_step_that_is_none_of_the_words_is_named(tagger):
    given = features() | {"weight": WEIGHTS}
    wrong = TAGS.copy()
    wrong[1, 1] = "noon"
    with pytest.raises(LabelError, match="noon"):
        tagger.evaluate(fed((given, wrong)))


def test_a_bundle_takes_sequences_of_any_length(tagger, tmp_path):
    # A weight is for training: the bundle is not asked for one.
    folder = tagger.export_saved_model(str(tmp_path))
    bundle = export.load(folder)
    for n in (1, 3, 9):
        lists = {"clicks": [[1] * n, [2]], "dwell": [[0.5] * n, [1.0]]}
        answer = bundle.predict(lists, signature="predict")
        given = {key: ex.Sparse.of_rows(rows) for key, rows in lists.items()}
        given["weight"] = np.ones((2, 5), np.float32)
        found = next(iter(tagger.predict(fed((given, None)))))
        np.testing.assert_allclose(
            np.asarray(answer["probabilities"])[0, :n],
            found["probabilities"][:n],
            rtol=1e-5,
            atol=1e-6,
        )


def test_a_bundle_takes_lists_of_several_ids_at_a_step(tmp_path):
    visits = [[[1, 2], [3]], [[4]], []]  # pages seen on each visit
    column = fc.sequence_categorical_column_with_identity("visits", 10)
    model = ex.RNNClassifier(
        [fc.embedding_column(column, 2)], units=2, model_dir=tmp_path / "model",
        config=quiet(),
    )  # fmt: skip
    given = fed(({"visits": ex.Sparse.of_rows(visits)}, LABELS[:3]))
    model.train(given)
    wanted = [row["logits"] for row in model.predict(given)]
    bundle = export.load(model.export_saved_model(str(tmp_path / "export")))
    found = bundle.predict({"visits": visits}, signature="predict")["logits"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    nothing = bundle.predict({"visits": [[], []]}, signature="predict")["logits"]
    np.testing.assert_allclose(nothing, [wanted[2]] * 2, rtol=1e-5)
    with pytest.raises(BundleError, match=r"int64 of shape \[B, \?, \?\]"):
        bundle.predict({"visits": [[1]]}, signature="predict")


def test_cells_are_given_in_one_way():
    with pytest.raises(SpecError, match="units"):
        ex.RNNClassifier(columns())
    with pytest.raises(SpecError, match="alone"):
        ex.RNNClassifier(columns(), units=3, rnn_cell_fn=lambda: nn.GRUCell(3))


def test_a_head_must_fit_the_steps():
    head = ex.heads.BinaryClassHead()
    with pytest.raises(SpecError, match="SequentialHeadWrapper"):
        ex.RNNEstimator(head, columns(), units=3, return_sequences=True)
    with pytest.raises(SpecError, match="return_sequences=True"):
        ex.RNNEstimator(
            ex.heads.SequentialHeadWrapper(head, "mask"), columns(), units=3
        )


def test_an_optimizer_given_by_name_clips_each_variable():
    from estimax.canned.rnn import _train_op

    made = _train_op("Adagrad").groups[0].optimizer
    assert made.learning_rate == 0.05
    assert made.clip.norm == 5.0
    assert _train_op(ex.optimizers.SGD(0.1)).groups[0].optimizer.clip is None
