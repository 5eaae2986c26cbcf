"""Scopes and variables declared by hand, in Flax modules and in a model_fn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax.core.errors import SpecError
from estimax.staging.variables import ModelModule


def names_made(body):
    """The names of the variables that a function makes, and their values."""

    made = ModelModule(lambda features, labels: body()).init(
        jax.random.key(0), None, None
    )
    flat = {}
    for tree in made.values():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            flat[jax.tree_util.keystr(path, simple=True, separator="/")] = leaf
    return flat


def test_nested_scopes_name_variables_and_layers():
    def body():
        with ex.variable_scope("a"):
            with ex.variable_scope("b") as scope:
                assert scope.name == "a/b"
                ex.get_variable("v", (2,))
            nn.Dense(1, name="layer", use_bias=False)(jnp.ones((1, 2)))
        ex.get_variable("c/w", ())

    assert sorted(names_made(body)) == ["a/b/v", "a/layer/kernel", "c/w"]


def test_making_a_variable_twice_names_it():
    def body():
        with ex.variable_scope("a"):
            ex.get_variable("v", ())
        with ex.variable_scope("a"):
            ex.get_variable("other", ())
            ex.get_variable("v", ())

    with pytest.raises(SpecError, match="a/v exists already"):
        names_made(body)


def test_reuse_demands_that_the_variable_exists():
    def body():
        with ex.variable_scope("a", reuse=True), ex.variable_scope("b"):
            ex.get_variable("v", ())

    with pytest.raises(SpecError, match="a/b/v does not exist"):
        names_made(body)


def test_reuse_demands_the_same_shape():
    def body():
        for shape in ((2,), (3,)):
            with ex.variable_scope("a", reuse=ex.AUTO_REUSE):
                ex.get_variable("v", shape)

    with pytest.raises(SpecError, match=r"a/v has shape \(2,\) and is reused"):
        names_made(body)


def test_auto_reuse_makes_once_and_shares_after():
    values = []

    def body():
        for _ in range(2):
            with ex.variable_scope("a", reuse=ex.AUTO_REUSE):
                values.append(ex.get_variable("v", (3,)))
        with pytest.raises(SpecError, match="a/v exists already"):
            ex.get_variable("a/v", (3,))

    assert list(names_made(body)) == ["a/v"]
    assert values[0] is values[1]


def test_an_open_scope_can_be_entered_again_from_anywhere():
    def body():
        with ex.variable_scope("a") as a:
            ex.get_variable("v", ())
        with ex.variable_scope("z"), ex.variable_scope(a):
            ex.get_variable("w", ())
        with ex.variable_scope(ex.get_variable_scope(), reuse=True):
            ex.get_variable("a/v", ())

    assert sorted(names_made(body)) == ["a/v", "a/w"]


def test_layers_without_a_name_go_on_counting_in_a_scope_that_is_entered_again():
    def body():
        for _ in range(2):
            with ex.variable_scope("a"):
                nn.Dense(1, use_bias=False)(jnp.ones((1, 2)))

    assert sorted(names_made(body)) == ["a/Dense_0/kernel", "a/Dense_1/kernel"]


def test_a_scope_gives_its_initializer_to_the_scopes_inside():
    def body():
        with ex.variable_scope("a", initializer=nn.initializers.ones):
            with ex.variable_scope("b"):
                ex.get_variable("ones", (2,))
            ex.get_variable("twos", (2,), initializer=2.0)
            ex.get_variable("told", initializer=np.zeros(3))

    made = names_made(body)
    assert made["a/b/ones"].tolist() == [1, 1]
    assert made["a/twos"].tolist() == [2, 2]
    assert made["a/told"].shape == (3,)


@pytest.mark.parametrize(
    ("shape", "limit"), [((100, 50), 0.2), ((600,), 0.0707107), ((5, 20, 10), 0.2)]
)
def test_the_default_initializer_is_glorot_uniform_as_in_tensorflow(shape, limit):
    value = names_made(lambda: ex.get_variable("v", shape))["v"]
    assert float(jnp.abs(value).max()) == pytest.approx(limit, rel=0.05)
    assert float(jnp.abs(value).max()) <= limit * (1 + 1e-6)


def test_an_integer_variable_starts_at_zero():
    value = names_made(lambda: ex.get_variable("n", 2, dtype=jnp.int32))["n"]
    assert value.dtype == jnp.int32
    assert value.tolist() == [0, 0]


def test_outside_of_a_model_there_is_no_variable_to_get():
    with pytest.raises(SpecError, match=r"get_variable\('v'\) was called outside"):
        ex.get_variable("v", ())


def test_an_unknown_reuse_is_refused():
    with (
        pytest.raises(SpecError, match="reuse must be None"),
        ex.variable_scope("a", reuse="yes"),
    ):
        pass


def by_hand(features, labels, mode):
    """A line whose weight is declared by hand, and which counts its batches."""
    with ex.variable_scope("line", regularizer=ex.optimizers.l2(0.5)):
        w = ex.get_variable("w", (1, 1), initializer=2.0)
        b = ex.get_variable("b", (1,), initializer=nn.initializers.zeros)
    net = features["x"] @ w + b
    with ex.variable_scope("tower"):
        net = nn.Dense(1, name="out", kernel_init=nn.initializers.ones)(net)
    seen = ex.get_variable("seen", (), initializer=0.0, trainable=False)
    now = ex.assign(seen, seen + 1)
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(
            mode, predictions={"y": net, "seen": now[None] + 0 * net}
        )
    penalty = sum(ex.regularization_losses("line"))
    ex.log_value("penalty", penalty)
    loss = jnp.mean(jnp.square(net - labels)) + penalty
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.0))


def input_fn():
    x = np.ones((6, 1), np.float32)
    return ex.input.Dataset.from_tensor_slices(({"x": x}, 2 * x)).batch(2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = ex.RunConfig(
        tmp_path_factory.mktemp("m"), save_summary_steps=0, log_step_count_steps=None
    )
    return ex.Estimator(by_hand, config=config).train(input_fn)


def test_checkpoints_know_variables_by_their_scoped_names(trained):
    names = trained.get_variable_names()
    assert {"line/w", "line/b", "tower/out/kernel", "seen"} <= set(names)
    assert trained.get_variable_value("line/w").tolist() == [[2.0]]


def test_an_assigned_variable_is_kept_and_goes_on_after_a_restart(trained):
    assert trained.get_variable_value("seen") == 3
    again = ex.Estimator(by_hand, trained.model_dir)
    (first, *_) = again.predict(input_fn)
    assert first["seen"].tolist() == [4]  # 3, and this batch; forgotten after it


def test_penalties_reach_the_loss(trained):
    # The line is exact, so what is left is 0.5 * 2 * 2.
    assert trained.evaluate(input_fn)["loss"] == pytest.approx(2.0)


def test_an_exported_bundle_answers_with_declared_variables(trained, tmp_path):
    folder = trained.export_saved_model(tmp_path)
    answer = ex.export.load(folder).predict({"x": np.ones((2, 1), np.float32)})
    assert answer["y"].tolist() == [[2], [2]]


def test_assigning_a_trainable_variable_is_an_error(tmp_path):
    def model_fn(features, labels, mode):
        ex.assign(ex.get_variable("w", ()), 1.0)

    with pytest.raises(SpecError, match="w is trainable"):
        ex.Estimator(model_fn, tmp_path).train(input_fn)


def test_tables_in_a_scope_are_named_under_it_and_trained_by_row(tmp_path):
    column = ex.feature_columns.embedding_column(
        ex.feature_columns.categorical_column_with_identity("x", 4), 2
    )

    def model_fn(features, labels, mode):
        with ex.variable_scope("left"):
            net = ex.feature_columns.input_layer(features, [column])
        loss = jnp.mean(jnp.square(net - labels))
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.1))

    def integers():
        x = np.array([[1], [2]])
        return ex.input.Dataset.from_tensor_slices(({"x": x}, x / 2)).batch(2)

    model = ex.Estimator(model_fn, tmp_path).train(integers)
    assert [n for n in model.get_variable_names() if n.startswith("left/")] != []


class TestReuse:
    """The ways of TensorFlow 1 to share variables."""

    def test_a_reused_variable_needs_no_shape(self):
        def body():
            with ex.variable_scope("a"):
                first = ex.get_variable("v", (2,))
            with ex.variable_scope("a", reuse=True):
                assert ex.get_variable("v") is first

        assert list(names_made(body)) == ["a/v"]

    def test_reuse_variables_of_an_open_scope(self):
        def body():
            with ex.variable_scope("a") as scope:
                x = nn.Dense(2, use_bias=False)(jnp.ones((1, 2)))
                first = ex.get_variable("v", (2,))
                scope.reuse_variables()
                assert scope.reuse is True
                again = nn.Dense(2, use_bias=False)(jnp.ones((1, 2)))
                assert (x == again).all()
                assert ex.get_variable("v") is first
            assert ex.get_variable_scope().reuse is False
            ex.get_variable("w", ())

        assert sorted(names_made(body)) == ["a/Dense_0/kernel", "a/v", "w"]

    def test_reuse_variables_at_the_top_of_a_model(self):
        def body():
            first = ex.get_variable("v", (2,))
            ex.get_variable_scope().reuse_variables()
            assert ex.get_variable("v") is first
            with ex.variable_scope("inside"), pytest.raises(SpecError, match="reuse"):
                ex.get_variable("new", ())

        assert list(names_made(body)) == ["v"]
        # The scope of one model does not change that of the next.
        assert list(names_made(lambda: ex.get_variable("v", (2,)))) == ["v"]

    def test_an_empty_name_is_the_scope_around(self):
        def body():
            with ex.variable_scope("a"):
                first = ex.get_variable("v", (2,))
                with ex.variable_scope("", reuse=True) as scope:
                    assert scope.name == "a"
                    assert ex.get_variable("v") is first
            top = ex.get_variable("v", (2,))
            with ex.variable_scope("", reuse=True):
                assert ex.get_variable("v") is top

        assert sorted(names_made(body)) == ["a/v", "v"]

    def test_a_missing_variable_under_reuse_says_so_before_its_shape(self):
        def body():
            with ex.variable_scope("a", reuse=True):
                ex.get_variable("v")

        with pytest.raises(SpecError, match="a/v does not exist"):
            names_made(body)


def test_a_module_that_is_called_twice_shares_its_variables():
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            seen = ex.get_variable("seen", (), initializer=0.0, trainable=False)
            with ex.variable_scope("in"):
                b = ex.get_variable("b", (2,))
            return x @ ex.get_variable("w", (2, 2)) + seen + b

    def body():
        layer = Layer(name="layer")
        x = jnp.ones((1, 2))
        assert (layer(x) == layer(x)).all()

    assert sorted(names_made(body)) == ["layer/in/b", "layer/seen", "layer/w"]


def test_a_module_that_declares_a_variable_twice_is_told():
    class Layer(nn.Module):
        @nn.compact
        def __call__(self):
            ex.get_variable("w", (2,))
            ex.get_variable("w", (2,))

    with pytest.raises(SpecError, match="layer/w exists already"):
        names_made(lambda: Layer(name="layer")())
