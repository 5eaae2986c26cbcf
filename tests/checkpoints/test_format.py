import json
from pathlib import Path

import numpy as np
import pytest

from estimax import checkpoints
from estimax.core.errors import CheckpointError, MissingFileError

ARRAYS = {"dnn/kernel": np.arange(6.0, dtype=np.float32), "n": np.array(3)}
EXTRA = {"input": {"file": 2, "offset": 17, "seed": None, "rate": 0.1}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "model.ckpt-7", ARRAYS, 7, EXTRA)


def state_file(folder: Path) -> Path:
    return folder / "state-00000-of-00001.safetensors"


def test_checkpoint_comes_back_as_it_was(folder: Path) -> None:
    found = checkpoints.read(folder)
    assert (found.step, found.extra) == (7, EXTRA)
    np.testing.assert_array_equal(found.arrays["dnn/kernel"], ARRAYS["dnn/kernel"])
    assert found.arrays["n"] == 3


def test_names_are_read_without_arrays(folder: Path) -> None:
    state_file(folder).unlink()
    assert checkpoints.names(folder) == ("dnn/kernel", "n")
    entry = checkpoints.read_manifest(folder).arrays["dnn/kernel"]
    assert (entry.shape, entry.dtype) == ((6,), np.float32)


def test_one_array_is_read_by_name(folder: Path) -> None:
    assert checkpoints.read_array(folder, "n") == 3


def test_unknown_array_lists_its_neighbours(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="did you mean 'dnn/kernel'"):
        checkpoints.read_array(folder, "dnn/kernl")


def test_writing_again_replaces(folder: Path) -> None:
    checkpoints.write(folder, {"other": np.ones(1)}, 7)
    assert checkpoints.names(folder) == ("other",)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_cut_state_file_names_file_and_sizes(folder: Path) -> None:
    data = state_file(folder).read_bytes()
    state_file(folder).write_bytes(data[:-5])
    pattern = (
        rf"{state_file(folder)}: expected {len(data)} bytes, found {len(data) - 5}"
    )
    with pytest.raises(CheckpointError, match=pattern):
        checkpoints.read(folder)


def test_missing_state_file_is_named(folder: Path) -> None:
    state_file(folder).unlink()
    with pytest.raises(CheckpointError, match="safetensors is missing; expected"):
        checkpoints.read(folder)


def test_missing_checkpoint_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"there is no checkpoint .*nowhere"):
        checkpoints.read(tmp_path / "nowhere")


def test_missing_manifest_is_damage(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"manifest.json is missing"):
        checkpoints.read(folder)


def test_cut_manifest_is_damage(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"manifest.json is damaged"):
        checkpoints.read(folder)


def test_changed_input_position_is_found(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"offset": 17', '"offset": 18'))
    with pytest.raises(CheckpointError, match=r"manifest.json is damaged: expected"):
        checkpoints.read(folder)


def test_manifest_that_is_other_json_is_damage(folder: Path) -> None:
    for text in ("[]", "3", "{}", '{"crc32": "a"}', "[" * 100_000, "9" * 5000):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoints.read(folder)


@pytest.mark.parametrize("extra", [np.int64(3), {1: 2}, object(), [b"x"]])
def test_extra_must_be_json(tmp_path: Path, extra: object) -> None:
    with pytest.raises(CheckpointError, match="extra value must be JSON"):
        checkpoints.write(tmp_path / "c", ARRAYS, 1, extra)
    assert list(tmp_path.iterdir()) == []


def test_manifest_is_plain_json(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["step"] == 7
    assert manifest["version"] == 1
    assert manifest["files"][state_file(folder).name]["size"] == (
        state_file(folder).stat().st_size
    )


def test_several_empty_arrays_are_read(tmp_path):
    empty = {name: np.zeros(0, np.int32) for name in ("a", "b")}
    path = checkpoints.write(tmp_path / "model.ckpt-1", empty, 1)
    assert checkpoints.read(path).arrays.keys() == {"a", "b"}
