"""Docstrings that several functions share, written once.

    @document_like(stop_if_higher_hook)
    def stop_if_lower_hook(estimator, metric_name, threshold, ...):
        '''Make a hook that stops training when a metric is below a threshold.

        Args:
          threshold: Training stops when a value is below it, not when it is equal.
        '''

A decorator adds what the docstring leaves out: the entry in `Args:` of each parameter
that has none, `Returns:` and `Raises:`. What the docstring says itself stays as it is.
`help` and the API reference show the complete text. Editors read the source and do not,
so canned models, columns and heads write their docstrings in full.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Documented = TypeVar("_Documented", bound=Callable[..., Any])

_SECTIONS = ("Args", "Returns", "Raises", "Example")


def document_like(
    source: Callable[..., Any],
) -> Callable[[_Documented], _Documented]:
    """Return a decorator that takes missing parts from the docstring of `source`.

    The example of `source` is not taken, because it calls `source`.
    """
    _, shared = _split_sections(inspect.getdoc(source) or "")
    shared.pop("Example", None)
    return lambda documented: complete_docstring(documented, shared)


def complete_docstring(
    documented: _Documented, shared: Mapping[str, str], *, opening: str = ""
) -> _Documented:
    """Add what a docstring lacks, and return the function or class.

    Args:
      documented: The function, or the class with the parameters of its constructor.
      shared: The indented text of each section by its title: "Args", "Returns",
        "Raises". Entries of "Args" are used if there is a parameter of this name.
      opening: A sentence to put before the text under the summary.
    """
    if documented.__doc__ is None:  # python -OO removes docstrings
        return documented
    head, own = _split_sections(inspect.getdoc(documented) or "")
    if opening:
        summary, _, text = head.partition("\n\n")
        head = f"{summary}\n\n{textwrap.fill(f'{opening} {text}', 86)}"
    entries = {
        **_entries_by_name(shared.get("Args", "")),
        **_entries_by_name(own.get("Args", "")),
    }
    names = [
        name for name in inspect.signature(documented).parameters if name != "self"
    ]
    args = "\n".join(entries[name] for name in names)
    sections = {**shared, **own, "Args": args}
    blocks = [
        f"{title}:\n{sections[title]}" for title in _SECTIONS if sections.get(title)
    ]
    documented.__doc__ = "\n\n".join([head, *blocks]) + "\n"
    return documented


def format_entries(entries: Mapping[str, str]) -> str:
    """Return the text of a section such as `Args:` from the text of each name."""
    return "\n".join(
        textwrap.fill(
            f"{name}: {text}", 86, initial_indent="  ", subsequent_indent=" " * 4
        )
        for name, text in entries.items()
    )


def _split_sections(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the sections by title."""
    parts = re.split(rf"^({'|'.join(_SECTIONS)}):\n", text, flags=re.MULTILINE)
    bodies = (body.rstrip() for body in parts[2::2])
    return parts[0].strip(), dict(zip(parts[1::2], bodies, strict=True))


def _entries_by_name(section: str) -> dict[str, str]:
    """Return the entries of `Args:` by the name of their parameter."""
    entries = re.split(r"\n(?=  \S)", section) if section else []
    return {entry.split(":")[0].strip(): entry for entry in entries}
