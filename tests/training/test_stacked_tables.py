"""Tables of one width are one array in a step, and the numbers stay the same."""

from collections import Counter

import jax
import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints, training
from estimax.core.table_stacks import TableStacks
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack
from estimax.training import updates

fc = ex.feature_columns
DRAW = np.random.default_rng(0)
SIZE = 96
FEATURES = {f"c{i}": DRAW.integers(-1, 9 + i, SIZE) for i in range(4)}
FEATURES["many"] = DRAW.integers(-1, 9, (SIZE, 3))
FEATURES["more"] = DRAW.integers(-1, 9, (SIZE, 3))
FEATURES["x"] = DRAW.normal(size=SIZE).astype(np.float32)
LABELS = DRAW.integers(0, 2, SIZE)

SINGLE = [fc.categorical_column_with_identity(f"c{i}", 9 + i) for i in range(4)]
MANY = [fc.categorical_column_with_identity(key, 9) for key in ("many", "more")]
SAME = [fc.categorical_column_with_identity(f"c{i}", 12) for i in range(2)]
DEEP = [
    *(fc.embedding_column(column, 4) for column in (*SINGLE, *MANY)),
    *fc.shared_embeddings(SAME, 4),
    fc.numeric_column("x"),
]
TABLE = "dnn/input_from_feature_columns/input_layer/c1_embedding/embedding_weights"


def input_fn():
    data = ex.input.Dataset.from_tensor_slices((FEATURES, LABELS))
    return data.repeat().batch(32)


def model(folder, optimizer="Adagrad", linear="Ftrl", **config):
    return ex.DNNLinearCombinedClassifier(
        linear_feature_columns=[*SINGLE, *MANY],
        dnn_feature_columns=DEEP,
        dnn_hidden_units=[4],
        dnn_optimizer=optimizer,
        linear_optimizer=linear,
        model_dir=str(folder),
        config=ex.RunConfig(tf_random_seed=1, save_summary_steps=None, **config),
    )


@pytest.fixture
def apart(monkeypatch):
    """Let tables be stacked no more from the call on."""
    return lambda: monkeypatch.setattr(updates, "_MOST_BYTES", -1)


def saved(folder):
    return {
        n: np.asarray(a) for n, a in checkpoints.restore_latest(folder).arrays.items()
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(
    ("optimizer", "config"),
    [
        # The rule whose rounding depends the most on what XLA fuses.
        (ex.optimizers.LazyAdam(0.01), {}),
        ("Adam", {}),
        (ex.optimizers.Adagrad(0.1, global_clipnorm=0.1), {"accumulate_steps": 2}),
    ],
    ids=["lazy", "adam", "clipped"],
)
def test_checkpoints_are_those_of_tables_apart(tmp_path, apart, optimizer, config):
    model(tmp_path / "stacked", optimizer, **config).train(input_fn, steps=3)
    apart()
    model(tmp_path / "apart", optimizer, **config).train(input_fn, steps=3)
    found = saved(tmp_path / "stacked")
    assert_same(found, saved(tmp_path / "apart"))
    assert found[TABLE].shape == (10, 4)


def test_a_run_goes_on_in_the_other_layout(tmp_path, apart):
    for name in ("changed", "same"):
        model(tmp_path / name).train(input_fn, steps=2)
    model(tmp_path / "same").train(input_fn, steps=2)
    apart()
    model(tmp_path / "changed").train(input_fn, steps=2)
    assert_same(saved(tmp_path / "changed"), saved(tmp_path / "same"))


def test_an_old_checkpoint_goes_on_stacked(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(updates, "_MOST_BYTES", -1)
        model(tmp_path / "old").train(input_fn, steps=2)
        before = saved(tmp_path / "old")
    model(tmp_path / "old").train(input_fn, steps=2)
    found = saved(tmp_path / "old")
    assert found.keys() == before.keys()
    assert found["global_step"] == 4
    assert (found[TABLE] != before[TABLE]).any()


def test_tables_are_read_by_their_names(tmp_path):
    seen = {}

    class Look(ex.hooks.Hook):
        def before_run(self, context):
            return [TABLE]

        def after_run(self, context, values):
            seen["value"] = values[TABLE]

        def end(self, context):
            assert isinstance(context.state.tables, TableStacks)
            seen["table"] = np.array(context.state.tables[TABLE])
            seen["slot"] = np.array(context.state.slots[TABLE]["accumulator"])

    trained = model(tmp_path).train(input_fn, steps=2, hooks=[Look()])
    value = trained.get_variable_value(TABLE)
    np.testing.assert_array_equal(seen["table"], value)
    np.testing.assert_array_equal(seen["value"], value)
    slot = trained.get_variable_value(f"training/slots/{TABLE}/accumulator")
    np.testing.assert_array_equal(seen["slot"], slot)
    assert TABLE in trained.get_variable_names()


def test_a_warm_start_finds_one_table_of_a_stack(tmp_path):
    old = model(tmp_path / "old").train(input_fn, steps=2)
    settings = ex.WarmStartSettings(str(tmp_path / "old"), vars_to_warm_start=TABLE)
    columns = [fc.embedding_column(column, 4) for column in SINGLE]
    new = ex.DNNClassifier(
        [4],
        columns,
        optimizer=ex.optimizers.SGD(0.0),
        model_dir=str(tmp_path / "new"),
        warm_start_from=settings,
        config=ex.RunConfig(tf_random_seed=2, save_summary_steps=None),
    ).train(input_fn, steps=1)
    other = TABLE.replace("c1", "c2")
    value = old.get_variable_value
    np.testing.assert_array_equal(new.get_variable_value(TABLE), value(TABLE))
    assert (new.get_variable_value(other) != value(other)).any()


def test_a_state_in_memory_is_evaluated(tmp_path):
    results = []

    class Keep(ex.hooks.Hook):
        def end(self, context):
            results.append(estimator.evaluate_state(context.state, data, 2))

    def data():
        return ex.input.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(32)

    estimator = model(tmp_path)
    estimator.train(input_fn, steps=2, hooks=[Keep()])
    assert results[0]["loss"] == estimator.evaluate(data, steps=2)["loss"]


def program_of(count):
    columns = [
        fc.embedding_column(fc.categorical_column_with_identity(f"c{i}", 5), 2)
        for i in range(count)
    ]
    features = {f"c{i}": DRAW.integers(0, 5, 8) for i in range(count)}
    head = ex.heads.BinaryClassHead()

    def model_fn(features, labels):
        net = fc.input_layer(features, columns)
        logits = net.sum(axis=1, keepdims=True)
        optimizer = ex.optimizers.Adagrad(0.1)
        return head.create_estimator_spec(
            features, "train", logits, labels, optimizer=optimizer
        )

    batch = plans.flatten(features, DRAW.integers(0, 2, 8))
    program = training.compile(training.record(model_fn, batch, "train"))
    return program, pack(program.plan.prepare(batch))


def test_a_step_does_not_grow_with_the_columns():
    sizes, states = [], []
    for count in (10, 50):
        program, batch = program_of(count)
        state = program.init(jax.random.key(0), batch)
        states.append(len(jax.tree.leaves((state.tables, state.slots))))
        lowered = program.trace_step(state, batch).lower().as_text()
        names = ("gather", "scatter", "custom_call", "concatenate")
        sizes.append(Counter({n: lowered.count(f"stablehlo.{n}") for n in names}))
    assert sizes[0] == sizes[1]
    assert sizes[0]["gather"] > 0
    assert states == [2, 2]
