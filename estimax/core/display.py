"""Text for messages and `repr`, without memory addresses.

An address says nothing to a reader and differs from run to run.
"""

import dataclasses
import html
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Return a text without the addresses that Python's `repr` puts into it.

    >>> without_addresses("<function scale at 0x7f45b239a7a0>")
    '<function scale>'
    """
    return _ADDRESS.sub("", text)


def format_value(value: object) -> str:
    """Return `repr(value)` without addresses, and a function as its name.

    >>> format_value(format_value), format_value("text")
    ('format_value', "'text'")
    """
    name = getattr(value, "__name__", None) if callable(value) else None
    return name or without_addresses(repr(value))


def format_path(path: str | os.PathLike[str]) -> str:
    """Return a path below the working directory without that, any other as it is.

    >>> format_path(os.path.join(os.getcwd(), "runs")), format_path("/data")
    ('runs', '/data')
    """
    text = os.fspath(path)
    try:
        below = os.path.join(os.getcwd(), "")
    except FileNotFoundError:  # the working directory was removed
        return text
    return text.removeprefix(below) or text


def format_fields(value: Any) -> str:
    """Return the `repr` of a dataclass, with functions as their names."""
    fields = dataclasses.fields(value)
    given = [
        f"{field.name}={format_value(getattr(value, field.name))}" for field in fields
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def html_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = ""
) -> str:
    """Return a table for a notebook, with a line of text above it.

    >>> html_table(["name"], [["a<b"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>a&lt;b</td></tr></tbody></table>'
    """
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{_cells('th', headings)}</tr></thead>"
    above = html_text(title) if title else ""
    return f"{above}<table>{head}<tbody>{body}</tbody></table>"


def html_text(text: str) -> str:
    """Return lines of text for a notebook, as they are.

    >>> html_text("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{html.escape(text)}</pre>"


def _cells(tag: str, values: Iterable[object]) -> str:
    return "".join(f"<{tag}>{html.escape(str(v))}</{tag}>" for v in values)
