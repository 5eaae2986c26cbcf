"""CRC-32C (Castagnoli), the checksum of TFRecord, TensorBoard and estimax files.

crc32c(b"123456789")      # 0xe3069283
masked_crc32c(b"")        # as TFRecord stores it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimax.native import loading, records
from estimax.native.reference import records as reference

Buffer = bytes | bytearray | memoryview | np.ndarray[Any, Any]

# Importing Numba takes about a second. NumPy computes the CRC of more than this in that
# time, so small data does not load the kernels.
_SMALL_BYTES = 1 << 16
# NumPy takes longer for this than the compiler for the kernels.
_LARGE_BYTES = 1 << 28


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of the bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    flat = np.frombuffer(data, np.uint8)
    if len(flat) <= _SMALL_BYTES and not loading.is_loaded("records"):
        return reference.crc32c(flat)
    kernels = records.record_kernels(waits=len(flat) > _LARGE_BYTES)
    return reference.crc32c(flat) if kernels is None else int(kernels.crc32c(flat))


def masked_crc32c(data: Buffer) -> int:
    """Return the CRC-32C as TFRecord stores it: rotated, plus a constant.

    The mask keeps the CRC of data that itself contains CRCs from being weak.

    >>> masked_crc32c(b"")
    2726488792
    """
    return reference.masked(crc32c(data))
