import jax
import jax.numpy as jnp
import pytest

from estimax import heads, optimizers, staging

HEAD = heads.RegressionHead()
BATCH = {"features": {}, "logits": jnp.ones((2, 1)), "labels": [0.0, 2.0]}


def train_spec(head=HEAD, **options):
    return head.create_estimator_spec(mode="train", **BATCH, **options)


def test_an_optimizer_trains_all_variables():
    spec = train_spec(optimizer="Adagrad")
    assert spec.train_op == optimizers.as_train_op("Adagrad")
    assert float(spec.loss) == 1.0


def test_trainable_variables_name_what_is_trained():
    spec = train_spec(optimizer="SGD", trainable_variables=["dnn/"])
    assert optimizers.assign(spec.train_op, ["dnn/kernel", "linear/bias"]) == {
        "dnn/kernel": 0,
        "linear/bias": None,
    }


def test_a_train_op_fn_gets_the_regularized_loss():
    seen = []

    def train_op_fn(loss):
        seen.append(float(loss))
        return optimizers.minimize("SGD")

    spec = train_spec(train_op_fn=train_op_fn, regularization_losses=[0.5, 0.25])
    assert seen == [1.75]
    assert isinstance(spec.train_op, optimizers.TrainOp)


@pytest.mark.parametrize("given", [{}, {"optimizer": "SGD", "train_op_fn": print}])
def test_training_takes_exactly_one_way(given):
    with pytest.raises(ValueError, match="either optimizer or train_op_fn"):
        train_spec(**given)


def test_update_ops_are_a_list():
    assert train_spec(optimizer="SGD", update_ops=[]).train_op is not None
    with pytest.raises(ValueError, match="update_ops must be a list"):
        train_spec(optimizer="SGD", update_ops="batch_norm")


def test_an_unknown_optimizer_is_refused():
    with pytest.raises((TypeError, ValueError)):
        train_spec(optimizer="Adagradd")


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="unknown mode 'predict'"):
        HEAD.create_estimator_spec(mode="predict", **BATCH)


def test_predicting_ignores_labels_and_has_no_loss():
    spec = HEAD.create_estimator_spec({}, "infer", BATCH["logits"], labels="nonsense")
    assert spec.loss is None
    assert sorted(spec.export_outputs) == ["predict", "regression", "serving_default"]


def test_a_named_head_logs_its_loss_while_a_step_is_traced():
    trace = staging.Trace("train", lambda call: None)
    with staging.tracing(trace):
        head = heads.RegressionHead(name="price")
        train_spec(head, optimizer="SGD", regularization_losses=[0.5])
    logged = {tag: float(entry.value) for tag, entry in trace.logged.items()}
    assert logged == {"loss/price": 1.5, "regularization_loss/price": 0.5}


def test_evaluating_inside_jit_gives_metric_values():
    def evaluate(logits, labels):
        spec = HEAD.create_estimator_spec({}, "eval", logits, labels)
        return spec.loss, spec.eval_metric_ops

    loss, measured = jax.jit(evaluate)(BATCH["logits"], jnp.array([0.0, 2.0]))
    assert float(loss) == float(measured["average_loss"].compute()) == 1.0
