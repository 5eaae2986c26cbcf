"""Parse JSON from files that may be damaged or forged, and check the types in it.

    json_text.parse(b'{"step": 3}')                 # {'step': 3}
    number = json_text.whole(record, "step")        # an int >= 0, or ValueError

Python's own parser keeps the last of two equal keys, recurses until the stack ends, and
does not check types. A manifest says which bytes to read and how many, so it must be
checked first. All functions raise `ValueError`; callers add the name of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# The deepest nesting allowed, more than any model or position in the data needs.
# Readers recurse, so it must stay far below Python's limit of 1000 calls.
MOST_LEVELS = 100
_MOST_AXES = 32


def parse(text: bytes | str) -> Any:
    """Parse JSON; raise ValueError if it is not JSON, repeats a key or is too deep.

    >>> parse('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is repeated
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise _too_deep() from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError if lists and dicts are nested deeper than MOST_LEVELS.

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
    """Return `value`; raise ValueError unless it is a JSON object.

    >>> mapping([1], "files")
    Traceback (most recent call last):
    ValueError: files: expected an object, found a list
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what}: expected an object, found {_kind(value)}")
    return value


def whole(record: Mapping[str, Any], key: str, *, below: int = 2**63) -> int:
    """Return `record[key]`; raise ValueError unless it is an integer in [0, below).

    >>> whole({"size": -1}, "size")
    Traceback (most recent call last):
    ValueError: size: expected a whole number from 0 to 2^63, found -1
    """
    value = record[key]
    if type(value) is not int or not 0 <= value < below:
        limit = f"2^{below.bit_length() - 1}"
        raise ValueError(
            f"{key}: expected a whole number from 0 to {limit}, found "
            f"{_format_value(value)}"
        )
    return value


def text(record: Mapping[str, Any], key: str) -> str:
    """Return `record[key]`; raise ValueError unless it is text.

    >>> text({"dtype": "float32"}, "dtype")
    'float32'
    """
    value = record[key]
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected text, found {_format_value(value)}")
    return value


def dimensions(record: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return the shape `record[key]`; raise ValueError unless it is a list of sizes.

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
            f"{_format_value(value)}"
        )
    return tuple(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict; raise ValueError if a key is repeated."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {_format_value(key)} is repeated")
            seen.add(key)
    return found


def _too_deep() -> ValueError:
    return ValueError(f"lists and objects are nested deeper than {MOST_LEVELS} levels")


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else _format_value(value)


def _format_value(value: Any) -> str:
    """Return the repr of a value, cut to 60 characters for a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
