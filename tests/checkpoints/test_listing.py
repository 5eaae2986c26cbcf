import logging
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from estimax import checkpoints
from estimax.core.errors import CheckpointError


def write(model_dir: Path, *steps: int) -> None:
    for step in steps:
        path = checkpoints.path_of(model_dir, step)
        checkpoints.write(path, {"w": np.full(10, step)}, step)


def damage(path: Path) -> None:
    """Flip a bit of the last array, so that no size changes."""
    file = path / "state-00000-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_empty_directory_has_no_latest(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    assert checkpoints.latest(tmp_path / "nowhere") is None
    assert checkpoints.restore_latest(tmp_path) is None


def test_latest_is_the_highest_step_and_not_the_last_name(tmp_path: Path) -> None:
    write(tmp_path, 1000, 99, 5)
    assert checkpoints.latest(tmp_path) == tmp_path / "model.ckpt-1000"


def test_directory_can_be_moved(tmp_path: Path) -> None:
    write(tmp_path / "a", 3)
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert checkpoints.latest(tmp_path / "b") == tmp_path / "b" / "model.ckpt-3"


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    write(tmp_path, 3)
    for name in ("model.ckpt-9.index", "model.ckpt-x", "xmodel.ckpt-9", "eval"):
        (tmp_path / name).mkdir()
    (tmp_path / "model.ckpt-10").write_text("a file")
    assert checkpoints.all_checkpoints(tmp_path) == [tmp_path / "model.ckpt-3"]


def test_latest_passes_over_a_checkpoint_that_is_cut(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    file = tmp_path / "model.ckpt-2" / "state-00000-of-00001.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert checkpoints.latest(tmp_path) == tmp_path / "model.ckpt-1"


def test_renamed_checkpoint_is_not_taken_for_another_step(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    (tmp_path / "model.ckpt-2").rename(tmp_path / "model.ckpt-20")
    assert checkpoints.latest(tmp_path) == tmp_path / "model.ckpt-1"


def test_restore_goes_back_to_the_last_sound_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1, 2, 3)
    damage(tmp_path / "model.ckpt-3")
    (tmp_path / "model.ckpt-2" / "manifest.json").write_text("{")
    with caplog.at_level(logging.WARNING, "estimax"):
        found = checkpoints.restore_latest(tmp_path)
    assert found is not None
    assert found.step == 1
    warned = caplog.text
    assert "model.ckpt-3/state-00000-of-00001.safetensors: array 'w' is dam" in warned
    assert "model.ckpt-2/manifest.json is damaged" in warned
    assert (tmp_path / "model.ckpt-3").exists()


def test_nothing_but_damage_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    damage(tmp_path / "model.ckpt-1")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        checkpoints.restore_latest(tmp_path)


def test_step_of_a_strange_name_is_refused() -> None:
    with pytest.raises(CheckpointError, match="not named like a checkpoint"):
        checkpoints.step_of("some/where")


def test_snapshot_survives_donation() -> None:
    array = jnp.arange(1000.0)
    copied = checkpoints.snapshot({"a": array})
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    double(array).block_until_ready()
    np.testing.assert_array_equal(copied["a"], np.arange(1000.0))


def test_snapshot_gathers_a_sharded_array() -> None:
    mesh = jax.make_mesh((4,), ("rows",))
    spread = jax.device_put(np.arange(8.0), jax.NamedSharding(mesh, jax.P("rows")))
    np.testing.assert_array_equal(
        checkpoints.snapshot({"a": spread})["a"], np.arange(8.0)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_first_nan_names_the_array(dtype: type) -> None:
    good = {"i": np.arange(3), "inf": np.array([np.inf, -np.inf]), "e": np.zeros(0)}
    assert checkpoints.first_nan(good) is None
    bad = np.zeros(1000, dtype)
    bad[777] = np.nan
    assert checkpoints.first_nan({**good, "bad": bad}) == "bad"
