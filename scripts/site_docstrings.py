"""A Griffe extension: complete docstrings, whose examples are sections of code.

Griffe reads the source. The decorators of `estimax/core/docstrings.py` complete a
docstring when the module is imported, so the complete text is read from the function,
method or class.
Griffe knows the section `Examples:` alone. It takes `Example:` for a note, and lines
with `>>>` that are in no section for prose.
"""

from __future__ import annotations

import importlib
import inspect
import operator
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
            if _is_completed(obj):
                module = importlib.import_module(obj.module.path)
                name = obj.path.removeprefix(f"{obj.module.path}.")
                found = operator.attrgetter(name)(module)
                obj.docstring.value = inspect.getdoc(found) or ""
            text = _SINGULAR.sub("Examples:", obj.docstring.value)
            obj.docstring.value = _BARE.sub(_as_section, text)


def _is_completed(obj: griffe.Object) -> bool:
    decorators = getattr(obj, "decorators", ())
    return any(str(item.value).startswith("document_") for item in decorators)


def _as_section(found: re.Match[str]) -> str:
    lines = [f"  {line}" for line in found[0].splitlines()]
    return "\n".join(["Examples:", *lines, ""])
