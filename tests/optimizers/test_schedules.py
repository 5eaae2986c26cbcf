import copy
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

from estimax import optimizers


def schedule_of(case):
    if case["schedule"] == "linear_warmup_then_polynomial":
        arguments = dict(case["args"])
        warmup_steps = arguments.pop("warmup_steps")
        later = optimizers.polynomial_decay(**arguments)
        return optimizers.linear_warmup(later, warmup_steps)
    return optimizers.schedule_by_name(case["schedule"], **case["args"])


def compare(case, steps):
    rates = jax.vmap(schedule_of(case))(jnp.asarray(steps))
    assert rates.dtype == jnp.float32
    expected = [float(v) for v in case["values"]]
    np.testing.assert_allclose(
        rates, expected, rtol=2e-5, atol=2e-7, err_msg=case["id"]
    )


@pytest.mark.golden
def test_every_schedule_is_tensorflows():
    golden = load_golden("schedules.json")
    compared = 0
    for case in golden["cases"]:
        compare(case, golden["steps"])
        compared += 1
    assert compared == len(golden["cases"]) > 0


@pytest.mark.golden
def test_a_wrong_golden_rate_is_noticed():
    golden = load_golden("schedules.json")
    case = copy.deepcopy(golden["cases"][0])
    case["values"][3] = float(case["values"][3]) * 1.001
    with pytest.raises(AssertionError, match="tolerance"):
        compare(case, golden["steps"])


def test_a_restart_is_at_full_height_for_any_period():
    rate = optimizers.cosine_decay_restarts(1.0, 7, t_mul=3.0)
    starts = 7 * np.array([0, 1, 4, 13, 40, 121, 364, 1093])
    np.testing.assert_array_equal(jax.vmap(rate)(jnp.asarray(starts)), 1.0)


def test_periods_must_not_shrink():
    with pytest.raises(ValueError, match="t_mul must be 1 or more"):
        optimizers.cosine_decay_restarts(1.0, 8, t_mul=0.5)


def test_noise_depends_on_seed_and_step_only():
    def rates(seed):
        noisy = optimizers.noisy_linear_cosine_decay(0.1, 100, seed=seed)
        return [float(noisy(step)) for step in (3, 4)]

    assert rates(1) == rates(1)
    assert rates(1) != rates(2)
    plain = optimizers.linear_cosine_decay(0.1, 100)
    assert rates(1)[0] != float(plain(3))


def test_without_variance_the_noise_vanishes():
    noisy = optimizers.noisy_linear_cosine_decay(0.1, 100, initial_variance=0.0)
    plain = optimizers.linear_cosine_decay(0.1, 100)
    assert float(noisy(7)) == pytest.approx(float(plain(7)))


def test_warmup_climbs_from_zero_to_a_constant():
    rate = optimizers.linear_warmup(0.5, 4)
    rates = [float(rate(step)) for step in range(6)]
    assert rates == [0.0, 0.125, 0.25, 0.375, 0.5, 0.5]


def test_schedules_run_inside_jit():
    rate = jax.jit(optimizers.piecewise_constant([2], [1.0, 0.5]))
    assert [float(rate(step)) for step in range(4)] == [1.0, 1.0, 1.0, 0.5]


def test_boundaries_and_values_must_fit():
    with pytest.raises(ValueError, match="2 boundaries need 3 values, got 2"):
        optimizers.piecewise_constant([1, 2], [0.1, 0.2])


def test_an_unknown_schedule_names_its_neighbour():
    with pytest.raises(ValueError, match="did you mean 'CosineDecay'"):
        optimizers.schedule_by_name("CosinDecay")


def test_decay_steps_must_be_positive():
    with pytest.raises(ValueError, match="decay_steps must be positive, got 0"):
        optimizers.exponential_decay(0.1, 0, 0.9)


IN_TENSORFLOWS_ORDER = {
    # the function, its arguments in TensorFlow's order, and the call that is advised
    "exponential_decay": (
        (0.1, 1, 100, 0.96),
        "exponential_decay(0.1, decay_steps=100, decay_rate=0.96)",
    ),
    "natural_exp_decay": (
        (0.1, 0, 100, 0.5, True),
        "natural_exp_decay(0.1, decay_steps=100, decay_rate=0.5, staircase=True)",
    ),
    "inverse_time_decay": (
        (0.1, 7, 100, 0.5),
        "inverse_time_decay(0.1, decay_steps=100, decay_rate=0.5)",
    ),
    "piecewise_constant": (
        (5, [10], [1.0, 0.5]),
        "piecewise_constant([10], values=[1.0, 0.5])",
    ),
    "polynomial_decay": ((0.1, 1, 100), "polynomial_decay(0.1, decay_steps=100)"),
    "cosine_decay": ((0.1, 1, 100), "cosine_decay(0.1, decay_steps=100)"),
    "cosine_decay_restarts": (
        (0.1, 1, 100),
        "cosine_decay_restarts(0.1, first_decay_steps=100)",
    ),
    "linear_cosine_decay": ((0.1, 1, 100), "linear_cosine_decay(0.1, decay_steps=100)"),
    "noisy_linear_cosine_decay": (
        (0.1, 1, 100, 0.5),
        "noisy_linear_cosine_decay(0.1, decay_steps=100, initial_variance=0.5)",
    ),
}


@pytest.mark.parametrize("name", IN_TENSORFLOWS_ORDER)
def test_a_number_in_the_place_of_the_step_is_refused_with_the_right_call(name):
    make = getattr(optimizers, name)
    given, right = IN_TENSORFLOWS_ORDER[name]
    with pytest.raises(ValueError, match=re.escape(f"write {right}")):
        make(*given)
    assert callable(
        make(given[0], *given[2:]) if name[:2] != "pi" else make(*given[1:])
    )


@pytest.mark.parametrize("name", IN_TENSORFLOWS_ORDER)
def test_an_array_in_the_place_of_the_step_gives_the_rate_at_that_step(name):
    make = getattr(optimizers, name)
    given, _ = IN_TENSORFLOWS_ORDER[name]
    place = 0 if name == "piecewise_constant" else 1
    rest = given[:place] + given[place + 1 :]
    step = jnp.asarray(40)
    at_step = jax.jit(lambda step: make(*given[:place], step, *given[place + 1 :]))
    np.testing.assert_allclose(at_step(step), make(*rest)(step), rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(0.1, 1, 100, decay_rate=0.96),
        lambda f: f(0.1, 1, decay_steps=100, decay_rate=0.96),
        lambda f: f(0.1, global_step=1, decay_steps=100, decay_rate=0.96),
        lambda f: f(0.1, np.int64(1), 100, 0.96, False),
        lambda f: f(learning_rate=0.1, global_step=1, decay_steps=100, decay_rate=0.96),
    ],
)
def test_a_step_is_noticed_however_the_rest_is_given(call):
    with pytest.raises(ValueError, match=r"write exponential_decay\(0.1, decay_steps="):
        call(optimizers.exponential_decay)


def test_a_flag_of_a_schedule_is_true_or_false():
    with pytest.raises(ValueError, match="staircase must be True or False"):
        optimizers.exponential_decay(0.1, 100, 0.96, staircase=0.5)
    assert float(optimizers.polynomial_decay(0.0, 10, end_learning_rate=9.0)(10)) == 9
    with pytest.raises(TypeError, match="decay_step"):
        optimizers.exponential_decay(0.1, decay_step=100, decay_rate=0.5)
