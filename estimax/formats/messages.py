"""Protocol buffer messages in Python: single Examples, and the fields of any message.

    data = encode_example({"age": ("int64_list", [31])})
    decode_example(data)                        # {"age": ("int64_list", [31])}
    for number, value in fields(message): ...

Hot paths parse and encode Examples with the compiled code of `native`. The functions
here are for single messages. They read with the reference implementation that the
kernels are tested against, so both refuse the same bytes. The protobuf library merges
repeated map values, accepts groups and refuses keys that are not UTF-8; kernels do not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from estimax.native.reference import protos
from estimax.native.reference.protos import encode_varint

__all__ = [
    "LIST_KINDS",
    "LIST_NAMES",
    "FeatureParts",
    "decode_example",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "encode_varint",
    "fields",
    "varint",
]

# The field number of each kind of list in a Feature message.
LIST_KINDS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}
LIST_NAMES = {number: name for name, number in LIST_KINDS.items()}

# The kind of a feature (in LIST_KINDS, or None) and its bytes, floats or integers.
FeatureParts = tuple[str | None, Sequence[Any]]


def encode_example(features: Mapping[str, FeatureParts]) -> bytes:
    """Return the bytes of an Example, with keys sorted and numbers packed.

    >>> encode_example({"a": ("float_list", [1.0])}).hex()
    '0a0f0a0d0a0161120812060a040000803f'
    """
    return protos.field(1, _features(features))


def encode_sequence_example(
    context: Mapping[str, FeatureParts],
    feature_lists: Mapping[str, Sequence[FeatureParts]],
) -> bytes:
    """Return the bytes of a SequenceExample, whose lists have a feature per step."""
    lists = b""
    for key, steps in _sort_features(feature_lists):
        value = b"".join(protos.field(1, _feature(step)) for step in steps)
        lists += protos.field(1, protos.field(1, key) + protos.field(2, value))
    return protos.field(1, _features(context)) + protos.field(2, lists)


def decode_example(data: bytes) -> dict[str, FeatureParts]:
    """Return the features of an Example, or of the context of a SequenceExample.

    Raises:
      InputError: The bytes are not such a message.

    >>> decode_example(encode_example({"n": ("int64_list", [-1])}))
    {'n': ('int64_list', [-1])}
    """
    entries = protos.entries(data, 1)
    return {_text(key): _decode_feature(data, value) for key, value in entries.items()}


def decode_sequence_example(
    data: bytes,
) -> tuple[dict[str, FeatureParts], dict[str, list[FeatureParts]]]:
    """Return the context and the feature lists of a SequenceExample.

    Raises:
      InputError: The bytes are not such a message.
    """
    lists = {
        _text(key): [
            _decode_feature(data, step) for step in protos.messages(data, value)
        ]
        for key, value in protos.entries(data, 2).items()
    }
    return decode_example(data), lists


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of every field: varints as int, all others as bytes.

    Raises:
      ValueError: The bytes are not a complete message.

    >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x01, 0x61])))
    [(1, 150), (2, b'a')]
    """
    place = 0
    while place < len(message):
        tag, place = varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, place = varint(message, place)
            yield number, value
            continue
        if kind == 2:
            size, place = varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(
                f"field {number} of a message has unknown wire type {kind}"
            )
        if size > len(message) - place:
            raise ValueError(f"field {number} of a message is cut short")
        yield number, message[place : place + size]
        place += size


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the varint at byte `place`, and the byte after it.

    Raises:
      ValueError: The data ends within the number, or it has more than 64 bits.

    >>> varint(bytes([0x96, 0x01]), 0)
    (150, 2)
    """
    value = 0
    for i, byte in enumerate(data[place : place + 10]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80 and value < 2**64:
            return value, place + i + 1
    raise ValueError(f"expected a number of at most 64 bits at byte {place}")


def _features(features: Mapping[str, FeatureParts]) -> bytes:
    """Return the bytes of a Features message."""
    parts = []
    for key, feature in _sort_features(features):
        value = protos.field(1, key) + protos.field(2, _feature(feature))
        parts.append(protos.field(1, value))
    return b"".join(parts)


def _sort_features(features: Mapping[str, Any]) -> list[tuple[bytes, Any]]:
    return sorted((key.encode(), value) for key, value in features.items())


def _feature(feature: FeatureParts) -> bytes:
    kind, values = feature
    if kind is None:
        return b""
    if kind == "float_list":
        values = [struct.pack("<f", value) for value in values]
    return protos.feature(LIST_KINDS[kind], list(values))


def _decode_feature(data: bytes, span: protos.Span) -> FeatureParts:
    number, values = protos.values(data, span)
    if number is None:
        return None, []
    kind = LIST_NAMES[number]
    if kind == "float_list":
        return kind, list(struct.unpack(f"<{len(values)}f", b"".join(values)))
    return kind, values


def _text(key: bytes) -> str:
    """Return a key as text; bytes that are not UTF-8 are kept as surrogates."""
    return key.decode("utf-8", "surrogateescape")
