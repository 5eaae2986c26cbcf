"""Compiled loops over TFRecord files: CRC-32C, `unframe` and `frame`.

A TFRecord file is a sequence of frames. All numbers are little-endian:

    byte 0    uint64  length n of the data
    byte 8    uint32  masked CRC-32C of the 8 bytes of the length
    byte 12   n bytes of data
    byte 12+n uint32  masked CRC-32C of the data

So HEADER is 12 and FOOTER is 4. A masked CRC is rotated right by 15 bits and increased
by a constant, because the CRC of data that itself contains CRCs would be weak.

`native/records.py` and `native/checksum.py` check the arguments and call these.
"""

# Numba reads the types from the signatures, so annotations are left out.
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

# CRCs are kept in uint64, since Numba widens uint32 arithmetic to 64 bits anyway. _LOW
# is also the initial value of a CRC and the value that inverts its bits at the end.
_LOW = uint64(0xFFFFFFFF)
_MASK_DELTA = uint64(0xA282EAD8)
_LONGEST = uint64(LONGEST)


def _make_tables():
    """Return tables [8, 256]: the CRC of each byte with k zero bytes behind it."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        # Divide by Castagnoli's polynomial, bit by bit. Its bits are reversed, because
        # CRC-32C handles the lowest bit of every byte first.
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, byte] = crc
    # A further zero byte shifts the CRC by 8 bits and reduces the byte that falls out.
    for k in range(1, 8):
        before = tables[k - 1]
        tables[k] = tables[0][before & 0xFF] ^ (before >> np.uint32(8))
    return tables


_TABLES = _make_tables()


@njit
def _crc_by_table(data, start, n):
    """Return the CRC of n bytes, eight at a time ("slicing by 8")."""
    crc = _LOW
    at, end = start, start + n
    while at + 8 <= end:
        # A CRC is linear: the CRC of eight bytes is the XOR of the CRCs of each byte at
        # its distance from the end. The first byte is the lowest of the word and has
        # seven bytes behind it, hence table 7. The CRC so far acts as if it were XORed
        # into the next four bytes.
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
    """Continue a CRC over `data[at:end]` by instruction, and finish it."""
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
    """Return the CRCs of three records, on a processor without the instruction."""
    return (
        _crc_by_table(data, a, a_end - a),
        _crc_by_table(data, b, b_end - b),
        _crc_by_table(data, c, c_end - c),
    )


@njit
def _three_by_instruction(data, a, a_end, b, b_end, c, c_end):
    """Return the CRCs of three records, computed side by side.

    The CRC instruction has a latency of three cycles, but the processor can start one
    every cycle. A single chain of dependent steps leaves two of three cycles unused;
    three independent chains fill them.
    """
    crc_a = crc_b = crc_c = _LOW
    # Interleave up to the length of the shortest record, then finish each by itself.
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


# Chosen when the module is imported, so that compiled loops call one or the other
# directly. Numba's cache is keyed by the processor's features and stays correct.
_HAS_INSTRUCTION = has_crc_instruction()
_crc = _crc_by_instruction if _HAS_INSTRUCTION else _crc_by_table
_three_crcs = _three_by_instruction if _HAS_INSTRUCTION else _three_by_table


@njit
def _mask_crc(crc):
    """Return a CRC as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    # No mask after the shift to the left: `& _LOW` at the end drops the high bits.
    return (((crc >> uint64(15)) | (crc << uint64(17))) + _MASK_DELTA) & _LOW


@njit(types.uint32(_BYTES), cache=True, nogil=True)
def crc32c(data):
    """Return the CRC-32C of the bytes, by the processor's instruction if it has one."""
    return uint32(_crc(data, 0, len(data)))


@njit(types.uint32(_BYTES), cache=True, nogil=True)
def crc32c_by_table(data):
    """Return the CRC-32C of the bytes by table, which works on any processor."""
    return uint32(_crc_by_table(data, 0, len(data)))


@njit(forceinline=True)
def _frame_start(offsets, i):
    """Return where frame i begins in the buffer, before records are moved together.

    `offsets` holds where records will be after the move. Frame i still has the headers
    and footers of the i frames before it in front of it.
    """
    return offsets[i] + (HEADER + FOOTER) * i


@njit(forceinline=True)
def _is_intact(buffer, end, crc):
    """Return whether the record that ends at `end` has this CRC stored behind it."""
    return _mask_crc(crc) == load32(buffer, end)


@njit
def _count_intact(buffer, offsets, count):
    """Return how many records come before the first whose data CRC is wrong."""
    i = 0
    # Three records at a time, see `_three_by_instruction`; the last one or two alone.
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

    Record i becomes `buffer[offsets[i]:offsets[i + 1]]`; `offsets` has `most + 1`
    items. Returns (count, at, status): the number of records, where the next frame
    begins, and whether that frame is incomplete (NEEDS_MORE) or how it is broken. If
    fewer than `least` complete records are found, nothing is moved and the count is 0.

    There are three passes: read all lengths, check all data, move the records. Nothing
    is moved before the count is known to reach `least`: after a count of 0 the caller
    reads more of the file behind `size` and calls again with the same `start`.
    """
    count, at, status = 0, start, NEEDS_MORE
    offsets[0] = start
    # Pass 1. `at` walks over the frames; `offsets` collects where records will be.
    while count < most and at + HEADER <= size:
        length = load64(buffer, at)
        # The length is used as a distance below, so its own CRC is checked first.
        if check and _mask_crc(_crc(buffer, at, 8)) != load32(buffer, at + 8):
            status = BAD_LENGTH_CRC
            break
        # Without a check of CRCs, a damaged length must not overflow the sums below.
        if length > _LONGEST:
            status = ABSURD_LENGTH
            break
        n = np.int64(length)
        if n + FOOTER > size - at - HEADER:
            break  # the frame goes on behind what has been read: NEEDS_MORE
        offsets[count + 1] = offsets[count] + n
        count += 1
        at += HEADER + n + FOOTER
    if count < least and status == NEEDS_MORE:
        return 0, start, status
    # Pass 2. A damaged record ends the batch; the records before it are returned.
    if check:
        good = _count_intact(buffer, offsets, count)
        if good < count:
            count, at, status = good, _frame_start(offsets, good), BAD_DATA_CRC
    # Pass 3. Records only move to lower places, so going upwards never overwrites a
    # record that has not been moved yet.
    for i in range(count):
        begin = _frame_start(offsets, i) + HEADER
        move(buffer, offsets[i], buffer, begin, offsets[i + 1] - offsets[i])
    return count, at, status


@njit(types.int64(_BYTES, _INT64, _OUT_BYTES), cache=True, nogil=True)
def frame(data, offsets, out):
    """Write every record as a frame; the opposite of `unframe`.

    Returns -1, or the number of a record that is not within the data. `out` has
    exactly the size of all frames.
    """
    to = 0
    # All offsets are checked before the first write: `out` was allocated for the sum of
    # the lengths, which is only right if the offsets increase.
    for i in range(len(offsets) - 1):
        if offsets[i] < 0 or offsets[i + 1] < offsets[i] or offsets[i + 1] > len(data):
            return i
    for i in range(len(offsets) - 1):
        start, n = offsets[i], offsets[i + 1] - offsets[i]
        store64(out, to, uint64(n))
        store32(out, to + 8, _mask_crc(_crc(out, to, 8)))
        move(out, to + HEADER, data, start, n)
        store32(out, to + HEADER + n, _mask_crc(_crc(data, start, n)))
        to += HEADER + n + FOOTER
    return -1
