from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from estimax import checkpoints
from estimax.core.errors import CheckpointError
from estimax.core.state import TrainState


def make_state(seed: int = 0, width: int = 2, **changes: Any) -> TrainState:
    params = {
        "dnn/hiddenlayer_0/kernel": jax.random.normal(jax.random.key(seed), (3, width))
    }
    state = TrainState(
        step=jnp.int32(5 + seed),
        params=params,
        tables={"city/embedding_weights": jnp.full((4, 2), seed, jnp.bfloat16)},
        model_state={"batch_stats": {"dnn": {"norm": {"mean": jnp.full(2, seed)}}}},
        opt_state={"0": optax.adam(0.1).init(params)},
        slots={"city/embedding_weights": {"accumulator": jnp.full((4, 2), 0.1)}},
        key=jax.random.key(seed),
    )
    return replace(state, **changes)


def arrays_of(state: TrainState) -> dict[str, Any]:
    return checkpoints.snapshot(checkpoints.flatten_state(state))


def assert_same(one: TrainState, other: TrainState) -> None:
    first, second = arrays_of(one), arrays_of(other)
    assert list(first) == list(second)
    for name, array in first.items():
        assert array.dtype == second[name].dtype
        np.testing.assert_array_equal(array, second[name])


def test_names_are_the_variables_paths() -> None:
    assert list(checkpoints.flatten_state(make_state())) == [
        "global_step",
        "dnn/hiddenlayer_0/kernel",
        "city/embedding_weights",
        "dnn/norm/mean",
        "training/0/0/count",
        "training/0/0/mu/dnn/hiddenlayer_0/kernel",
        "training/0/0/nu/dnn/hiddenlayer_0/kernel",
        "training/slots/city/embedding_weights/accumulator",
        "random_key",
    ]


def test_nested_params_have_the_same_names_as_flat_ones() -> None:
    nested = make_state(params={"dnn": {"logits": {"bias": jnp.ones(1)}}})
    assert "dnn/logits/bias" in checkpoints.flatten_state(nested)


def test_state_comes_back_as_it_was() -> None:
    state = make_state(3)
    assert_same(checkpoints.unflatten_state(make_state(0), arrays_of(state)), state)


def test_old_style_key_comes_back_as_it_was() -> None:
    state = make_state(key=jax.random.PRNGKey(9))
    template = make_state(key=jax.random.PRNGKey(0))
    found = checkpoints.unflatten_state(template, arrays_of(state))
    np.testing.assert_array_equal(found.key, state.key)
    assert found.key.dtype == jnp.uint32


def test_template_may_be_shapes_alone() -> None:
    state = make_state(3)
    template = jax.eval_shape(lambda: make_state(0))
    assert_same(checkpoints.unflatten_state(template, arrays_of(state)), state)


def test_restored_state_can_be_donated_and_leaves_the_arrays_alone() -> None:
    arrays = arrays_of(make_state(3))
    before = {name: array.copy() for name, array in arrays.items()}
    restored = checkpoints.unflatten_state(make_state(0), arrays)
    add = jax.jit(lambda s: replace(s, step=s.step + 1), donate_argnums=0)
    add(add(restored)).step.block_until_ready()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


def test_sharded_template_places_what_it_gets() -> None:
    mesh = jax.make_mesh((2,), ("rows",))
    spread = jax.NamedSharding(mesh, jax.P("rows"))
    name = "city/embedding_weights"
    state = make_state(3)
    tables = {name: jax.device_put(state.tables[name], spread)}
    found = checkpoints.unflatten_state(
        make_state(0, tables=tables), arrays_of(make_state(3, tables=tables))
    )
    assert found.tables[name].sharding == spread
    np.testing.assert_array_equal(found.tables[name], state.tables[name])


def test_learning_rate_of_optax_comes_from_the_code() -> None:
    def state(rate: float) -> TrainState:
        made = make_state()
        optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=rate)
        return replace(made, opt_state={"0": optimizer.init(made.params)})

    assert not any("learning_rate" in n for n in checkpoints.flatten_state(state(0.1)))
    found = checkpoints.unflatten_state(state(0.5), arrays_of(state(0.1)))
    assert found.opt_state["0"].hyperparams["learning_rate"] == 0.5


def test_same_name_in_two_collections_is_refused() -> None:
    state = make_state(
        model_state={"stats": {"city": {"embedding_weights": jnp.ones(1)}}}
    )
    with pytest.raises(CheckpointError, match="both named 'city/embedding_weights'"):
        checkpoints.flatten_state(state)


def test_changed_shape_names_both() -> None:
    arrays = arrays_of(make_state(width=2))
    with pytest.raises(CheckpointError) as caught:
        checkpoints.unflatten_state(make_state(width=4), arrays)
    assert (
        "changed: dnn/hiddenlayer_0/kernel is float32[3, 2] in the checkpoint, "
        "float32[3, 4] in the model" in str(caught.value)
    )
    assert "partial=True" in str(caught.value)


def test_missing_and_extra_variables_are_listed() -> None:
    arrays = arrays_of(make_state())
    arrays["old"] = arrays.pop("dnn/norm/mean")
    with pytest.raises(CheckpointError) as caught:
        checkpoints.unflatten_state(make_state(), arrays)
    lines = str(caught.value).splitlines()
    assert lines[1:3] == [
        "  missing in the checkpoint: dnn/norm/mean int32[2]",
        "  not in the model: old int32[2]",
    ]


def test_changed_dtype_is_refused() -> None:
    arrays = arrays_of(make_state())
    arrays["global_step"] = arrays["global_step"].astype(np.int64)
    with pytest.raises(CheckpointError, match="global_step is int64"):
        checkpoints.unflatten_state(make_state(), arrays)


def test_variables_alone_leave_the_optimizer_to_the_template() -> None:
    state, template = make_state(3), make_state(0, opt_state={}, slots={})
    found = checkpoints.unflatten_variables(template, arrays_of(state))
    assert_same(found, replace(state, opt_state={}, slots={}, key=template.key))


def test_variables_alone_must_all_be_there() -> None:
    arrays = arrays_of(make_state())
    del arrays["dnn/norm/mean"]
    with pytest.raises(CheckpointError, match="missing in the checkpoint: dnn/norm"):
        checkpoints.unflatten_variables(make_state(), arrays)
