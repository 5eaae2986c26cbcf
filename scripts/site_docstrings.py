"""A Griffe extension: the examples of docstrings are sections of code on the site.

Griffe knows the section `Examples:` alone. It takes `Example:` for a note, and lines
with `>>>` that are in no section for prose.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SINGULAR = re.compile(r"^Example:$", re.MULTILINE)
# Lines from a prompt at the margin up to an empty line.
_BARE = re.compile(r"^>>> .*\n?(?:.+\n?)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Put examples under the title that Griffe knows, before it parses."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a class, function, attribute or module."""
        if obj.docstring is not None:
            text = _SINGULAR.sub("Examples:", obj.docstring.value)
            obj.docstring.value = _BARE.sub(_as_section, text)


def _as_section(found: re.Match[str]) -> str:
    lines = [f"  {line}" for line in found[0].splitlines()]
    return "\n".join(["Examples:", *lines, ""])
