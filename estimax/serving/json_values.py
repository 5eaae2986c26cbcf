"""JSON bodies as the columns of a request, and answers as JSON.

    columns, is_row_form = columns_from_json(body, signature.inputs)
    predictions_json(answers, is_row_form)

The rules are TensorFlow Serving's: `instances` holds rows, `inputs` holds columns. A
number is not accepted for a string, nor a boolean or 1.0 for an integer. `NaN` and
`Infinity` are numbers, on the way in and on the way out. Beyond those rules, `null` and
a key that is not there are missing values, where the model fills them.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.requests import is_filled, with_blank_rows
from estimax.serving.examples import EXAMPLE_NAMES, decoded_base64, is_base64
from estimax.serving.status import invalid

SIZE_OF_NUMBER: Final = 16  # about how many bytes a number of an answer has
_ROWS_AT_ONCE: Final = 1024  # written at a time
_SERIALIZE: Final = orjson.OPT_SERIALIZE_NUMPY
# The kind of a NumPy dtype -> the types that JSON values of it may have.
_TYPES: Final[dict[str, frozenset[type]]] = {
    "f": frozenset({int, float}),
    "V": frozenset({int, float}),  # bfloat16 and its like
    "i": frozenset({int}),
    "u": frozenset({int}),
    "b": frozenset({bool}),
}


def parse(body: bytes) -> dict[str, Any]:
    """Return the object of a JSON body.

    Raises:
      ServingError: The body is not one JSON object.
    """
    value = loads(body)
    if not isinstance(value, dict):
        raise invalid(f"expected a JSON object, found {type(value).__name__}.")
    return value


def loads(text: bytes) -> Any:
    """Return the value of a JSON text, which may have NaN and Infinity.

    Raises:
      ServingError: The text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return _parse_with_nan(text, error)


def _parse_with_nan(body: bytes, error: Exception) -> Any:
    """Parse again with Python's parser, which knows NaN and Infinity."""
    if b"NaN" not in body and b"Inf" not in body:
        raise invalid(f"the body is not JSON: {error}.")
    try:
        value = json.loads(body)
        if b"\\u" in body:  # half of a surrogate pair is no text, but Python reads it
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise invalid(f"the body is not JSON: {error}.") from None
    return value


def columns_from_json(
    body: Mapping[str, Any],
    specs: Sequence[TensorInfo],
    text_inputs: Sequence[str] = EXAMPLE_NAMES,
) -> tuple[dict[str, Any], bool]:
    """Return the features of a request, and whether they came as rows.

    Args:
      body: The body of the request.
      specs: The inputs of the signature.
      text_inputs: Names under which a request may carry text in place of all features:
        serialized Examples, or CSV records.

    Raises:
      ServingError: The body has both or neither of `instances` and `inputs`, or a value
        does not fit its feature.
    """
    if ("instances" in body) == ("inputs" in body):
        raise invalid(
            "expected either 'instances' (a list of rows) or 'inputs' (columns by "
            "name), found " + ("both." if "inputs" in body else "neither.")
        )
    if "instances" in body:
        return _from_rows(body["instances"], specs, text_inputs), True
    return _from_columns(body["inputs"], specs, text_inputs), False


def _from_rows(
    rows: Any, specs: Sequence[TensorInfo], text_inputs: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(rows, list) or not rows:
        raise invalid("instances: expected a list with at least one row.")
    is_named = isinstance(rows[0], dict) and not is_base64(rows[0])
    if not is_named:
        spec = _only(specs, "instances")
        if any(isinstance(row, dict) and not is_base64(row) for row in rows):
            raise invalid("instances: expected values, found an object among them.")
        return {spec.name: column_from_json(spec, rows)}
    if not all(type(row) is dict for row in rows):
        raise invalid("instances: expected objects, found another value among them.")
    specs = _or_text(specs, rows[0], text_inputs)
    expected = {spec.name for spec in specs}
    for index, row in enumerate(rows):
        if not row.keys() <= expected:
            extra = ", ".join(sorted(map(repr, row.keys() - expected)))
            raise invalid(
                f"instances, row {index}: it has {extra}; expected only "
                f"{_names(specs)}."
            )
    columns = {spec.name: [row.get(spec.name) for row in rows] for spec in specs}
    _check_missing(specs, columns, rows)
    return {spec.name: column_from_json(spec, columns[spec.name]) for spec in specs}


def _from_columns(
    given: Any, specs: Sequence[TensorInfo], text_inputs: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(given, dict) or is_base64(given):
        spec = _only(specs, "inputs")
        return {spec.name: column_from_json(spec, given)}
    specs = _or_text(specs, given, text_inputs)
    present = {spec.name: given[spec.name] for spec in specs if spec.name in given}
    rows = next((len(v) for v in present.values() if isinstance(v, list)), None)
    absent = [
        spec.name
        for spec in specs
        if spec.name not in given and (rows is None or not is_filled(spec))
    ]
    if absent:
        are = "is" if len(absent) == 1 else "are"
        raise invalid(
            f"inputs: {', '.join(map(repr, absent))} {are} missing; expected "
            f"{_names(specs)}, found {', '.join(given) or 'none'}."
        )
    columns = {s.name: present.get(s.name, [None] * (rows or 0)) for s in specs}
    _check_missing(specs, columns)
    return {spec.name: column_from_json(spec, columns[spec.name]) for spec in specs}


def _check_missing(
    specs: Sequence[TensorInfo],
    columns: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Raise one error that names all features that lack a value and are not filled."""
    found = []
    for spec in specs:
        column = columns[spec.name]
        if is_filled(spec) or not isinstance(column, list):
            continue
        for index, value in enumerate(column):
            if value is None or (isinstance(value, list) and None in value):
                is_absent = bool(rows) and spec.name not in rows[index]
                what = "absent" if is_absent else "null"
                found.append(f"{spec.name!r} is {what} in row {index}")
                break
    if found:
        raise invalid(
            f"expected a value in every row, found that {', '.join(found)}. The model "
            "fills missing values of other features, but not of these; `estimax show` "
            "lists both."
        )


def _or_text(
    specs: Sequence[TensorInfo], names: Mapping[str, Any], text_inputs: Sequence[str]
) -> Sequence[TensorInfo]:
    """Return the input for text in place of features if that is what a request has."""
    own = {spec.name for spec in specs}
    if len(names) == 1 and not own & names.keys():
        (name,) = names
        if name in text_inputs:
            return [TensorInfo(name, "string", (None,))]
    return specs


def _only(specs: Sequence[TensorInfo], key: str) -> TensorInfo:
    if len(specs) != 1:
        raise invalid(
            f"{key}: the signature has {len(specs)} inputs, so each must be named; "
            f"expected {_names(specs)}."
        )
    return specs[0]


def _names(specs: Sequence[TensorInfo]) -> str:
    return ", ".join(spec.name for spec in specs)


def column_from_json(spec: TensorInfo, value: Any) -> Any:
    """Return a JSON value as the column of a feature."""
    if spec.kind == "sparse":
        return _lists(spec, value)
    if spec.tail and isinstance(value, list):
        value = with_blank_rows(spec, value)
    values, shape = _flattened(spec, value)
    if None in values and is_filled(spec):
        values = _filled(spec, values, shape)
    if spec.dtype == "string":
        return Strings.of(_texts(spec, values)).reshape(shape)
    return _numbers(spec, values).reshape(shape)


def json_default(spec: TensorInfo) -> NDArray[Any]:
    """Return what stands for null in a feature that is filled, in the types of JSON."""
    if spec.dtype == "string":
        return np.asarray("")
    default = np.asarray(spec.default)
    if np.dtype(spec.dtype).kind in "iu":  # a column may declare 2.0 for integers
        return default.astype(np.int64)
    return default


def _filled(spec: TensorInfo, values: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Return the values with the default of the feature in place of null."""
    default = json_default(spec)
    if default.ndim and default.shape != shape[1:]:
        return values
    every = np.broadcast_to(default, shape).reshape(-1).tolist()
    return [d if v is None else v for v, d in zip(values, every, strict=True)]


def _lists(spec: TensorInfo, rows: Any) -> Any:
    """Return rows of any length; each may be a list or a single value."""
    if not isinstance(rows, list):
        raise _unfit(spec, "a single value")
    if any(isinstance(row, list) and _is_nested(row) for row in rows):
        # Lists within lists.
        return [[] if row is None else _checked_list(spec, row) for row in rows]
    lists = [
        row if isinstance(row, list) else [] if row is None else [row] for row in rows
    ]
    flat = [value for row in lists for value in row]
    checked = _texts(spec, flat) if spec.dtype == "string" else flat
    if spec.dtype != "string":
        _check_types(spec, flat)
    places = iter(checked)
    return [[next(places) for _ in row] for row in lists]


def _is_nested(row: list[Any]) -> bool:
    return any(isinstance(value, list) for value in row)


def _checked_list(spec: TensorInfo, value: Any) -> Any:
    if isinstance(value, list):
        return [_checked_list(spec, inner) for inner in value]
    if spec.dtype == "string":
        return _texts(spec, [value])[0]
    _check_types(spec, [value])
    return value


def _flattened(spec: TensorInfo, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the values of nested lists in order, and their shape."""
    values, shape = [value], []
    while isinstance(values[0] if values else None, list):
        lengths = {len(v) if isinstance(v, list) else -1 for v in values}
        if len(lengths) > 1:
            raise _unfit(spec, "lists of different lengths, or values beside lists")
        shape.append(lengths.pop())
        values = [inner for v in values for inner in v]
    if any(isinstance(v, list) for v in values):
        raise _unfit(spec, "lists beside values")
    return values, tuple(shape)


def _numbers(spec: TensorInfo, values: list[Any]) -> NDArray[Any]:
    _check_types(spec, values)
    dtype = np.dtype(spec.dtype)
    try:
        if dtype.kind in "iu":
            return _integers(spec, values, dtype)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as in TensorFlow
            return np.array(values, np.float64 if dtype.kind in "fV" else dtype)
    except OverflowError:
        raise _unfit(spec, "a number that is out of range") from None


def _integers(
    spec: TensorInfo, values: list[Any], dtype: np.dtype[Any]
) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    wide = np.array(values, np.uint64 if dtype == np.uint64 else np.int64)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise _unfit(spec, "a number that is out of range")
    return wide.astype(dtype)


def _check_types(spec: TensorInfo, values: list[Any]) -> None:
    kind = np.dtype(spec.dtype).kind
    found = set(map(type, values)) - _TYPES[kind]
    if found == {float} and kind in "iu":
        number = next(v for v in values if type(v) is float)
        advice = (
            f"a number with a decimal point; send {int(number)}"
            if number.is_integer()
            else "a number with a fraction"
        )
        raise _unfit(spec, f"{number!r}, {advice}")
    if found:
        raise _unfit(spec, " and ".join(sorted(_JSON_NAMES[t] for t in found)))


_JSON_NAMES: Final[dict[type, str]] = {
    bool: "true or false",
    dict: "an object",
    float: "a number with a fraction",
    int: "a number",
    list: "a list",
    str: "a string",
    type(None): "null",
}


def _texts(spec: TensorInfo, values: list[Any]) -> list[Any]:
    found = set(map(type, values))
    if found <= {str}:
        return values
    if not found <= {str, dict}:
        raise _unfit(spec, " and ".join(sorted(_JSON_NAMES[t] for t in found - {str})))
    return [
        value if isinstance(value, str) else _decoded(spec, value) for value in values
    ]


def _decoded(spec: TensorInfo, value: Any) -> bytes:
    if not is_base64(value):
        raise _unfit(spec, "an object that is not {'b64': text}")
    return decoded_base64(value["b64"], f"feature {spec.name!r}")


def _unfit(spec: TensorInfo, found: str) -> Exception:
    form = "lists of " if spec.kind == "sparse" else ""
    sizes = ", ".join("B" if n is None else str(n) for n in spec.shape)
    return invalid(
        f"feature {spec.name!r}: expected {form}{spec.dtype} of shape [{sizes}], found "
        f"{found}."
    )


def predictions_json(answers: Mapping[str, NDArray[Any]], is_row_form: bool) -> bytes:
    """Return the body of an answer: `predictions` for rows, `outputs` for columns."""
    finite = are_finite(answers.values())
    key = b'{"predictions":' if is_row_form else b'{"outputs":'
    if len(answers) == 1:
        ((name, array),) = answers.items()
        return key + _array_text(name, array, finite) + b"}"
    if not is_row_form:
        texts = [
            dumps(name) + b":" + _array_text(name, array, finite)
            for name, array in answers.items()
        ]
        return key + b"{" + b",".join(texts) + b"}}"
    count = len(next(iter(answers.values())))
    parts = (
        _rows_text(answers, slice(start, start + _ROWS_AT_ONCE), finite)
        for start in range(0, count, _ROWS_AT_ONCE)
    )
    return key + b"[" + b",".join(parts) + b"]}"


def _rows_text(
    answers: Mapping[str, NDArray[Any]], rows: slice, is_finite: bool
) -> bytes:
    """Return some rows of an answer, each an object with all outputs, as JSON."""
    columns = [
        _texts_of_rows(n, array[rows], is_finite) for n, array in answers.items()
    ]
    names = [dumps(name) + b":" for name in answers]
    # One format for all rows: each value follows its name.
    form = b"{" + b",".join(name.replace(b"%", b"%%") + b"%b" for name in names) + b"}"
    return b",".join([form % row for row in zip(*columns, strict=True)])


def _texts_of_rows(name: str, array: NDArray[Any], is_finite: bool) -> list[bytes]:
    """Return every row of an output as JSON.

    Numbers are written together and cut, which takes a third of the time.
    """
    if array.dtype == object or array.ndim > 2 or not array.size or not is_finite:
        return [dumps(row, is_finite) for row in _shown(name, array)]
    text = dumps(_shown(name, array))
    if array.ndim == 1:
        return text[1:-1].split(b",")
    return [b"[" + row + b"]" for row in text[2:-2].split(b"],[")]


def _array_text(name: str, array: NDArray[Any], is_finite: bool) -> bytes:
    if not array.ndim:
        return dumps(_shown(name, array), is_finite)
    return _text_in_parts(len(array), lambda rows: _shown(name, array[rows]), is_finite)


def list_json(key: str, values: Any, is_finite: bool | None = None) -> bytes:
    """Return an object with one list or array.

    >>> list_json("results", np.array([1.5, 2.0], np.float32))
    b'{"results":[1.5,2.0]}'
    """
    finite = are_finite([values]) if is_finite is None else is_finite
    text = _text_in_parts(len(values), lambda rows: values[rows], finite)
    return b"{" + dumps(key) + b":" + text + b"}"


def _text_in_parts(count: int, part: Callable[[slice], Any], is_finite: bool) -> bytes:
    """Return a list as JSON. Other threads run between two parts of a long one."""
    if count <= _ROWS_AT_ONCE:
        return dumps(part(slice(None)), is_finite)
    texts = (
        dumps(part(slice(start, start + _ROWS_AT_ONCE)), is_finite)[1:-1]
        for start in range(0, count, _ROWS_AT_ONCE)
    )
    return b"[" + b",".join(texts) + b"]"


def are_finite(arrays: Iterable[NDArray[Any]]) -> bool:
    """Return whether no array has NaN or an infinity, which `dumps` must know."""
    return all(
        array.dtype.kind not in "fV" or bool(np.isfinite(array).all())
        for array in arrays
    )


def _shown(name: str, array: NDArray[Any]) -> Any:
    if array.dtype == object:
        return texts_json(array, is_bytes=name.endswith("_bytes"))
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def texts_json(array: NDArray[Any], *, is_bytes: bool) -> Any:
    """Return an array of bytes as nested lists of JSON strings or base64 objects."""
    flat = array.reshape(-1).tolist()
    shown = np.empty(len(flat), object)
    try:
        if is_bytes:
            raise ValueError
        shown[:] = [data.decode() for data in flat]
    except ValueError:  # JSON strings are UTF-8, so other bytes are sent as base64
        shown[:] = [_text_json(data, is_bytes) for data in flat]
    return shown.reshape(array.shape).tolist()


def _text_json(data: bytes, is_bytes: bool) -> Any:
    if not is_bytes:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(data).decode()}


def dumps(value: Any, is_finite: bool = True) -> bytes:
    """Return a value as JSON; float32 with the digits that float32 needs.

    orjson writes null for NaN, so arrays with such numbers take a slower way.
    """
    if is_finite:
        return orjson.dumps(value, option=_SERIALIZE)
    return json.dumps(_plain(value), ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain_array(np.asarray(value))
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _plain_array(array: NDArray[Any]) -> Any:
    """Return nested lists; float32 as the shortest float64 that rounds to it."""
    if array.dtype != np.float32 and array.dtype != np.float16:
        return array.tolist()
    if not array.ndim:
        return float(str(array)) if math.isfinite(array) else float(array)
    return [_plain_array(inner) for inner in array]
