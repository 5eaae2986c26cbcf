import numpy as np

from estimax.native.kernels import records as kernels
from estimax.wire import crc32c


def test_the_check_value_of_the_polynomial():
    assert crc32c.plain(b"123456789") == 0xE3069283


def test_the_instruction_and_the_table_agree_at_every_length_and_alignment():
    data = np.random.default_rng(1).integers(0, 256, 4100, np.uint8)
    for start in range(9):
        for size in (*range(20), 255, 256, 257, 4091):
            part = data[start : start + size]
            assert kernels.crc32c(part) == kernels.crc32c_by_table(part)


def test_a_flipped_bit_changes_it():
    assert crc32c.masked(b"abc") != crc32c.masked(b"abb")
