"""Trajectories of 20 steps against TensorFlow 2.15.1's own."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

from estimax import optimizers
from estimax.optimizers import v1

pytestmark = pytest.mark.golden

# v1's kernels and the newest Keras name some slots otherwise than legacy does. Of the
# newest Keras' slots the golden file keeps the last one of each variable.
SLOT_NAMES = {
    ("v1", "FtrlOptimizer", "accum"): "accumulator",
    ("v1", "AdadeltaOptimizer", "accum"): "accum_grad",
    ("v1", "AdadeltaOptimizer", "accum_update"): "accum_var",
    ("keras", "SGD", "SGD"): "momentum",
    ("keras", "Adagrad", "Adagrad"): "accumulator",
    ("keras", "Adam", "Adam"): "v",
    ("keras", "AdamW", "AdamW"): "v",
    ("keras", "Ftrl", "Ftrl"): "linear",
}


def slot_name(key, slots):
    if key == ("keras", "RMSprop", "RMSprop"):
        return "momentum" if "momentum" in slots else "rms"
    return SLOT_NAMES.get(key, key[-1])


def decode(tensor):
    values = [float(v) for v in tensor["data"]]
    return np.array(values, tensor["dtype"]).reshape(tensor["shape"])


def schedule_of(case):
    name = case.get("learning_rate_schedule")
    if name is None:
        return {}
    rates = {
        "exponential_decay_3_0.5_staircase": optimizers.exponential_decay(
            0.2, 3, 0.5, staircase=True
        ),
        "polynomial_decay_10": optimizers.polynomial_decay(0.2, 10, 0.01, power=2.0),
    }
    return {"learning_rate": rates[name]}


def optimizer_of(case):
    arguments = case["args"] | schedule_of(case)
    if case["api"] == "v1":
        return getattr(v1, case["optimizer"])(**arguments)
    if case["api"] == "reference":
        return getattr(v1, case["optimizer"] + "Optimizer")(**arguments)
    if case["api"] == "keras" and case["optimizer"] != "AdamW":
        arguments["generation"] = "keras"
    return optimizers.by_name(case["optimizer"], **arguments)


def steps_of(sequence):
    """Each step's gradient: an array, or (indices, values)."""
    if sequence["kind"] == "dense":
        return list(decode(sequence["steps"]))
    return [
        pad(np.array(step["indices"], np.int32), decode(step["values"]))
        for step in sequence["steps"]
    ]


def pad(ids, values, length=8):
    """Pad to one length, for one compilation; id -1 is no row, and zeros no norm."""
    missing = length - len(ids)
    return np.pad(ids, (0, missing), constant_values=-1), np.pad(
        values, ((0, missing), (0, 0))
    )


def train_step(optimizer, grads, variables, states, step):
    """One step over named variables, as a training step does it: clip, sum, update."""
    values = {n: g[1] if isinstance(g, tuple) else g for n, g in grads.items()}
    if optimizer.clip is not None:
        values = optimizer.clip(values)
    optimizer = optimizer.unclipped
    new = {}
    for name, w in variables.items():
        if isinstance(grads[name], tuple):
            ids, rows = optimizers.sum_duplicates(grads[name][0], values[name], len(w))
            new[name] = optimizers.update_rows(
                optimizer, w, states[name], ids, rows, step
            )
        else:
            new[name] = optimizer.apply(values[name], states[name], w, step=step)
    return {n: w for n, (w, _) in new.items()}, {n: s for n, (_, s) in new.items()}


def run(case, sequences):
    """Every variable after every step, and the last slots."""
    optimizer = optimizer_of(case)
    used = {name: sequences[key] for name, key in case["vars"].items()}
    variables = {n: jnp.asarray(decode(s["initial"])) for n, s in used.items()}
    states = {n: optimizer.init(w) for n, w in variables.items()}
    steps = {n: steps_of(s) for n, s in used.items()}
    history = {name: [] for name in used}
    for step in range(20):
        grads = {name: steps[name][step] for name in used}
        variables, states = train_step(optimizer, grads, variables, states, step)
        for name, w in variables.items():
            history[name].append(np.asarray(w))
    return {name: np.stack(h) for name, h in history.items()}, states


def compare_case(case, sequences):
    """Assert every value and slot of a case; return how many arrays were compared."""
    history, slots = run(case, sequences)
    compared = 0
    for name, expected in case["expected"].items():
        np.testing.assert_allclose(
            history[name], decode(expected), rtol=1e-6, atol=1e-5, err_msg=case["id"]
        )
        compared += 1
        for slot, value in case["slots_final"][name].items():
            key = (case["api"], case["optimizer"], slot)
            if key[0] == "keras" and not slots[name]:
                # Keras has a velocity even where momentum is 0: the last change.
                change = history[name][-1] - history[name][-2]
                np.testing.assert_allclose(change, decode(value), atol=1e-6)
            else:
                np.testing.assert_allclose(
                    slots[name][slot_name(key, slots[name])],
                    decode(value),
                    rtol=1e-5,
                    atol=1e-5,
                    err_msg=f"{case['id']} slot {slot}",
                )
            compared += 1
    return compared


def test_every_trajectory_and_every_slot_is_tensorflows():
    golden = load_golden("optimizers.json")
    counts = [compare_case(c, golden["gradient_sequences"]) for c in golden["cases"]]
    arrays = sum(
        len(c["expected"]) + sum(map(len, c["slots_final"].values()))
        for c in golden["cases"]
    )
    assert len(counts) == len(golden["cases"]) >= 128
    assert sum(counts) == arrays


@pytest.mark.parametrize("place", ["expected", "slots_final"])
def test_a_wrong_golden_value_is_noticed(place):
    golden = load_golden("optimizers.json")
    case = copy.deepcopy(
        next(c for c in golden["cases"] if c["id"].startswith("keras_legacy.Adagrad"))
    )
    tensor = case[place]["w"]
    tensor = tensor["accumulator"] if place == "slots_final" else tensor
    tensor["data"][0] += 1e-3
    with pytest.raises(AssertionError, match="Adagrad"):
        compare_case(case, golden["gradient_sequences"])


def test_frozen_variables_stay_bit_identical_and_have_no_slots():
    cases = load_golden("optimizers.json")["freezing"]
    for case in cases:
        compare_freezing(case)
    assert len(cases) == 1


def compare_freezing(case):
    train_op = optimizers.minimize(
        v1.AdagradOptimizer(case["learning_rate"]), var_list="a"
    )
    params = {name: jnp.asarray(decode(case[name + "0"])) for name in ("a", "b")}
    assigned = optimizers.assign(train_op, list(params))
    assert assigned == {"a": 0, "b": None}
    moving = {name: params[name] for name in params if assigned[name] is not None}
    optimizer = train_op.groups[0].optimizer
    state = optimizer.init(moving)
    expected = decode(case["a"])

    def loss(moving):
        a, b = moving["a"], params["b"]
        return 0.5 * jnp.sum(a * a) + jnp.sum(a * b)

    assert case["loss"] == "0.5*sum(a*a)+sum(a*b)"
    for step in range(case["global_step"]):
        grads = jax.grad(loss)(moving)
        moving, state = optimizer.apply(grads, state, moving, step=step)
        np.testing.assert_allclose(moving["a"], expected[step], atol=1e-5)
    np.testing.assert_array_equal(params["b"], decode(case["b_final"]))
    assert list(state) == ["accumulator"]
    assert list(state["accumulator"]) == ["a"]
