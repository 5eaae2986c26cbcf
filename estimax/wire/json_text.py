"""JSON that somebody else may have written, read with its surprises refused.

    json_text.parse(b'{"step": 3}')                 # {'step': 3}
    number = json_text.whole(record, "step")        # an int >= 0, or ValueError

Python's own reader keeps the last of two equal keys, recurses until the stack ends, and
gives whatever type is found. A file that says which bytes to read, and how many, must
not get that far: everything here raises ValueError, which a caller turns into its own
error with the file's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Deeper than any description of a model or of a place in the data. Readers recurse, so
# this has to stay far from Python's limit of 1000 calls.
MOST_LEVELS = 100


def parse(text: bytes | str) -> Any:
    """Parse JSON; raise ValueError for what is none, repeats a key or is too deep.

    >>> parse('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is there twice
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise _too_deep() from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError if lists and dicts are nested in more than MOST_LEVELS levels.

    >>> check_depth([[["shallow"]]])
    """
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [
            item
            for inner in level
            if isinstance(inner, dict | list | tuple)
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
        if not level:
            return
    raise _too_deep()


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object.

    >>> mapping([1], "files")
    Traceback (most recent call last):
    ValueError: files: expected an object, found a list
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what}: expected an object, found {_kind(value)}")
    return value


def whole(record: Mapping[str, Any], key: str, *, below: int = 2**63) -> int:
    """Return the integer `record[key]`, which must be in [0, below).

    >>> whole({"size": -1}, "size")
    Traceback (most recent call last):
    ValueError: size: expected a whole number from 0 to 2^63, found -1
    """
    value = record[key]
    if type(value) is not int or not 0 <= value < below:
        limit = f"2^{below.bit_length() - 1}"
        raise ValueError(
            f"{key}: expected a whole number from 0 to {limit}, found {_shown(value)}"
        )
    return value


def text(record: Mapping[str, Any], key: str) -> str:
    """Return the text `record[key]`.

    >>> text({"dtype": "float32"}, "dtype")
    'float32'
    """
    value = record[key]
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected text, found {_shown(value)}")
    return value


def dimensions(record: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return the shape `record[key]`, a list of whole numbers.

    >>> dimensions({"shape": [2, 3]}, "shape")
    (2, 3)
    """
    value = record[key]
    sizes = value if isinstance(value, list) else [value]
    fits = len(sizes) <= _MOST_AXES and all(
        type(n) is int and 0 <= n < 2**63 for n in sizes
    )
    if not isinstance(value, list) or not fits:
        raise ValueError(
            f"{key}: expected a list of at most {_MOST_AXES} sizes, found "
            f"{_shown(value)}"
        )
    return tuple(value)


_MOST_AXES = 32


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {_shown(key)} is there twice")
            seen.add(key)
    return found


def _too_deep() -> ValueError:
    return ValueError(f"lists and objects are nested in over {MOST_LEVELS} levels")


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else _shown(value)


def _shown(value: Any) -> str:
    """Return the value as Python writes it, cut to a length that fits a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
