"""Plain text in columns, for terminals, notebooks and logs."""

from __future__ import annotations

from collections.abc import Sequence


def as_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out under their headings; cells that look like numbers go right.

    >>> print(as_text(["name", "size"], [["bias", "3"], ["kernel", "12"]]))
    name    size
    bias       3
    kernel    12
    """
    lines = [headings, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    is_number = [all(_is_number(row[i]) for row in rows) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in "+-"
