"""Checkpoints that TensorFlow wrote; see tensorflow/ORIGIN.md."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from estimax import checkpoints
from estimax.core.errors import CheckpointError

FOLDER = Path(__file__).parent / "tensorflow"


def read_all(path):
    source = checkpoints.open_source(path)
    return {name: source.read(name) for name in source.shapes}


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "values", "count"),
    [
        ("v2", "v2.json", 32),
        ("v1/model.ckpt-5", "v1.json", 23),
        ("partitioned", "partitioned.json", 3),
    ],
)
def test_every_array_of_a_checkpoint_is_read(name, values, count):
    source = checkpoints.open_source(FOLDER / name)
    expected = json.loads((FOLDER / values).read_text())["variables"]
    assert source.shapes.keys() == expected.keys()
    for variable, entry in expected.items():
        array = source.read(variable)
        assert list(array.shape) == entry["shape"]
        np.testing.assert_array_equal(
            array.astype(np.float64), np.array(entry["values"]), err_msg=variable
        )
    assert len(expected) == count


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        (
            "v2",
            {
                "accumulator": "training/Ftrl/linear/linear_model/word/weights/"
                "accumulator",
                "linear": "training/Ftrl/linear/linear_model/word/weights/linear",
            },
        ),
        (
            "v1",
            {
                "accumulator": "linear/linear_model/word/weights/Ftrl",
                "linear": "linear/linear_model/word/weights/Ftrl_1",
            },
        ),
    ],
)
def test_slots_are_found_under_the_names_of_both_generations(name, slots):
    source = checkpoints.open_source(FOLDER / name)
    variable = "linear/linear_model/word/weights"
    assert source.slots([variable, "dnn/logits/bias"])[variable] == slots


def test_the_variables_of_a_saved_model_are_a_source(tmp_path):
    folder = tmp_path / "1700000000" / "variables"
    folder.mkdir(parents=True)
    for path in (FOLDER / "v2").glob("model.ckpt-5.*"):
        shutil.copy(path, folder / path.name.replace("model.ckpt-5", "variables"))
    source = checkpoints.open_source(folder.parent)
    assert source.shapes["dnn/logits/kernel"] == (3, 1)


@pytest.mark.parametrize(
    ("file", "at", "words"),
    [
        ("model.ckpt-5.data-00000-of-00001", 0, "is damaged"),
        ("model.ckpt-5.index", 10, "is damaged"),
        ("model.ckpt-5.index", -1, "no TensorFlow checkpoint"),
    ],
)
def test_a_flipped_bit_is_noticed(tmp_path, file, at, words):
    shutil.copytree(FOLDER / "v2", tmp_path / "v2")
    path = tmp_path / "v2" / file
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_all(tmp_path / "v2")


def test_a_data_file_that_is_cut_or_missing_is_named(tmp_path):
    shutil.copytree(FOLDER / "v2", tmp_path / "v2")
    source = checkpoints.open_source(tmp_path / "v2")
    data = tmp_path / "v2" / "model.ckpt-5.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="cut short"):
        read_all(tmp_path / "v2")
    data.unlink()
    with pytest.raises(CheckpointError, match=r"data-00000-of-… is missing"):
        source.read("dnn/logits/kernel")
