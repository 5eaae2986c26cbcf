"""Encodings of text files that can be cut into rows before they are decoded.

>>> encoding_problem("cp1252") is None, encoding_problem("utf-8") is None
(True, True)
>>> encoding_problem("latin-11")
"unknown encoding 'latin-11'"

A file of its own, without NumPy: `estimax check` uses it and must start fast.
"""

from __future__ import annotations

import codecs

_ASCII = bytes(range(128))
_OTHERS = bytes(range(128, 256))


def encoding_problem(name: str) -> str | None:
    """Return why a CSV file cannot have an encoding; None if it can.

    It must be UTF-8, or have one byte for each character and contain ASCII: a byte that
    looks like a delimiter, a quote or a line break is one then.
    """
    try:
        if is_utf_8(name):
            return None
        is_ascii = _ASCII.decode(name) == _ASCII.decode("ascii")
        has_one_byte = len(_OTHERS.decode(name, errors="replace")) == len(_OTHERS)
    except (LookupError, ValueError):
        return f"unknown encoding {name!r}"
    if is_ascii and has_one_byte:
        return None
    return (
        f"expected utf-8, or an encoding with one byte for each character such as "
        f"latin1 or cp1252, got {name!r}; convert the file to utf-8 instead"
    )


def is_utf_8(name: str) -> bool:
    """Return whether a name means UTF-8; raise LookupError for an unknown one.

    >>> is_utf_8("UTF8"), is_utf_8("latin1")
    (True, False)
    """
    return codecs.lookup(name).name == "utf-8"
