"""The steps of every ready model can be compiled for GPUs and TPUs.

There is no accelerator here, so the steps are lowered: JAX translates them for cuda and
tpu up to the point at which XLA compiles them. A call of a CPU kernel in the result
would fail there.
"""

import re

import jax
import pytest
from ready_models import FEATURES, MODELS, TREES

import estimax as ex
from estimax import canned
from estimax.core.spec import ModeKeys
from estimax.estimator.session import Session
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack, put

DEVICES = {"one": {}, "mesh": {"devices": 8, "shard_tables_above": 0}}
# Annotations of shardings, and the random numbers of GPUs. XLA knows these everywhere
# but the last, which has a kernel on GPUs only.
KNOWN = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}
KNOWN_ON_GPUS = {"cu_threefry2x32_ffi"}


def steps(name, tmp_path, devices):
    """Yield each compiled function of a model with arguments for it, by mode."""
    build, labels = MODELS[name]
    config = ex.RunConfig(str(tmp_path), tf_random_seed=1, **DEVICES[devices])
    model = build(config)
    raw = plans.flatten(FEATURES, labels)
    unlabelled = plans.flatten(FEATURES, None)
    key = jax.random.key(0)
    train = model._program(Session(config, ModeKeys.TRAIN), raw)
    packed = packed_batch(train, raw)
    state = train.form(key, packed)
    yield "train", train.step, (state, put(packed, train.placement))
    for mode, batch in ((ModeKeys.EVAL, raw), (ModeKeys.PREDICT, unlabelled)):
        program = model._program(Session(config, mode), batch)
        variables = program.placement.forms(program.shapes)
        batch = put(packed_batch(program, batch), program.placement)
        yield mode, program.step, (variables, batch)


def packed_batch(program, raw):
    return pack(program.plan.prepare(raw), program.placement)


def custom_calls(step, arguments, *platforms):
    text = step.trace(*arguments).lower(lowering_platforms=platforms).as_text()
    return set(re.findall(r"custom_call @([\w.]+)", text))


def test_every_ready_model_is_listed():
    classes = {n for n in canned.__all__ if isinstance(getattr(canned, n), type)}
    # An average is made of others; `test_average.py` has it.
    assert MODELS.keys() | TREES.keys() | {"AverageEstimator"} == classes


# One model of each kind of layer and table; the slow test has all of them.
FEW = ["DNNLinearCombinedClassifier", "RNNClassifier"]


@pytest.mark.parametrize("name", FEW)
def test_steps_on_a_mesh_are_lowered_for_accelerators(name, tmp_path):
    for mode, step, arguments in steps(name, tmp_path, "mesh"):
        found = custom_calls(step, arguments, "cuda", "tpu")
        assert found <= KNOWN | KNOWN_ON_GPUS, mode


def test_steps_on_one_device_are_lowered_for_accelerators(tmp_path):
    for mode, step, arguments in steps(FEW[0], tmp_path, "one"):
        found = custom_calls(step, arguments, "cuda", "tpu")
        assert found <= KNOWN | KNOWN_ON_GPUS, mode


def test_a_kernel_of_the_cpu_would_be_found(tmp_path, native_on):
    # The names of kernels are seen where they are used, so their absence means much.
    made = {m: (step, given) for m, step, given in steps(FEW[0], tmp_path, "one")}
    assert "estimax_adagrad" in custom_calls(*made["train"], "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_every_ready_model_is_lowered_for_each_accelerator(name, devices, tmp_path):
    for mode, step, arguments in steps(name, tmp_path, devices):
        assert custom_calls(step, arguments, "tpu") <= KNOWN, mode
        assert custom_calls(step, arguments, "cuda") <= KNOWN | KNOWN_ON_GPUS, mode
