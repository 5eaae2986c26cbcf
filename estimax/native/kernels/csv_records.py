"""Compiled loops that cut CSV records into fields and convert numbers.

`decode` reads every record once. `text_offsets` and `copy_text` then gather the fields
of one text column. Whatever is unusual (a quote inside a field, a plus sign, "nan", a
wrong number of fields) makes `decode` return the row, and `native/csv_records.py` lets
the caller parse the whole batch in another way, which also writes the error messages.

Numbers with a fraction are rounded correctly. A mantissa below 2**53 and a power of ten
up to 22 are both exact in float64, so one multiplication or division rounds once. A
float32 that comes from more digits is used if its float64 is not near the middle of two
float32; the other numbers are marked `SLOW` and converted in Python.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import numpy as np
from numba import njit, types
from numpy import float32, float64, int64, uint64

from estimax.native.kernels.memory import address, load64
from estimax.native.reference.csv_records import (
    DEFAULT,
    FLOAT32,
    FLOAT64,
    INT32,
    KIND,
    PLAIN,
    QUOTES,
    REQUIRED,
    SLOT,
    SLOW,
    TEXT,
)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
_FLOAT64 = types.Array(types.float64, 1, "C", readonly=True)
_OUT_BYTES = types.Array(types.uint8, 1, "C")
_OUT_BYTES_2D = types.Array(types.uint8, 2, "C")
_OUT_INT64 = types.Array(types.int64, 1, "C")
_OUT_INT64_2D = types.Array(types.int64, 2, "C")
_OUT_FLOAT64_2D = types.Array(types.float64, 2, "C")

_LF, _CR, _BLANK, _TAB = 0x0A, 0x0D, 0x20, 0x09
_MINUS, _PLUS, _POINT, _ZERO, _LOWER_E = 0x2D, 0x2B, 0x2E, 0x30, 0x65
_MOST_EXPONENT = 22  # the highest power of ten that a float64 holds exactly
_POWERS = np.array([10.0**i for i in range(_MOST_EXPONENT + 1)])
_EXACT = 1 << 53  # integers up to here are exact in float64
_BAD = -1


@njit(forceinline=True)
def _trim(data, start, end):
    """Return the span without blanks and tabs at both ends."""
    while start < end and (data[start] == _BLANK or data[start] == _TAB):
        start += 1
    while start < end and (data[end - 1] == _BLANK or data[end - 1] == _TAB):
        end -= 1
    return start, end


@njit
def _integer(data, start, end, most):
    """Return (state, value) of decimal digits after an optional minus."""
    start, end = _trim(data, start, end)
    negative = start < end and data[start] == _MINUS
    start += negative
    # Up to 18 digits cannot overflow. Longer ones are rare and left to the caller.
    if start == end or end - start > 18:
        return _BAD, int64(0)
    value = int64(0)
    for i in range(start, end):
        digit = int64(data[i]) - _ZERO
        if digit < 0 or digit > 9:
            return _BAD, int64(0)
        value = 10 * value + digit
    value = -value if negative else value
    if value > most or value < -most - 1:
        return _BAD, int64(0)
    return PLAIN, value


@njit
def _decimal(data, start, end):
    """Return (state, negative, mantissa, power of ten); digits beyond 19 are cut."""
    start, end = _trim(data, start, end)
    negative = start < end and data[start] == _MINUS
    start += negative
    mantissa, power, digits = uint64(0), int64(0), int64(0)
    has_point, cut, i = False, False, start
    while i < end:
        byte = int64(data[i])
        if byte == _POINT and not has_point:
            has_point = True
        elif _ZERO <= byte <= _ZERO + 9:
            digits += 1
            if mantissa < uint64(10**18):
                mantissa = uint64(10) * mantissa + uint64(byte - _ZERO)
                power -= has_point
            else:
                cut = True
                power += not has_point
        else:
            break
        i += 1
    if not digits:
        return _BAD, negative, mantissa, power
    if i < end:
        if int64(data[i]) | 0x20 != _LOWER_E:
            return _BAD, negative, mantissa, power
        i += 1
        sign = int64(1)
        if i < end and (data[i] == _MINUS or data[i] == _PLUS):
            sign = int64(-1) if data[i] == _MINUS else int64(1)
            i += 1
        if i == end or end - i > 3:
            return _BAD, negative, mantissa, power
        exponent = int64(0)
        for k in range(i, end):
            digit = int64(data[k]) - _ZERO
            if digit < 0 or digit > 9:
                return _BAD, negative, mantissa, power
            exponent = 10 * exponent + digit
        power += sign * exponent
    return (SLOW if cut else PLAIN), negative, mantissa, power


@njit
def _scale_mantissa(mantissa, power):
    """Return mantissa * 10**power for a power that the table has."""
    if power < 0:
        return float64(mantissa) / _POWERS[-power]
    return float64(mantissa) * _POWERS[power]


@njit
def _number(data, start, end, kind, out, place):
    """Write a float to `out[place]`; return its state."""
    state, negative, mantissa, power = _decimal(data, start, end)
    if state == _BAD:
        return _BAD
    if mantissa == uint64(0) and state == PLAIN:
        out[place] = -0.0 if negative else 0.0
        return PLAIN
    if power < -_MOST_EXPONENT or power > _MOST_EXPONENT:
        return SLOW
    exact = state == PLAIN and mantissa <= uint64(_EXACT)
    if kind == FLOAT64 and not exact:
        return SLOW
    value = _scale_mantissa(mantissa, power)
    out[place] = -value if negative else value
    if kind == FLOAT32:
        # The 29 bits that a float32 drops. Rounding twice goes wrong only if they are
        # the middle of two float32; inexact products are off by less than 4 units.
        low = int64(load64(address(out), 8 * place) & uint64((1 << 29) - 1))
        near = abs(low - (1 << 28)) <= (0 if exact else 8)
        if near or value >= 3.4e38 or value < 1.2e-38:
            return SLOW
        out[place] = float64(float32(out[place]))
    return PLAIN


@njit
def _is_missing(data, start, end, na):
    """Return whether a field is empty or equal to `na`."""
    if start == end:
        return True
    if end - start != len(na):
        return False
    k = 0
    while k < len(na) and data[start + k] == na[k]:
        k += 1
    return k == len(na)


@njit(
    types.int64(
        _BYTES,
        _INT64,
        types.int64,
        types.int64,
        _BYTES,
        _INT64,
        _INT64_2D,
        _INT64,
        _FLOAT64,
        _OUT_INT64_2D,
        _OUT_FLOAT64_2D,
        _OUT_INT64_2D,
        _OUT_INT64_2D,
        _OUT_BYTES_2D,
    ),
    cache=True,
    nogil=True,
)
def decode(
    data,
    offsets,
    delimiter,
    quote,
    na,
    places,
    fields,
    int_defaults,
    float_defaults,
    ints,
    floats,
    starts,
    ends,
    states,
):
    """Decode all records; return -1, or the first row that is not plain.

    `places` is the number in `fields` of every field of a record, or -1. A row of
    `fields` has the columns KIND, REQUIRED and SLOT; the slot is the row of `ints` or
    `floats` that takes the values. `quote` is -1 if quotes are ordinary characters.
    """
    flat = floats.reshape(floats.size)
    for row in range(len(offsets) - 1):
        at, stop = offsets[row], offsets[row + 1]
        if at < 0 or stop <= at or stop > len(data):
            return row  # also an empty record
        number = 0
        while True:
            if number == len(places):
                return row  # too many fields
            state = PLAIN
            if at < stop and data[at] == quote:
                at += 1
                start = at
                while at < stop and (
                    data[at] != quote or (at + 1 < stop and data[at + 1] == quote)
                ):
                    if data[at] == quote:
                        state = QUOTES
                        at += 1
                    at += 1
                if at >= stop:
                    return row  # an open quote
                end = at
                at += 1
                if at < stop and data[at] != delimiter:
                    return row  # text behind the closing quote
            else:
                start = at
                while at < stop and data[at] != delimiter:
                    if data[at] == quote or data[at] == _LF or data[at] == _CR:
                        return row
                    at += 1
                end = at
            f = places[number]
            if f >= 0:
                kind, slot = fields[f, KIND], fields[f, SLOT]
                if _is_missing(data, start, end, na):
                    if fields[f, REQUIRED]:
                        return row
                    state = DEFAULT
                    if kind >= FLOAT32:
                        floats[slot, row] = float_defaults[f]
                    elif kind != TEXT:
                        ints[slot, row] = int_defaults[f]
                elif kind != TEXT:
                    if state == QUOTES:
                        return row
                    if kind >= FLOAT32:
                        place = slot * floats.shape[1] + row
                        state = _number(data, start, end, kind, flat, place)
                    else:
                        most = 2**31 - 1 if kind == INT32 else 2**63 - 1
                        state, value = _integer(data, start, end, int64(most))
                        ints[slot, row] = value
                    if state == _BAD:
                        return row
                starts[f, row], ends[f, row], states[f, row] = start, end, state
            number += 1
            if at == stop:
                break
            at += 1  # the delimiter; another field follows, even if it is empty
        if number < len(places):
            return row
    return -1


@njit(
    types.int64(_BYTES, types.int64, types.int64, _INT64, _INT64, _BYTES, _OUT_INT64),
    cache=True,
    nogil=True,
)
def text_offsets(data, quote, default_size, starts, ends, states, out):
    """Write where each text of a column begins; return the total number of bytes."""
    total = 0
    out[0] = 0
    for row in range(len(starts)):
        if states[row] == DEFAULT:
            total += default_size
        else:
            total += ends[row] - starts[row]
            if states[row] == QUOTES:
                k = starts[row]
                while k < ends[row]:
                    if data[k] == quote:  # the first of two
                        total -= 1
                        k += 1
                    k += 1
        out[row + 1] = total
    return total


@njit(
    types.void(_BYTES, types.int64, _BYTES, _INT64, _INT64, _BYTES, _OUT_BYTES),
    cache=True,
    nogil=True,
)
def copy_text(data, quote, default, starts, ends, states, out):
    """Copy the texts of a column one behind the other; doubled quotes become one."""
    to = 0
    for row in range(len(starts)):
        if states[row] == DEFAULT:
            for k in range(len(default)):
                out[to] = default[k]
                to += 1
            continue
        k = starts[row]
        while k < ends[row]:
            out[to] = data[k]
            to += 1
            k += 2 if states[row] == QUOTES and data[k] == quote else 1
