import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from estimax import RunConfig
from estimax.core.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "steps", "secs"),
    [
        ({}, None, 600),
        ({"save_checkpoints_steps": 7}, 7, None),
        ({"save_checkpoints_secs": 7}, None, 7),
        ({"save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": 0}, 0, None),
    ],
    ids=str,
)
def test_one_checkpoint_interval_replaces_the_other(given, steps, secs):
    config = RunConfig(**given)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (
        steps,
        secs,
    )
    assert config.saves_checkpoints == bool(steps or secs)


def test_two_checkpoint_intervals_are_refused():
    with pytest.raises(ConfigError, match="give one"):
        RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1)
    with pytest.raises(ConfigError, match="give one"):
        RunConfig().replace(save_checkpoints_steps=1, save_checkpoints_secs=1)


def test_replacing_one_interval_unsets_the_other():
    config = RunConfig().replace(save_checkpoints_steps=10)
    assert config.save_checkpoints_secs is None
    assert config.replace(save_checkpoints_secs=5).save_checkpoints_steps is None
    assert RunConfig().replace(save_checkpoints_secs=None).saves_checkpoints is False


def test_replacing_keeps_the_rest_and_makes_a_new_object():
    config = RunConfig(tf_random_seed=3, keep_checkpoint_max=7)
    changed = config.replace(model_dir="runs/a")
    assert (changed.tf_random_seed, changed.keep_checkpoint_max) == (3, 7)
    assert config.model_dir is None
    assert changed.save_checkpoints_secs == 600


def test_an_unknown_field_is_told_with_its_neighbour():
    with pytest.raises(ConfigError, match="did you mean 'save_summary_steps'"):
        RunConfig().replace(save_sumary_steps=1)


@pytest.mark.parametrize(
    "given",
    [
        {"save_summary_steps": -1},
        {"save_checkpoints_steps": -1},
        {"keep_checkpoint_max": -1},
        {"keep_checkpoint_every_n_hours": 0},
        {"log_step_count_steps": 0},
        {"iterations_per_loop": 0},
        {"prefetch_batches": 0},
        {"tf_random_seed": 1.5},
        {"model_dir": ""},
    ],
    ids=str,
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(given):
    (name,) = given
    with pytest.raises(ConfigError, match=name):
        RunConfig(**given)


def test_the_defaults_are_tf_estimators():
    config = RunConfig()
    assert config.save_summary_steps == 100
    assert config.keep_checkpoint_max == 5
    assert config.keep_checkpoint_every_n_hours == 10_000
    assert config.log_step_count_steps == 100


@pytest.mark.parametrize(
    "name",
    [
        "save_summary_steps",
        "keep_checkpoint_max",
        "keep_checkpoint_every_n_hours",
        "log_step_count_steps",
        "tf_random_seed",
    ],
)
def test_none_switches_a_setting_off(name):
    assert getattr(RunConfig(**{name: None}), name) is None


@pytest.mark.parametrize("name", ["save_checkpoints_steps", "iterations_per_loop"])
def test_a_count_that_is_no_whole_number_is_refused(name):
    with pytest.raises(ConfigError, match=rf"{name} must be a whole number, got 2\.5"):
        RunConfig(**{name: 2.5})


def test_its_repr_shows_only_what_differs_from_the_default():
    assert repr(RunConfig()) == "RunConfig()"
    config = RunConfig("runs/a", save_checkpoints_steps=10, precision="bfloat16")
    assert repr(config) == (
        "RunConfig(model_dir='runs/a', save_checkpoints_steps=10, precision='bfloat16')"
    )
    never = RunConfig(save_checkpoints_steps=None)
    assert repr(never) == "RunConfig(save_checkpoints_secs=None)"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"devices": 0}, 'a number of at least 1, "all" or a list'),
        ({"devices": "most"}, "got 'most'"),
        ({"devices": []}, "a list of JAX devices"),
        ({"mesh": 8}, "mesh must be a jax.sharding.Mesh, got 8"),
        ({"shard_tables_above": -1}, "shard_tables_above must be >= 0"),
        ({"shard_tables": {"(": True}}, "no regular expression"),
    ],
    ids=str,
)
def test_devices_that_cannot_be_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        RunConfig(**given)


def test_devices_or_a_mesh_but_not_both():
    mesh = Mesh(np.array(jax.devices()), ("all",))
    assert RunConfig(mesh=mesh).mesh is mesh
    with pytest.raises(ConfigError, match="None if mesh is given"):
        RunConfig(devices=2, mesh=mesh)


def test_the_tables_to_shard_survive_a_replace():
    config = RunConfig(shard_tables={"user": True}).replace(devices=4)
    assert config.shard_tables == (("user", True),)
    assert repr(config) == "RunConfig(devices=4, shard_tables=(('user', True),))"
