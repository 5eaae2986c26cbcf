"""TensorProto messages as NumPy arrays, and back.

    array = array_from_proto(request.inputs["age"], "input 'age'")
    fill_proto(response.outputs["scores"], scores)

A TensorProto holds its numbers as bytes (`tensor_content`) or in a typed field such as
`float_val`. Fewer values than elements mean that the last value is repeated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.serving.protos import data_types
from estimax.serving.status import invalid
from estimax.wire.messages import varint

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
_VALUE_FIELDS: Final = sorted({field for _, field in _FIELDS.values()} | {"string_val"})
STRING: Final = "DT_STRING"
# A shape may promise more elements than a message holds; larger ones are refused before
# memory is reserved for them.
_MOST_ELEMENTS: Final = 2**24


def dtype_name(dtype: str) -> str:
    """Return TensorFlow's name of a dtype.

    >>> dtype_name("float32"), dtype_name("string")
    ('DT_FLOAT', 'DT_STRING')
    """
    if dtype == "string":
        return STRING
    wanted = np.dtype(dtype)
    return next(name for name, (own, _) in _FIELDS.items() if np.dtype(own) == wanted)


def dtype_number(dtype: str) -> int:
    """Return TensorFlow's number of a dtype."""
    return data_types()[dtype_name(dtype)]


def array_from_proto(proto: Any, where: str) -> NDArray[Any] | Strings:
    """Return the array of a TensorProto; text as `Strings`.

    Raises:
      ServingError: The dtype is not supported, or values and shape do not agree.
    """
    shape = _shape(proto, where)
    count = math.prod(shape)
    if proto.dtype == data_types()[STRING]:
        return _strings(proto, count, where).reshape(shape)
    for name, (dtype, field) in _FIELDS.items():
        if data_types()[name] == proto.dtype:
            return _numbers(proto, np.dtype(dtype), field, count, where).reshape(shape)
    raise invalid(f"{where}: tensors of dtype number {proto.dtype} are not supported.")


def columns_from_proto(
    inputs: Mapping[str, Any], specs: Sequence[TensorInfo]
) -> dict[str, Any]:
    """Return the arrays of a request; their dtypes must be those of the signature."""
    expected = {spec.name: spec for spec in specs}
    columns = {n: array_from_proto(p, f"input {n!r}") for n, p in inputs.items()}
    for name in columns.keys() & expected.keys():
        spec = expected[name]
        if inputs[name].dtype != dtype_number(spec.dtype):
            raise invalid(
                f"input {name!r}: expected {spec.dtype}, found dtype number "
                f"{inputs[name].dtype}."
            )
    return columns


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
        proto.dtype = data_types()[STRING]
        proto.string_val.extend(array.reshape(-1).tolist())
        return
    name = dtype_name(array.dtype.name)
    proto.dtype = data_types()[name]
    flat = np.ascontiguousarray(array).reshape(-1)
    if as_content:
        proto.tensor_content = flat.tobytes()
        return
    if flat.dtype.itemsize == 2 and flat.dtype.kind not in "iu":
        flat = flat.view(np.uint16)  # the bits of float16 and bfloat16
    getattr(proto, _FIELDS[name][1]).extend(flat.tolist())


def _shape(proto: Any, where: str) -> tuple[int, ...]:
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
    return _filled(found, count)


def _wide(dtype: np.dtype[Any]) -> Any:
    """Return the dtype of a field's values, which are narrowed with wrap-around."""
    return np.int64 if dtype.kind in "iu" and dtype.itemsize < 8 else dtype


def _filled(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Cut surplus values, or repeat the last one; zeros if there is none."""
    if len(values) >= count:
        return values[:count]
    if not len(values):
        return np.zeros(count, values.dtype)
    return np.concatenate([values, np.repeat(values[-1:], count - len(values))])


def _strings(proto: Any, count: int, where: str) -> Strings:
    if proto.tensor_content:
        return Strings.of(_strings_in(proto.tensor_content, count, where))
    _check_other_fields(proto, "string_val", where)
    values = list(proto.string_val[:count])
    values += [values[-1] if values else b""] * (count - len(values))
    return Strings.of(np.array(values, dtype=object) if values else values)


def _strings_in(content: bytes, count: int, where: str) -> list[bytes]:
    """Return strings that are stored as all lengths, then all bytes."""
    try:
        lengths, place = [], 0
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
