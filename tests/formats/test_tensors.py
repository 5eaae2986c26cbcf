from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as library

from estimax.core.errors import CheckpointError
from estimax.formats import tensors

DTYPES = [
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    np.int64,
    np.int32,
    np.int8,
    np.uint32,
    np.uint8,
    np.bool_,
    np.complex64,
]


def example() -> dict[str, Any]:
    arrays = {
        f"a/{np.dtype(d).name}": np.array([[0, 1], [1, 0]]).astype(d) for d in DTYPES
    }
    return {**arrays, "scalar": np.int32(7)[...], "empty": np.zeros((0, 3))}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def test_every_dtype_comes_back_as_it_was(tmp_path: Path) -> None:
    layout = tensors.write(tmp_path / "x", example())
    found = tensors.read_all(tmp_path / "x", layout.entries, layout.crc)
    assert_same(found, example())


def test_library_reads_what_we_write(tmp_path: Path) -> None:
    arrays = {n: a for n, a in example().items() if "float8" not in n}  # not for NumPy
    tensors.write(tmp_path / "x", arrays)
    assert_same(library.load_file(tmp_path / "x"), arrays)


def test_one_array_is_read_alone(tmp_path: Path) -> None:
    layout = tensors.write(tmp_path / "x", example())
    name = "a/bfloat16"
    found = tensors.read(tmp_path / "x", layout.entries[name], name)
    assert_same({name: found}, {name: example()[name]})


def test_arrays_read_are_writable(tmp_path: Path) -> None:
    layout = tensors.write(tmp_path / "x", {"a": np.zeros(3)})
    assert tensors.read(tmp_path / "x", layout.entries["a"], "a").flags.writeable


def test_strided_array_is_stored_by_its_values(tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(3, 4).T[::2]
    layout = tensors.write(tmp_path / "x", {"a": array})
    found = tensors.read(tmp_path / "x", layout.entries["a"], "a")
    np.testing.assert_array_equal(found, array)


def test_no_arrays_are_a_file_too(tmp_path: Path) -> None:
    layout = tensors.write(tmp_path / "x", {})
    assert tensors.read_all(tmp_path / "x", layout.entries, layout.crc) == {}


def test_dtype_without_a_code_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'words' has dtype <U1"):
        tensors.write(tmp_path / "x", {"words": np.array(["a"])})


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_any_flipped_bit_is_found(tmp_path: Path, place: int) -> None:
    path = tmp_path / "x"
    layout = tensors.write(path, {"a": np.arange(5.0), "b": np.ones(2, np.int8)})
    data = bytearray(path.read_bytes())
    data[place * len(data) // 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"damaged: expected checksum .* found"):
        tensors.read_all(path, layout.entries, layout.crc)


def test_damage_names_the_array(tmp_path: Path) -> None:
    path = tmp_path / "x"
    layout = tensors.write(path, {"a": np.arange(5.0), "b": np.ones(2, np.int8)})
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    tensors.read(path, layout.entries["a"], "a")
    with pytest.raises(CheckpointError, match="array 'b' is damaged"):
        tensors.read(path, layout.entries["b"], "b")


def test_cut_file_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    layout = tensors.write(path, {"a": np.arange(5.0)})
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match=r"'a' should have 40 bytes .* found 37"):
        tensors.read_all(path, layout.entries, layout.crc)


def test_a_mapped_file_has_the_same_arrays(tmp_path: Path) -> None:
    tensors.write(tmp_path / "file", example())
    mapped = tensors.map_file(tmp_path / "file")
    assert mapped.keys() == example().keys()
    for name, array in example().items():
        np.testing.assert_array_equal(mapped[name], array)
        assert mapped[name].dtype == array.dtype
        assert not mapped[name].flags.writeable


def test_tables_are_aligned_so_that_devices_use_the_file_itself(tmp_path: Path) -> None:
    arrays = {"a": np.ones(3), "b": np.ones((100, 16), np.float32), "c": np.ones(8)}
    tensors.write(tmp_path / "file", arrays)
    mapped = tensors.map_file(tmp_path / "file")
    assert all(mapped[n].ctypes.data % tensors.ALIGNMENT == 0 for n in ("b", "c"))


@pytest.mark.parametrize("data", [b"\xff" * 16, b"\x02" + b"\0" * 7 + b"[]"])
def test_a_mapped_file_of_another_kind_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises((ValueError, AttributeError)):
        tensors.map_file(tmp_path / "file")
