"""Single Example and SequenceExample messages, in Python: for tools, tests and servers.

    encode_example({"age": ("float_list", [31.0])})       # bytes; keys sorted, packed
    decode_example(data)                                  # the same dict again

A feature is a pair (kind, values); kind is bytes_list, float_list, int64_list, or None
for one that has none. Batches go through the compiled kernels instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from estimax.core.errors import InputError

KINDS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}
_NAMES = {number: name for name, number in KINDS.items()}
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5

FeatureParts = tuple[str | None, Sequence[Any]]  # bytes, floats or ints by kind


def encode_example(features: Mapping[str, FeatureParts]) -> bytes:
    """The canonical bytes of an Example.

    >>> encode_example({"a": ("float_list", [1.0])}).hex()
    '0a0f0a0d0a0161120812060a040000803f'
    """
    return _field(1, _features(features))


def encode_sequence_example(
    context: Mapping[str, FeatureParts],
    feature_lists: Mapping[str, Sequence[FeatureParts]],
) -> bytes:
    """The canonical bytes of a SequenceExample; a list has a feature for each step."""
    lists = b""
    for key, steps in _sorted(feature_lists):
        value = b"".join(_field(1, _feature(step)) for step in steps)
        lists += _field(1, _field(1, key) + _field(2, value))
    return _field(1, _features(context)) + _field(2, lists)


def decode_example(data: bytes) -> dict[str, FeatureParts]:
    """The features of an Example, or of a SequenceExample's context.

    >>> decode_example(encode_example({"n": ("int64_list", [-1])}))
    {'n': ('int64_list', [-1])}
    """
    return {key: _decode_feature(value) for key, value in _entries(data, 1).items()}


def decode_sequence_example(
    data: bytes,
) -> tuple[dict[str, FeatureParts], dict[str, list[FeatureParts]]]:
    """The context and the feature lists of a SequenceExample."""
    lists = {
        key: [_decode_feature(step) for step in _messages(value, 1)]
        for key, value in _entries(data, 2).items()
    }
    return decode_example(data), lists


def _features(features: Mapping[str, FeatureParts]) -> bytes:
    parts = []
    for key, feature in _sorted(features):
        parts.append(_field(1, _field(1, key) + _field(2, _feature(feature))))
    return b"".join(parts)


def _sorted(features: Mapping[str, Any]) -> list[tuple[bytes, Any]]:
    return sorted((key.encode(), value) for key, value in features.items())


def _feature(feature: FeatureParts) -> bytes:
    kind, values = feature
    if kind is None:
        return b""
    if kind == "bytes_list":
        listed = b"".join(_field(1, value) for value in values)
    elif kind == "float_list":
        listed = _field(1, struct.pack(f"<{len(values)}f", *values)) if values else b""
    else:
        packed = b"".join(encode_varint(value) for value in values)
        listed = _field(1, packed) if values else b""
    return _field(KINDS[kind], listed)


def _field(number: int, data: bytes) -> bytes:
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(data)) + data


def encode_varint(value: int) -> bytes:
    """Seven bits a byte, the low ones first; negative ones as 64 bits."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _entries(data: bytes, outer: int) -> dict[str, bytes]:
    """Map entries of field `outer`, key to value; the last of a key wins."""
    found: dict[str, bytes] = {}
    for message in _messages(data, outer):
        for entry in _messages(message, 1):
            key, value = b"", b""
            for number, wire, part in _fields(entry):
                if wire == _BYTES and number == 1:
                    key = part
                elif wire == _BYTES and number == 2:
                    value = part
            found[key.decode("utf-8", "surrogateescape")] = value
    return found


def _messages(data: bytes, field: int) -> Iterator[bytes]:
    for number, wire, part in _fields(data):
        if number == field and wire == _BYTES:
            yield part


def _decode_feature(data: bytes) -> FeatureParts:
    kind: str | None = None
    values: list[Any] = []
    for number, wire, part in _fields(data):
        if wire != _BYTES or number not in _NAMES:
            continue
        if _NAMES[number] != kind:
            kind, values = _NAMES[number], []
        values.extend(_decode_list(kind, part))
    return kind, values


def _decode_list(kind: str, data: bytes) -> Iterator[Any]:
    for number, wire, part in _fields(data):
        if number != 1:
            continue
        if kind == "bytes_list":
            if wire == _BYTES:
                yield part
        elif kind == "float_list":
            if wire in (_BYTES, _FOUR):
                if len(part) % 4:
                    raise _broken()
                yield from struct.unpack(f"<{len(part) // 4}f", part)
        elif wire == _VARINT:
            yield _signed(_varint(part, 0)[0])
        elif wire == _BYTES:
            at = 0
            while at < len(part):
                value, at = _varint(part, at)
                yield _signed(value)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and bytes of every field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire, start = tag >> 3, tag & 7, at
        if wire == _VARINT:
            _, at = _varint(data, at)
        elif wire == _BYTES:
            size, start = _varint(data, at)
            at = start + size
        elif wire in (_EIGHT, _FOUR):
            at += 8 if wire == _EIGHT else 4
        else:
            raise _broken()
        if at > len(data) or number == 0:
            raise _broken()
        yield number, wire, data[start:at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _broken()
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise _broken()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _broken() -> InputError:
    return InputError("not a valid Example message.")
