"""CRC-32C (Castagnoli), as TFRecord and TensorBoard files carry it, masked."""

from __future__ import annotations

import numpy as np

from estimax.native import loading

Buffer = bytes | bytearray | memoryview


def plain(data: Buffer) -> int:
    """The checksum itself.

    >>> hex(plain(b"123456789"))
    '0xe3069283'
    """
    kernels = loading.load("estimax.native.kernels.records")
    return int(kernels.crc32c(np.frombuffer(data, np.uint8)))


def masked(data: Buffer) -> int:
    """The checksum as stored: a CRC of data that holds CRCs would be weak.

    >>> masked(b"")
    2726488792
    """
    crc = plain(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
