"""Read run files, and merge each with the files that it includes.

    reader = FileReader(problems, Budget())
    source = reader.text(path, ValueOrigin(str(path), 1, 1))
    tree = reader.tree(path, source)

Each file is read and merged once, however often it is included.
"""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path

from estimax.config.interpolate import merge
from estimax.config.nodes import (
    MAX_BYTES,
    MAX_INCLUDES,
    Budget,
    ListNode,
    MapNode,
    Problems,
    ScalarNode,
    Unresolved,
    ValueOrigin,
    shown,
)
from estimax.config.parse import parse

_OTHER_ENCODINGS = {
    # UTF-32 comes first, because its byte order marks begin with those of UTF-16.
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class FileReader:
    """Reads the files of one run, within its budget.

    Args:
      problems: Collects the problems of the files.
      budget: Limits what all files together may expand to.
    """

    def __init__(self, problems: Problems, budget: Budget) -> None:
        self._problems = problems
        self._budget = budget
        self._bytes = MAX_BYTES
        self._includes = 0
        self._trees: dict[Path, MapNode | None] = {}

    def text(self, path: Path, origin: ValueOrigin) -> str | None:
        """Return the text of a file; report a problem and return None on failure.

        A file that cannot be read is a problem at `origin`. A byte that is not UTF-8 is
        a problem at its position in the file.
        """
        try:
            with open(path, "rb") as file:
                data = file.read(self._bytes + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self._problems.add(origin, "", f"cannot read {path}: {reason}")
            return None
        if len(data) > self._bytes:
            text = (
                f"{path} makes the files of this run larger than "
                f"{MAX_BYTES / 1e6:.0f} MB; move long word lists to files of their own"
            )
            self._problems.add(origin, "", text)
            return None
        self._bytes -= len(data)
        return _decoded(data, str(path), self._problems)

    def tree(self, path: Path, text: str) -> MapNode | None:
        """Return the tree of a file's text, merged over the files that it includes."""
        return self._merged(path, text, ())

    def _merged(self, path: Path, text: str, above: tuple[Path, ...]) -> MapNode | None:
        node = parse(text, str(path), self._problems, self._budget)
        if node is None:
            return None
        if isinstance(node, ScalarNode) and node.value is None:
            node = MapNode({}, node.origin)  # "---" and nothing after it
        if not isinstance(node, MapNode):
            found = "a list" if isinstance(node, ListNode) else shown(node.value)
            expected = "expected a mapping of sections (name: ..., data: ...)"
            self._problems.add(node.origin, "", f"{expected}, got {found}")
            return None
        base = MapNode({}, node.origin)
        for item in _include_items(node):
            below = self._included(item, path, (*above, path.resolve()))
            base = merge(base, below) if below is not None else base
        return merge(base, node)

    def _included(
        self, item: ScalarNode, path: Path, above: tuple[Path, ...]
    ) -> MapNode | None:
        name = str(item.value)
        self._includes += 1
        if self._includes > MAX_INCLUDES:
            if self._includes == MAX_INCLUDES + 1:
                text = f"more than {MAX_INCLUDES} includes; merge some of the files"
                self._problems.add(item.origin, "include", text)
            return None
        if "${" in name:
            text = "references are not resolved here; write the file's name"
            self._problems.add(item.origin, "include", text)
            return None
        target = path.parent / name
        if not os.path.isfile(target):
            found = "a folder" if os.path.isdir(target) else "no file"
            text = f"{found} {target}" if len(name) < 200 else f"no file {shown(name)}"
            self._problems.add(item.origin, "include", text)
            return None
        resolved = target.resolve()
        if resolved in above:
            text = f"{name} includes itself"
            self._problems.add(item.origin, "include", text)
            return None
        if resolved not in self._trees:
            inner = self.text(target, item.origin)
            tree = None if inner is None else self._merged(target, inner, above)
            self._trees[resolved] = tree
        return self._trees[resolved]


def _include_items(node: MapNode) -> list[ScalarNode]:
    """Return the items of `include` that are strings; decoding reports the others."""
    entry = node.entries.get("include")
    if entry is None or not isinstance(entry.node, ListNode):
        return []
    return [
        item
        for item in entry.node.items
        if isinstance(item, ScalarNode)
        and isinstance(item.value, str)
        and not isinstance(item.value, Unresolved)
    ]


def _decoded(data: bytes, file: str, problems: Problems) -> str | None:
    for mark, name in _OTHER_ENCODINGS.items():
        if data.startswith(mark):
            text = f"the file is written in {name}; save it as UTF-8"
            problems.add(ValueOrigin(file, 1, 1), "", text)
            return None
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # Everything before the bad byte is UTF-8.
        before = re.split("\r\n|[\r\n]", data[: error.start].decode("utf-8"))
        origin = ValueOrigin(file, len(before), len(before[-1]) + 1)
        text = (
            f"the byte 0x{data[error.start]:02X} is not UTF-8; save the file as UTF-8"
        )
        problems.add(origin, "", text)
        return None
