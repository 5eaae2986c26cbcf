"""Features of a gRPC request of one row, cut out of its bytes and converted in batches.

    reader = TensorReader(signature.inputs, origins_of(bundle.plan))
    row = reader.from_inputs(request.inputs)       # None: decode them one by one
    reader.raw_batch([row, another])               # converts both rows at once

A message for each of 39 tensors, and an array of each, take 1 ms for a row. But tensors
of one value that clients write differ in their last bytes only: the bytes before them,
dtype and shape, are known from the signature. So values are cut out by comparing these
bytes, and those of all requests of a batch become arrays together, as in `json_rows`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.requests import column_from
from estimax.export.signature import STRING
from estimax.serving.json_rows import Column, FeatureReader, JsonRows
from estimax.serving.off_loop import SMALL
from estimax.serving.tensors import check_inputs, dtype_number
from estimax.staging.trace import Origin

# The tags of the fields of a TensorProto that hold one value of a dtype.
_CONTENT: Final = b"\x22"
_FIXED: Final = {"float32": b"\x2a", "float64": b"\x32", "bool": b"\x5a"}
_VARINTS: Final = {
    **dict.fromkeys(("int32", "int16", "int8"), b"\x3a"),
    "int64": b"\x52",
}
_TEXT: Final = b"\x42"
# One dimension of size 1 in a TensorShapeProto.
_ONE: Final = b"\x12\x02\x08\x01"

_LENGTHS: Final = [bytes([n]) for n in range(128)]

# The bytes of a tensor -> the bytes of its value; None if it has another form.
CutValue = Callable[[bytes], bytes | None]


class TensorReader(FeatureReader):
    """Reads the features of gRPC requests of one row, for one bundle.

    Args:
      specs: The inputs of its signatures.
      origins: The features of the model, which the inputs name.
    """

    def __init__(self, specs: Sequence[TensorInfo], origins: Iterable[Origin]) -> None:
        super().__init__(specs, origins)
        self._cuts = [(spec.name, _cut_of(spec)) for spec in self.plain]

    def from_inputs(self, inputs: Mapping[str, bytes]) -> JsonRows | None:
        """Return a row of a request; None if it is not one row of known form.

        None does not mean that the request is wrong: `tensors.check_inputs` reads every
        form, and explains what is wrong.
        """
        if len(inputs) != len(self._names):
            return None
        plain = []
        for name, cut in self._cuts:
            data = inputs.get(name)
            value = None if data is None else cut(data)
            if value is None:
                return None
            plain.append([value])
        others: dict[Origin, Any] = {}
        if self._others:
            if any(spec.name not in inputs for spec in self._others):
                return None
            given = {spec.name: inputs[spec.name] for spec in self._others}
            checked = check_inputs(given, self._others)
            # A short message may stand for many values; these are decoded elsewhere.
            if checked.elements > SMALL // 8:
                return None
            if any(shape[0] != 1 for shape in checked.shapes.values()):
                return None
            columns = checked.decode()
            for spec in self._others:
                others[self._origins[spec.name]] = column_from(spec, columns[spec.name])
        return JsonRows(self, 1, plain, others)

    def _block(self, kind: str, dtype: str, columns: Sequence[Column]) -> Any:
        values = list(itertools.chain.from_iterable(columns))
        if kind == "U":
            return Strings.of_bytes(values)
        return np.frombuffer(b"".join(values), dtype).reshape(len(columns), -1)


def _cut_of(spec: TensorInfo) -> CutValue:
    """Return the function that cuts the value out of a tensor of one row."""
    dtype = b"\x08" + bytes([dtype_number(spec.dtype)])
    # [1] and [1, 1]: clients mix them up.
    heads = tuple(dtype + b"\x12" + bytes([4 * rank]) + _ONE * rank for rank in (1, 2))
    if spec.dtype == STRING:
        return _cut_text(tuple(head + _TEXT for head in heads))
    size = np.dtype(spec.dtype).itemsize
    tags = [_CONTENT, *([_FIXED[spec.dtype]] if spec.dtype in _FIXED else [])]
    fixed = frozenset(h + tag + bytes([size]) for h in heads for tag in tags)

    def cut_fixed(data: bytes) -> bytes | None:
        return data[-size:] if data[:-size] in fixed else None

    if spec.dtype == "bool":  # a byte of 2 is True for protobuf, and odd for NumPy
        return lambda data: cut_fixed(data) if data[-1:] in (b"\0", b"\1") else None

    tag = _VARINTS.get(spec.dtype)
    if tag is None:
        return cut_fixed
    return _cut_varint(tuple(head + tag for head in heads), size, cut_fixed)


def _cut_text(heads: tuple[bytes, ...]) -> CutValue:
    def cut(data: bytes) -> bytes | None:
        for head in heads:
            if data.startswith(head):
                start = len(head)
                # Most words are shorter than 128 bytes: their length is one byte.
                if len(data) - start < 129:
                    rest = data[start + 1 :]
                    return (
                        rest if data[start : start + 1] == _LENGTHS[len(rest)] else None
                    )
                length, start = _varint(data, start)
                return data[start:] if len(data) == start + length else None
        return None

    return cut


def _cut_varint(heads: tuple[bytes, ...], size: int, cut_fixed: CutValue) -> CutValue:
    limit = 1 << (8 * size - 1)

    def cut(data: bytes) -> bytes | None:
        for head in heads:
            if data.startswith(head):
                length, start = _varint(data, len(head))
                if length > 10 or len(data) != start + length:
                    return None
                number, end = _varint(data, start)
                if number >= 1 << 63:
                    number -= 1 << 64  # a negative number takes all 64 bits
                if end != len(data) or not -limit <= number < limit:
                    return None
                return number.to_bytes(size, "little", signed=True)
        return cut_fixed(data)

    return cut


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it; a place beyond the end if it is cut."""
    value = 0
    for index, byte in enumerate(data[place : place + 10]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value & (1 << 64) - 1, place + index + 1
    return 0, len(data) + 1
