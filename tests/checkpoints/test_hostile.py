"""Checkpoints that somebody changed on purpose, checksums included: all are damage."""

import copy
import json
import os
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimax import checkpoints
from estimax.core.errors import CheckpointError

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
STATE = "state-00000-of-00001.safetensors"
Record = dict[str, Any]


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """Two checkpoints; the tests change the later one."""
    for step in (1, 2):
        path = checkpoints.path_of(tmp_path / "run", step)
        checkpoints.write(path, {"kernel": KERNEL * step, "n": np.array(3)}, step)
    return tmp_path / "run"


def forge(model_dir: Path, change: Callable[[Record], None]) -> Path:
    """Change the manifest of step 2 and make its checksum fit again."""
    folder = checkpoints.path_of(model_dir, 2)
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    del record["crc32"]
    change(record)
    compact = json.dumps(record, sort_keys=True, separators=(",", ":"))
    record["crc32"] = zlib.crc32(compact.encode())
    path.write_text(json.dumps(record))
    return folder


def check_refused(model_dir: Path, match: str = r".") -> None:
    """Every way of reading refuses step 2; step 1 takes its place."""
    folder = checkpoints.path_of(model_dir, 2)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=match):
        checkpoints.read(folder)
    with pytest.raises(CheckpointError, match=match):
        checkpoints.read_array(folder, "kernel")
    restored = checkpoints.restore_latest(model_dir)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
    assert restored is not None
    assert restored.step == 1
    np.testing.assert_array_equal(restored.arrays["kernel"], KERNEL)
    assert checkpoints.latest(model_dir) == checkpoints.path_of(model_dir, 1)


def setting(*path: str, to: Any) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = to

    return change


SHAPES = [[2**40, 3], [-2, -3], ["2", 3], [2.0, 3], "ab", None, 6, [[2], 3], [6, 0]]


@pytest.mark.parametrize("shape", [*SHAPES, [2**62, 2**62, 0], [True, 6], [1] * 70])
def test_shapes(model_dir: Path, shape: Any) -> None:
    forge(model_dir, setting("arrays", "kernel", "shape", to=shape))
    check_refused(model_dir, "manifest.json is damaged")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offset", -8),
        ("offset", 2**62),
        ("offset", "8"),
        ("size", 2**62),
        ("size", 23),
        ("size", None),
        ("dtype", "float128"),
        ("dtype", "a" * 100_000),
        ("dtype", ["float32"]),
        ("dtype", 3),
        ("crc_before", "x"),
        ("crc_before", 2**40),
        ("crc_after", 0),
        ("file", "other.safetensors"),
        ("file", 7),
        ("file", ["a"]),
    ],
)
def test_places_of_arrays(model_dir: Path, field: str, value: Any) -> None:
    forge(model_dir, setting("arrays", "kernel", field, to=value))
    check_refused(model_dir, "manifest.json is damaged: .{,200}$")


@pytest.mark.parametrize("field", ["step", "written_at", "version", "files", "arrays"])
@pytest.mark.parametrize("value", ["2", None, [], -1, 2**70, {"a": 1}, True])
def test_wrong_types_in_every_field(model_dir: Path, field: str, value: Any) -> None:
    forge(model_dir, setting(field, to=value))
    check_refused(model_dir)


@pytest.mark.parametrize("field", ["step", "files", "arrays", "extra", "version"])
def test_missing_fields(model_dir: Path, field: str) -> None:
    forge(model_dir, lambda record: record.pop(field))
    check_refused(model_dir)


@pytest.mark.parametrize("value", [[1], "input", 3])
def test_an_extra_value_that_no_training_saved(model_dir: Path, value: Any) -> None:
    forge(model_dir, setting("extra", to=value))
    restored = checkpoints.restore_latest(model_dir)
    assert restored is not None
    assert restored.step == 1


@pytest.mark.parametrize("entry", [{"size": "a", "crc32": 1}, {}, 3, None, {"size": 1}])
def test_files_of_other_types(model_dir: Path, entry: Any) -> None:
    forge(model_dir, setting("files", STATE, to=entry))
    check_refused(model_dir)


@pytest.mark.parametrize("kind", ["above", "absolute", "link", "pipe", "manifest"])
def test_files_elsewhere(model_dir: Path, kind: str) -> None:
    folder = checkpoints.path_of(model_dir, 2)
    secret = model_dir.parent / "secret.bin"
    (folder / STATE).rename(secret)
    name = {"above": "../../secret.bin", "absolute": str(secret)}.get(kind, STATE)
    if kind == "link":
        (folder / STATE).symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(folder / STATE)
    elif kind == "manifest":
        name = "manifest.json"

    def rename(record: Record) -> None:
        record["files"][name] = record["files"].pop(STATE)
        for array in record["arrays"].values():
            array["file"] = name

    forge(model_dir, rename)
    check_refused(model_dir)


def test_many_arrays_over_the_same_bytes(model_dir: Path) -> None:
    def repeat(record: Record) -> None:
        for i in range(1000):
            record["arrays"][f"copy {i}"] = copy.copy(record["arrays"]["kernel"])

    forge(model_dir, repeat)
    check_refused(model_dir, "manifest.json is damaged")


def test_a_header_length_beyond_the_file(model_dir: Path) -> None:
    folder = checkpoints.path_of(model_dir, 2)
    data = bytearray((folder / STATE).read_bytes())
    data[:8] = (2**60).to_bytes(8, "little")
    (folder / STATE).write_bytes(data)

    def fit_checksums(record: Record) -> None:
        crc, start = 0, 0
        for array in record["arrays"].values():
            crc = zlib.crc32(data[start : array["offset"]], crc)
            start = array["offset"] + array["size"]
            array["crc_before"] = crc
            crc = array["crc_after"] = zlib.crc32(data[array["offset"] : start], crc)
        record["files"][STATE]["crc32"] = crc

    forge(model_dir, fit_checksums)
    with pytest.raises(CheckpointError, match="header"):
        checkpoints.read(folder)
    restored = checkpoints.restore_latest(model_dir)
    assert restored is not None
    assert restored.step == 1


@pytest.mark.parametrize("levels", [150, 100_000])
def test_deep_json(model_dir: Path, levels: int) -> None:
    path = checkpoints.path_of(model_dir, 2) / "manifest.json"
    deep = "[" * levels + "]" * levels
    path.write_text(path.read_text().replace('"extra": null', f'"extra": {deep}'))
    check_refused(model_dir, "nested deeper than 100 levels")


def test_a_key_that_is_there_twice(model_dir: Path) -> None:
    path = checkpoints.path_of(model_dir, 2) / "manifest.json"
    path.write_text(path.read_text().replace('"step": 2', '"step": 2, "step": 2'))
    check_refused(model_dir, "'step' is repeated")


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    deep: Any = None
    for _ in range(101):
        deep = {"source": deep}
    with pytest.raises(CheckpointError, match="nested deeper than 100 levels"):
        checkpoints.write(tmp_path / "c", {"n": np.array(3)}, 1, deep)
