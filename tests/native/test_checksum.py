import numpy as np
import pytest

from estimax.native import checksum
from estimax.native.kernels import records as kernels
from estimax.native.reference import records as reference


@pytest.mark.parametrize("native", ["wait", "off"])
def test_the_check_value_of_the_polynomial(native, monkeypatch):
    monkeypatch.setattr("estimax.native.loading.setting", native)
    assert checksum.crc32c(b"123456789") == 0xE3069283
    monkeypatch.setattr(checksum, "_SMALL_BYTES", 0)  # also by the kernels
    assert checksum.crc32c(b"123456789") == 0xE3069283


def test_instruction_table_and_numpy_agree_at_every_length_and_alignment():
    data = np.random.default_rng(1).integers(0, 256, 4100, np.uint8)
    for start in range(9):
        for size in (*range(20), 255, 256, 257, 4091):
            part = data[start : start + size]
            expected = reference.crc32c(part)
            assert kernels.crc32c(part) == expected
            assert kernels.crc32c_by_table(part) == expected


def test_a_flipped_bit_changes_it():
    assert checksum.masked_crc32c(b"abc") != checksum.masked_crc32c(b"abb")
