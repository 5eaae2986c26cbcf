"""Compiled loops over framed records: checksums, finding records, framing them.

Called only by `native/records.py` and `native/checksum.py`, which check the arguments.
"""

# Numba has its own types, in the signatures; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import numpy as np
from numba import njit, types
from numpy import uint32, uint64

from estimax.native.kernels.memory import (
    crc_step8,
    crc_step64,
    has_crc_instruction,
    load8,
    load32,
    load64,
    move,
    store32,
    store64,
)
from estimax.native.reference.records import (
    ABSURD_LENGTH,
    BAD_DATA_CRC,
    BAD_LENGTH_CRC,
    FOOTER,
    HEADER,
    LONGEST,
    NEEDS_MORE,
)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_OUT_BYTES = types.Array(types.uint8, 1, "C")
_OUT_INT64 = types.Array(types.int64, 1, "C")

_LOW = uint64(0xFFFFFFFF)
_MASK_DELTA = uint64(0xA282EAD8)
_LONGEST = uint64(LONGEST)


def _make_tables():
    """Table k says what a byte does to the CRC when k zero bytes follow it."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        before = tables[k - 1]
        tables[k] = tables[0][before & 0xFF] ^ (before >> np.uint32(8))
    return tables


_TABLES = _make_tables()


@njit
def _crc_by_table(data, start, n):
    crc = _LOW
    at, end = start, start + n
    while at + 8 <= end:
        word = load64(data, at) ^ crc
        crc = uint64(
            _TABLES[7, word & uint64(0xFF)]
            ^ _TABLES[6, (word >> uint64(8)) & uint64(0xFF)]
            ^ _TABLES[5, (word >> uint64(16)) & uint64(0xFF)]
            ^ _TABLES[4, (word >> uint64(24)) & uint64(0xFF)]
            ^ _TABLES[3, (word >> uint64(32)) & uint64(0xFF)]
            ^ _TABLES[2, (word >> uint64(40)) & uint64(0xFF)]
            ^ _TABLES[1, (word >> uint64(48)) & uint64(0xFF)]
            ^ _TABLES[0, word >> uint64(56)]
        )
        at += 8
    while at < end:
        low = (crc ^ load8(data, at)) & uint64(0xFF)
        crc = (crc >> uint64(8)) ^ uint64(_TABLES[0, low])
        at += 1
    return crc ^ _LOW


@njit(forceinline=True)
def _crc_onwards(crc, data, at, end):
    while at + 8 <= end:
        crc = crc_step64(crc, load64(data, at))
        at += 8
    while at < end:
        crc = crc_step8(crc, load8(data, at))
        at += 1
    return crc ^ _LOW


@njit
def _crc_by_instruction(data, start, n):
    return _crc_onwards(_LOW, data, start, start + n)


@njit
def _three_by_table(data, a, a_end, b, b_end, c, c_end):
    return (
        _crc_by_table(data, a, a_end - a),
        _crc_by_table(data, b, b_end - b),
        _crc_by_table(data, c, c_end - c),
    )


@njit
def _three_by_instruction(data, a, a_end, b, b_end, c, c_end):
    """Three checksums side by side: each step waits three cycles for the one before."""
    crc_a = crc_b = crc_c = _LOW
    n = min(a_end - a, b_end - b, c_end - c)
    while n >= 8:
        crc_a = crc_step64(crc_a, load64(data, a))
        crc_b = crc_step64(crc_b, load64(data, b))
        crc_c = crc_step64(crc_c, load64(data, c))
        a, b, c, n = a + 8, b + 8, c + 8, n - 8
    return (
        _crc_onwards(crc_a, data, a, a_end),
        _crc_onwards(crc_b, data, b, b_end),
        _crc_onwards(crc_c, data, c, c_end),
    )


_HAS_INSTRUCTION = has_crc_instruction()
_crc = _crc_by_instruction if _HAS_INSTRUCTION else _crc_by_table
_three_crcs = _three_by_instruction if _HAS_INSTRUCTION else _three_by_table


@njit
def _masked(crc):
    return (((crc >> uint64(15)) | (crc << uint64(17))) + _MASK_DELTA) & _LOW


@njit(types.uint32(_BYTES), cache=True, nogil=True)
def crc32c(data):
    """CRC-32C of the bytes, by the processor's instruction where it has one."""
    return uint32(_crc(data, 0, len(data)))


@njit(types.uint32(_BYTES), cache=True, nogil=True)
def crc32c_by_table(data):
    """CRC-32C of the bytes, on any processor."""
    return uint32(_crc_by_table(data, 0, len(data)))


@njit(forceinline=True)
def _frame_start(offsets, i):
    """Where frame i begins, before the records are moved together."""
    return offsets[i] + (HEADER + FOOTER) * i


@njit(forceinline=True)
def _is_intact(buffer, end, crc):
    return _masked(crc) == load32(buffer, end)


@njit
def _count_intact(buffer, offsets, count):
    """How many records come before the first whose checksum is wrong."""
    i = 0
    while i + 3 <= count:
        a = _frame_start(offsets, i) + HEADER
        b = _frame_start(offsets, i + 1) + HEADER
        c = _frame_start(offsets, i + 2) + HEADER
        a_end, b_end = b - HEADER - FOOTER, c - HEADER - FOOTER
        c_end = _frame_start(offsets, i + 3) - FOOTER
        crcs = _three_crcs(buffer, a, a_end, b, b_end, c, c_end)
        for k, end in enumerate((a_end, b_end, c_end)):
            if not _is_intact(buffer, end, crcs[k]):
                return i + k
        i += 3
    while i < count:
        start = _frame_start(offsets, i) + HEADER
        end = _frame_start(offsets, i + 1) - FOOTER
        if not _is_intact(buffer, end, _crc(buffer, start, end - start)):
            return i
        i += 1
    return count


@njit(
    types.UniTuple(types.int64, 3)(
        *(_OUT_BYTES, types.int64, types.int64, types.boolean),
        *(types.int64, types.int64, _OUT_INT64),
    ),
    cache=True,
    nogil=True,
)
def unframe(buffer, start, size, check, least, most, offsets):
    """Find up to `most` records in `buffer[start:size]` and move them together there.

    Record i becomes `buffer[offsets[i]:offsets[i + 1]]`; `offsets` has room for one
    more than `most`. Returns how many there are, where the next begins, and whether
    that is incomplete or broken. Fewer than `least` intact ones are left as they are:
    the count is then 0.
    """
    count, at, status = 0, start, NEEDS_MORE
    offsets[0] = start
    while count < most and at + HEADER <= size:
        length = load64(buffer, at)
        if check and _masked(_crc(buffer, at, 8)) != load32(buffer, at + 8):
            status = BAD_LENGTH_CRC
            break
        if length > _LONGEST:
            status = ABSURD_LENGTH
            break
        n = np.int64(length)
        if n + FOOTER > size - at - HEADER:
            break
        offsets[count + 1] = offsets[count] + n
        count += 1
        at += HEADER + n + FOOTER
    if count < least and status == NEEDS_MORE:
        return 0, start, status
    if check:
        good = _count_intact(buffer, offsets, count)
        if good < count:
            count, at, status = good, _frame_start(offsets, good), BAD_DATA_CRC
    for i in range(count):
        begin = _frame_start(offsets, i) + HEADER
        move(buffer, offsets[i], buffer, begin, offsets[i + 1] - offsets[i])
    return count, at, status


@njit(types.int64(_BYTES, _INT64, _OUT_BYTES), cache=True, nogil=True)
def frame(data, offsets, out):
    """Write every record with its length and checksums; the opposite of `unframe`.

    The place of a record that is not within the data, or -1.
    """
    to = 0
    for i in range(len(offsets) - 1):
        if offsets[i] < 0 or offsets[i + 1] < offsets[i] or offsets[i + 1] > len(data):
            return i
    for i in range(len(offsets) - 1):
        start, n = offsets[i], offsets[i + 1] - offsets[i]
        store64(out, to, uint64(n))
        store32(out, to + 8, _masked(_crc(out, to, 8)))
        move(out, to + HEADER, data, start, n)
        store32(out, to + HEADER + n, _masked(_crc(data, start, n)))
        to += HEADER + n + FOOTER
    return -1
