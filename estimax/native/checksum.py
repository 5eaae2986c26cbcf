"""CRC-32C (Castagnoli), as TFRecord, TensorBoard and our own files carry it.

crc32c(b"123456789")      # 0xe3069283
masked_crc32c(b"")        # as records store it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimax.native import loading, records
from estimax.native.reference.records import crc32c as _by_numpy
from estimax.native.reference.records import masked

Buffer = bytes | bytearray | memoryview | np.ndarray[Any, Any]

# Loading Numba takes a second, in which NumPy does more than this.
_SMALL_BYTES = 1 << 16


def crc32c(data: Buffer) -> int:
    """Return the checksum of the bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    flat = np.frombuffer(data, np.uint8)
    if len(flat) <= _SMALL_BYTES and not loading.is_loaded("records"):
        return _by_numpy(flat)
    return records.crc32c(flat)


def masked_crc32c(data: Buffer) -> int:
    """Return the checksum as stored: a CRC of data that holds CRCs would be weak.

    >>> masked_crc32c(b"")
    2726488792
    """
    return masked(crc32c(data))
