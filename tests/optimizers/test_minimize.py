import jax.numpy as jnp
import optax
import pytest

from estimax import optimizers
from estimax.core.errors import SpecError
from estimax.optimizers import Clip, assign, group, minimize

NAMES = [
    "linear/linear_model/age/weights",
    "linear/linear_model/bias_weights",
    "dnn/hiddenlayer_0/kernel",
    "dnn/logits/kernel",
]


def test_without_a_list_everything_is_trained():
    assert set(assign(minimize("SGD"), NAMES).values()) == {0}


def test_variables_that_no_group_matches_are_frozen():
    assigned = assign(minimize("SGD", var_list="dnn/"), NAMES)
    assert list(assigned.values()) == [None, None, 0, 0]


def test_the_first_group_that_matches_wins():
    train_op = group(
        minimize("SGD", var_list=".*bias"),
        minimize("Ftrl", var_list="linear/"),
        minimize("Adagrad"),
    )
    assert list(assign(train_op, NAMES).values()) == [1, 0, 2, 2]


def test_a_list_of_regexes_matches_any_of_them():
    train_op = minimize("SGD", var_list=["dnn/hidden", "linear/.*/bias"])
    assert list(assign(train_op, NAMES).values()) == [None, 0, 0, None]


def test_a_regex_without_a_variable_names_the_nearest():
    train_op = minimize("SGD", var_list=["dnn/", "dnn/logit/kernel"])
    with pytest.raises(SpecError, match="did you mean 'dnn/logits/kernel'"):
        assign(train_op, NAMES)


def test_a_group_that_comes_too_late_is_an_error():
    train_op = group(minimize("SGD"), minimize("Ftrl", var_list="linear/"))
    with pytest.raises(SpecError, match="Put the narrower group first"):
        assign(train_op, NAMES)


def test_a_group_for_the_rest_may_stay_empty():
    train_op = group(minimize("SGD", var_list="linear|dnn"), minimize("Ftrl"))
    assert set(assign(train_op, NAMES).values()) == {0}


def test_an_empty_list_is_an_error():
    with pytest.raises(SpecError, match="nothing would be trained"):
        minimize("SGD", var_list=[])


def test_a_broken_regex_is_an_error():
    with pytest.raises(SpecError, match=r"'dnn/\(', which is not a regular expression"):
        minimize("SGD", var_list="dnn/(")


def test_groups_of_different_losses_cannot_be_joined():
    one, other = jnp.array(1.0), jnp.array(2.0)
    with pytest.raises(SpecError, match="different losses"):
        group(minimize("SGD", one), minimize("SGD", other))


def test_a_loss_is_kept_for_the_step_to_check():
    loss = jnp.array(1.0)
    joined = group(minimize("SGD", loss, "a"), minimize("Adagrad"))
    assert joined.loss is loss


def test_whatever_is_an_optimizer_is_a_train_op():
    made = [optimizers.SGD(0.1), optax.sgd(0.1), "sgd", lambda: "sgd"]
    names = [optimizers.as_train_op(one).groups[0].optimizer.name for one in made]
    assert names == ["SGD", "optax", "SGD", "SGD"]


def test_a_group_clips_before_its_optimizer_does():
    sgd = optimizers.SGD(0.1, clipvalue=0.7)
    made = minimize(sgd, clip=Clip(global_norm=1.0)).groups[0]
    clipped = made.clipped({"a": jnp.array([3.0]), "b": jnp.array([4.0])})
    assert [round(float(g[0]), 4) for g in clipped.values()] == [0.6, 0.7]
