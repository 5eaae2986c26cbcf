"""Values inside a position: arrays and text as JSON, exact to the bit.

    saved = to_json({"sum": np.float32(1.5), "names": Strings.of(["a"])})
    from_json(saved)

For the small states that some verbs keep (scan, unique); data itself is never saved.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimax.core.strings import Strings
from estimax.input.streams.structure import InputTypeError, Structure


def to_json(tree: Structure) -> Any:
    """A structure of arrays, scalars and text, for `json.dumps`.

    >>> from_json(to_json((np.arange(2), {"n": 1.5, "s": b"x"})))
    (array([0, 1]), {'n': 1.5, 's': b'x'})
    """
    if isinstance(tree, Mapping):
        return {"dict": [[key, to_json(value)] for key, value in tree.items()]}
    if isinstance(tree, tuple):
        return {"tuple": [to_json(value) for value in tree]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if isinstance(tree, bytes):
        return {"bytes": base64.b64encode(tree).decode()}
    if isinstance(tree, Strings):
        return {
            "text": [
                to_json(np.frombuffer(_joined(tree), np.uint8)),
                to_json(tree.lengths),
                list(tree.shape),
            ]
        }
    array = np.asarray(tree)
    if array.dtype.kind not in "biufc":
        raise InputTypeError(
            f"a position cannot hold a {type(tree).__name__}; use numbers and text."
        )
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"array": [array.dtype.str, list(array.shape), data]}


def from_json(saved: Any) -> Structure:
    """The structure that `to_json` was given."""
    ((kind, value),) = saved.items()
    if kind == "dict":
        return {key: from_json(part) for key, part in value}
    if kind == "tuple":
        return tuple(from_json(part) for part in value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "text":
        offsets = np.concatenate([[0], np.cumsum(from_json(value[1]))])
        return Strings(from_json(value[0]), offsets.astype(np.int64), tuple(value[2]))
    if kind == "array":
        dtype, shape, data = value
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)[()]
    return value


def _joined(text: Strings) -> bytes:
    return text.data[text.offsets[0] : text.offsets[-1]].tobytes()
