"""TensorProto messages as NumPy arrays, and back; rows cut out of their bytes.

    columns = check_inputs(request.inputs, signature.inputs, max_rows=1000).decode()
    array = array_from_proto(proto, "output 'scores'")
    fill_proto(response.outputs["scores"], scores)

    reader = TensorReader(signature.inputs, origins_of(bundle.plan))
    row = reader.from_inputs(request.inputs)       # None: decode them one by one
    reader.raw_batch([row, another])               # converts both rows at once

A TensorProto holds its numbers as bytes (`tensor_content`) or in a typed field such as
`float_val`. Fewer values than elements mean that the last value is repeated, so a few
bytes may promise gigabytes: names, dtypes and shapes are checked before values are
read.

A message for each of 39 tensors, and an array of each, take 1 ms for a row. But tensors
of one value that clients write differ in their last bytes only: the bytes before them,
dtype and shape, are known from the signature. `TensorReader` compares these bytes and
cuts the values out; the values of all requests of a batch become arrays together.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from estimax.core.errors import did_you_mean
from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.requests import column_from
from estimax.export.signature import STRING
from estimax.formats.messages import encode_varint, varint
from estimax.serving.examples import EXAMPLE_NAMES
from estimax.serving.protos import data_types, message
from estimax.serving.requests import FeatureReader, JsonColumn, PendingRows
from estimax.serving.status import invalid
from estimax.serving.threads import SMALL
from estimax.staging.trace import Origin

# TensorFlow's dtype -> NumPy's, and the field that holds its values.
_FIELDS: Final[dict[str, tuple[Any, str]]] = {
    "DT_FLOAT": (np.float32, "float_val"),
    "DT_DOUBLE": (np.float64, "double_val"),
    "DT_INT32": (np.int32, "int_val"),
    "DT_UINT8": (np.uint8, "int_val"),
    "DT_INT16": (np.int16, "int_val"),
    "DT_INT8": (np.int8, "int_val"),
    "DT_UINT16": (np.uint16, "int_val"),
    "DT_INT64": (np.int64, "int64_val"),
    "DT_BOOL": (np.bool_, "bool_val"),
    "DT_HALF": (np.float16, "half_val"),
    "DT_BFLOAT16": (ml_dtypes.bfloat16, "half_val"),
    "DT_UINT32": (np.uint32, "uint32_val"),
    "DT_UINT64": (np.uint64, "uint64_val"),
}
# Fields whose packed values are the bytes of an array.
_PACKED: Final = {"float32": 5, "float64": 6, "bool": 11}
_VALUE_FIELDS: Final = sorted({field for _, field in _FIELDS.values()} | {"string_val"})
_DT_STRING: Final = "DT_STRING"
_MOST_ELEMENTS: Final = 2**24
# The most bytes that repeated values may add to a request; as many as it may send.
_MOST_REPEATED: Final = 2**26


def dtype_name(dtype: str) -> str:
    """Return TensorFlow's name of a dtype.

    >>> dtype_name("float32"), dtype_name("string")
    ('DT_FLOAT', 'DT_STRING')
    """
    if dtype == STRING:
        return _DT_STRING
    wanted = np.dtype(dtype)
    return next(name for name, (own, _) in _FIELDS.items() if np.dtype(own) == wanted)


def dtype_number(dtype: str) -> int:
    """Return TensorFlow's number of a dtype."""
    return data_types()[dtype_name(dtype)]


def numpy_dtype(number: int) -> np.dtype[Any] | None:
    """Return the NumPy dtype of one of TensorFlow's numbers; None for text.

    >>> numpy_dtype(dtype_number("int64"))
    dtype('int64')
    """
    numbers = data_types()
    for name, (own, _) in _FIELDS.items():
        if numbers[name] == number:
            dtype: np.dtype[Any] = np.dtype(own)
            return dtype
    return None


def array_from_proto(proto: Any, where: str) -> NDArray[Any] | Strings:
    """Return the array of a TensorProto; text as `Strings`.

    Raises:
      ServingError: The dtype is not supported, or values and shape do not agree.
    """
    shape = _shape(proto, where)
    # Before values are read: 20 bytes may promise 64 MB.
    _check_repeated({where: proto}, {where: shape})
    return _array(proto, shape, where)


@dataclass(frozen=True)
class TensorInputs:
    """The inputs of a request whose names, dtypes and shapes fit a signature.

    Args:
      protos: Name to TensorProto.
      shapes: Name to shape.
    """

    protos: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def elements(self) -> int:
        """The number of values, counting repeated ones."""
        return sum(map(math.prod, self.shapes.values()))

    def decode(self) -> dict[str, Any]:
        """Return the arrays by name; text as `Strings`."""
        return {
            name: _array(proto, self.shapes[name], f"input {name!r}")
            for name, proto in self.protos.items()
        }


def check_inputs(
    inputs: Mapping[str, bytes],
    specs: Sequence[TensorInfo],
    *,
    text_inputs: Sequence[str] = EXAMPLE_NAMES,
    max_rows: int | None = None,
) -> TensorInputs:
    """Check the inputs of a request, without decoding a value.

    Args:
      inputs: Name to serialized TensorProto.
      specs: The inputs of the signature.
      text_inputs: Names under which a request may carry text in place of all features:
        serialized Examples, or CSV records.
      max_rows: The most rows of a request. None: any number.

    Raises:
      ServingError: A name is unknown, a dtype or shape does not fit the signature,
        or there are too many rows.
    """
    expected = _specs_of_inputs(inputs, specs, text_inputs)
    protos = {name: _parse_tensor(data, name) for name, data in inputs.items()}
    shapes = {}
    rows: int | None = None
    for name, proto in protos.items():
        spec = expected[name]
        if proto.dtype != dtype_number(spec.dtype):
            raise invalid(
                f"input {name!r}: expected {spec.dtype} ({dtype_name(spec.dtype)}), "
                f"found {_name_dtype(proto.dtype)}."
            )
        shapes[name] = _shape(proto, f"input {name!r}")
        _check_shape(spec, shapes[name])
        rows = _check_rows(name, shapes[name][0], rows, max_rows)
    _check_repeated(protos, shapes)
    return TensorInputs(protos, shapes)


def columns_from_proto(
    inputs: Mapping[str, bytes],
    specs: Sequence[TensorInfo],
    *,
    max_rows: int | None = None,
) -> dict[str, Any]:
    """Return the arrays of a request that `check_inputs` accepts."""
    return check_inputs(inputs, specs, max_rows=max_rows).decode()


def _specs_of_inputs(
    inputs: Mapping[str, Any], specs: Sequence[TensorInfo], text_inputs: Sequence[str]
) -> dict[str, TensorInfo]:
    """Return the specs by name, or raise if an input is unknown."""
    expected = {spec.name: spec for spec in specs}
    unknown = [name for name in inputs if name not in expected]
    if len(inputs) == 1 and unknown and unknown[0] in text_inputs:
        return {unknown[0]: TensorInfo(unknown[0], "string", (None,))}
    if unknown:
        word = "feature" if len(unknown) == 1 else "features"
        near = did_you_mean(unknown[0], expected)
        raise invalid(f"unknown {word} {', '.join(map(repr, unknown))}{near}")
    return expected


def _parse_tensor(data: bytes, name: str) -> Any:
    try:
        return message("tensorflow.TensorProto").FromString(data)
    except DecodeError as error:
        raise invalid(f"input {name!r}: it is not a TensorProto: {error}.") from None


def _check_shape(spec: TensorInfo, shape: tuple[int, ...]) -> None:
    """Raise unless a column of this shape may fit; `export.requests` converts it."""
    if not shape:
        raise invalid(
            f"input {spec.name!r}: expected a list, one value per row, found a single "
            "value."
        )
    tail, wanted = shape[1:], spec.tail
    fits = len(tail) == len(wanted) and all(
        size in (None, n) for n, size in zip(tail, wanted, strict=True)
    )
    # [B] stands for [B, 1] and the reverse, and for lists of one value.
    without_ones = [n for n in tail if n != 1], [n for n in wanted if n != 1]
    is_like = without_ones[0] == without_ones[1] or (spec.kind == "sparse" and not tail)
    if not fits and not is_like:
        sizes = ", ".join(["B", *("?" if n is None else str(n) for n in wanted)])
        raise invalid(
            f"input {spec.name!r}: expected {spec.dtype} of shape [{sizes}], found the "
            f"shape {list(shape)}."
        )


def _check_rows(name: str, found: int, rows: int | None, most: int | None) -> int:
    if rows is not None and found != rows:
        raise invalid(
            f"input {name!r}: expected {rows} rows as in the inputs before it, found "
            f"{found}."
        )
    if most is not None and found > most:
        raise invalid(
            f"input {name!r}: expected at most {most} rows, found {found}; send the "
            "request in parts."
        )
    return found


def _check_repeated(
    protos: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise if repeating the last values would take too much memory."""
    added = 0
    for name, proto in protos.items():
        if proto.tensor_content:
            continue
        count = math.prod(shapes[name])
        if proto.dtype == data_types()[_DT_STRING]:
            given = proto.string_val
            size = 8 + (len(given[-1]) if given else 0)
        else:
            given = getattr(proto, _fields_by_number().get(proto.dtype, "float_val"))
            size = 8
        added += max(count - len(given), 0) * size
    if added > _MOST_REPEATED:
        raise invalid(
            f"the request repeats values up to {added} bytes, at most {_MOST_REPEATED} "
            "are allowed; send all values, or fewer rows."
        )


@functools.cache
def _fields_by_number() -> dict[int, str]:
    return {data_types()[name]: field for name, (_, field) in _FIELDS.items()}


def _array(proto: Any, shape: tuple[int, ...], where: str) -> NDArray[Any] | Strings:
    count = math.prod(shape)
    if proto.dtype == data_types()[_DT_STRING]:
        return _strings(proto, count, where).reshape(shape)
    for name, (dtype, field) in _FIELDS.items():
        if data_types()[name] == proto.dtype:
            return _numbers(proto, np.dtype(dtype), field, count, where).reshape(shape)
    raise invalid(f"{where}: tensors of {_name_dtype(proto.dtype)} are not supported.")


def _name_dtype(number: int) -> str:
    names = {value: name for name, value in data_types().items()}
    return names.get(number, f"the unknown dtype {number}")


def fill_proto(proto: Any, array: NDArray[Any], *, as_content: bool = False) -> None:
    """Write an array into a TensorProto; object arrays hold bytes.

    Args:
      proto: The message.
      array: The array.
      as_content: Write numbers as `tensor_content`, which is faster. Clients in other
        languages often read the typed fields only, so it is not the default.
    """
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if array.dtype == object:
        proto.dtype = data_types()[_DT_STRING]
        proto.string_val.extend(array.reshape(-1).tolist())
        return
    name = dtype_name(array.dtype.name)
    proto.dtype = data_types()[name]
    flat = np.ascontiguousarray(array).reshape(-1)
    if as_content:
        proto.tensor_content = flat.tobytes()
        return
    # `half_val` is a list of int32 with 16 bits each.
    if flat.dtype.itemsize == 2 and flat.dtype.kind not in "iu":
        flat = flat.view(np.uint16)  # the bits of float16 and bfloat16
    getattr(proto, _FIELDS[name][1]).extend(flat.tolist())


def tensor_bytes(array: NDArray[Any], as_content: bool = False) -> bytes:
    """Return a serialized TensorProto, the same as `fill_proto` makes.

    >>> tensor_bytes(np.array([1.5], np.float32)).hex()
    '08011204120208012a040000c03f'
    """
    if array.dtype == object:
        values = array.reshape(-1).tolist()
        texts = b"".join([field(8, value) for value in values])
        return _head(_DT_STRING, array.shape) + texts
    numbers = array.dtype.name
    if not array.size or (numbers not in _PACKED and not as_content):
        proto = message("tensorflow.TensorProto")()
        fill_proto(proto, array, as_content=as_content)
        serialized: bytes = proto.SerializeToString()
        return serialized
    tag = 4 if as_content else _PACKED[numbers]
    content = np.ascontiguousarray(array).tobytes()
    return _head(dtype_name(numbers), array.shape) + field(tag, content)


@functools.lru_cache(maxsize=1024)
def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return dtype and shape of a serialized TensorProto."""
    dims = b"".join(field(2, b"\x08" + encode_varint(n) if n else b"") for n in shape)
    return (
        b"\x08"
        + encode_varint(data_types()[dtype])
        + (field(2, dims) if shape else b"")
    )


def field(number: int, data: bytes) -> bytes:
    """Return a field of a serialized message whose number is below 16."""
    return bytes([number << 3 | 2]) + encode_varint(len(data)) + data


def _shape(proto: Any, where: str) -> tuple[int, ...]:
    # As a scalar, which `_check_shape` refuses for an input.
    if proto.tensor_shape.unknown_rank:
        return ()
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if any(size < 0 for size in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise invalid(
            f"{where}: expected sizes of 0 or more and at most {_MOST_ELEMENTS} "
            f"elements, found the shape {list(shape)}."
        )
    return shape


def _numbers(
    proto: Any, dtype: np.dtype[Any], field: str, count: int, where: str
) -> NDArray[Any]:
    content = proto.tensor_content
    if content:
        if len(content) != count * dtype.itemsize:
            raise invalid(
                f"{where}: expected {count * dtype.itemsize} bytes of tensor_content "
                f"for {count} values of {dtype.name}, found {len(content)}."
            )
        return np.frombuffer(content, dtype)
    _check_other_fields(proto, field, where)
    values = getattr(proto, field)
    if field == "half_val":
        found = np.array(values, np.int64).astype(np.uint16).view(dtype)
    else:
        found = np.array(values, _wide(dtype)).astype(dtype)
    return _repeat_last(found, count)


def _wide(dtype: np.dtype[Any]) -> Any:
    """Return the dtype of a field's values, which are narrowed with wrap-around."""
    return np.int64 if dtype.kind in "iu" and dtype.itemsize < 8 else dtype


def _repeat_last(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Cut surplus values, or repeat the last one; zeros if there is none."""
    # TensorFlow drops surplus values and repeats the last of too few.
    if len(values) >= count:
        return values[:count]
    if not len(values):
        return np.zeros(count, values.dtype)
    return np.concatenate([values, np.repeat(values[-1:], count - len(values))])


def _strings(proto: Any, count: int, where: str) -> Strings:
    if proto.tensor_content:
        return Strings.of(_strings_in(proto.tensor_content, count, where))
    _check_other_fields(proto, "string_val", where)
    values = Strings.of(list(proto.string_val[:count]) or [b""])
    if len(values) == count:
        return values
    # The index of the last value, again and again.
    repeated: Strings = values[np.minimum(np.arange(count), len(values) - 1)]
    return repeated


def _strings_in(content: bytes, count: int, where: str) -> list[bytes]:
    """Return strings that are stored as all lengths, then all bytes."""
    try:
        lengths, place = [], 0
        if count > len(content):
            raise ValueError("every length takes a byte")
        for _ in range(count):
            length, place = varint(content, place)
            lengths.append(length)
    except ValueError:
        raise invalid(f"{where}: tensor_content has no lengths of strings.") from None
    if place + sum(lengths) != len(content):
        raise invalid(
            f"{where}: expected {place + sum(lengths)} bytes of tensor_content for "
            f"{count} strings, found {len(content)}."
        )
    ends = np.cumsum([place, *lengths]).tolist()
    return [content[a:b] for a, b in itertools.pairwise(ends)]


def _check_other_fields(proto: Any, field: str, where: str) -> None:
    """Raise if values are in the field of another dtype, which would read as zeros."""
    if getattr(proto, field):
        return
    for other in _VALUE_FIELDS:
        if other != field and getattr(proto, other):
            raise invalid(
                f"{where}: its dtype keeps values in {field}, found values in {other}."
            )


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
        self._cuts = [(spec.name, _make_cut(spec)) for spec in self.plain]

    def from_inputs(self, inputs: Mapping[str, bytes]) -> PendingRows | None:
        """Return a row of a request; None if it is not one row of known form.

        None does not mean that the request is wrong: `tensors.check_inputs` reads every
        form, and explains what is wrong.
        """
        # With missing or extra inputs, `check_inputs` says which.
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
        return PendingRows(self, 1, plain, others)

    def _block(self, kind: str, dtype: str, columns: Sequence[JsonColumn]) -> Any:
        values = list(itertools.chain.from_iterable(columns))
        if kind == "U":
            return Strings.of_bytes(values)
        return np.frombuffer(b"".join(values), dtype).reshape(len(columns), -1)


def _make_cut(spec: TensorInfo) -> CutValue:
    """Return the function that cuts the value out of a tensor of one row."""
    dtype = b"\x08" + bytes([dtype_number(spec.dtype)])
    # [1] and [1, 1]: clients mix them up.
    heads = tuple(dtype + b"\x12" + bytes([4 * rank]) + _ONE * rank for rank in (1, 2))
    if spec.dtype == STRING:
        return _cut_text(tuple(head + _TEXT for head in heads))
    size = np.dtype(spec.dtype).itemsize
    # A client may send `tensor_content` or the typed field of the dtype.
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
