"""Parse YAML to nodes, with the position of every key, value and problem.

    problems = Problems("run.yaml")
    tree = parse("train: {max_steps: 1e3}", "run.yaml", problems)

PyYAML reads the text as a stream of events (through libyaml where it is installed,
which is about 20 times as fast), and this module builds the tree from the events.
PyYAML's own trees are not used, because they read scalars as YAML 1.1, let the last of
two equal keys win, accept any tag, and overflow the stack on deeply nested text.

An alias adds the size of its value to the budget but does not copy it. A file of nested
aliases is thus refused before anything is expanded.

`FileReader` reads the files of a run, and merges each with the files that it includes.
Each file is read and merged once, however often it is included.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from estimax.config.nodes import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_INCLUDES,
    MAX_KEY,
    Budget,
    ConfigNode,
    ListNode,
    MapEntry,
    MapNode,
    Problems,
    Scalar,
    ScalarError,
    ScalarNode,
    Unresolved,
    ValueOrigin,
    check_tag,
    format_value,
    height,
    join,
    merge,
    read_scalar,
)

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
        return _decode_text(data, str(path), self._problems)

    def tree(self, path: Path, text: str) -> MapNode | None:
        """Return the tree of a file's text, merged over the files that it includes."""
        return self._merge_includes(path, text, ())

    def _merge_includes(
        self, path: Path, text: str, above: tuple[Path, ...]
    ) -> MapNode | None:
        node = parse(text, str(path), self._problems, self._budget)
        if node is None:
            return None
        if isinstance(node, ScalarNode) and node.value is None:
            node = MapNode({}, node.origin)  # "---" and nothing after it
        if not isinstance(node, MapNode):
            found = "a list" if isinstance(node, ListNode) else format_value(node.value)
            expected = "expected a mapping of sections (name: ..., data: ...)"
            self._problems.add(node.origin, "", f"{expected}, got {found}")
            return None
        base = MapNode({}, node.origin)
        for item in _include_items(node):
            below = self._read_include(item, path, (*above, path.resolve()))
            base = merge(base, below) if below is not None else base
        return merge(base, node)

    def _read_include(
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
            text = (
                f"{found} {target}"
                if len(name) < 200
                else f"no file {format_value(name)}"
            )
            self._problems.add(item.origin, "include", text)
            return None
        resolved = target.resolve()
        if resolved in above:
            text = f"{name} includes itself"
            self._problems.add(item.origin, "include", text)
            return None
        if resolved not in self._trees:
            inner = self.text(target, item.origin)
            tree = None if inner is None else self._merge_includes(target, inner, above)
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


def _decode_text(data: bytes, file: str, problems: Problems) -> str | None:
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


_Events: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Characters that YAML allows only as escapes in double quotes.
_NOT_ALLOWED = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def parse(
    text: str, file: str, problems: Problems, budget: Budget | None = None
) -> ConfigNode | None:
    """Parse one YAML document; report a problem and return None if it is not YAML.

    Args:
      text: The document.
      file: The name of the file, for messages.
      problems: Collects the problems.
      budget: Limits what aliases may expand to; by default a new one.

    >>> parse("NO", "x", Problems("x")).value
    'NO'
    """

    def origin_of(mark: yaml.Mark) -> ValueOrigin:
        return ValueOrigin(file, mark.line + 1, mark.column + 1)

    if not _check_characters(text, file, problems):
        return None
    composer = _Composer(text, origin_of, problems, budget or Budget())
    try:
        node = composer.document("", 0)
    except yaml.MarkedYAMLError as error:
        _note_syntax_error(error, text, origin_of, problems)
        return None
    except _LimitError:
        return None
    return MapNode({}, ValueOrigin(file, 1, 1)) if node is None else node


def parse_value(
    text: str, origin: ValueOrigin, path: str, problems: Problems, budget: Budget
) -> ConfigNode:
    """Parse a value from the command line or the environment as YAML.

    A value that is not valid YAML is a string, so that paths and patterns need no
    quotes. Valid YAML that a run file may not contain (a tag, two equal keys) is a
    problem.

    >>> origin = ValueOrigin("--set")
    >>> parse_value("[1, 2]", origin, "", Problems("x"), Budget()).items[1].value
    2
    >>> parse_value("*.csv", origin, "", Problems("x"), Budget()).value
    '*.csv'
    """
    if not check_value_characters(text, origin, path, problems):
        return ScalarNode(Unresolved(), origin)
    if text == "":
        return ScalarNode(text, origin)
    depth = path.count(".") + 1
    try:
        composer = _Composer(text, lambda _: origin, problems, budget)
        node = composer.document(path, depth)
    except yaml.MarkedYAMLError:
        node = None
    except _LimitError:
        return ScalarNode(Unresolved(), origin)
    # "#ff0000" is a comment in YAML, so there is no node.
    return ScalarNode(text, origin) if node is None else node


def check_value_characters(
    text: str, origin: ValueOrigin, path: str, problems: Problems
) -> bool:
    """Report a character that YAML forbids in a value; return whether there is none."""
    found = _NOT_ALLOWED.search(text)
    if found is not None:
        problems.add(origin, path, _describe_character(found[0]))
    return found is None


def _check_characters(text: str, file: str, problems: Problems) -> bool:
    """Report the first character that YAML forbids; return whether there is none."""
    found = _NOT_ALLOWED.search(text)
    if found is None:
        return True
    before = re.split("\r\n|[\r\n\x85\u2028\u2029]", text[: found.start()])
    origin = ValueOrigin(file, len(before), len(before[-1]) + 1)
    problems.add(origin, "", _describe_character(found[0]))
    return False


def _describe_character(character: str) -> str:
    code = ord(character)
    # Python decodes bytes that are not UTF-8 to surrogates in arguments and variables.
    if 0xD800 <= code < 0xE000:
        return "the text is not UTF-8"
    kind = "control character" if code < 0xA0 else "character"
    return f"the {kind} U+{code:04X} is not allowed in YAML; remove it"


def _note_syntax_error(
    error: yaml.MarkedYAMLError,
    text: str,
    origin_of: Callable[[yaml.Mark], ValueOrigin],
    problems: Problems,
) -> None:
    mark = error.problem_mark or error.context_mark
    assert mark is not None, "the scanner, the parser and _Composer mark every error"
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    hint = ""
    if "${" in line:
        hint = '; inside { } and [ ] a reference needs quotes: "${vars.x}"'
    elif "\t" in line:
        hint = "; indent with spaces, not tabs"
    problems.add(origin_of(mark), "", f"not YAML: {error.problem}{hint}")


class _LimitError(Exception):
    """Stops parsing after a limit was exceeded; the problem has been reported."""


@dataclass(frozen=True)
class _Anchored:
    """The value of an anchor, and how much of the budget it took."""

    node: ConfigNode
    nodes: int
    characters: int


class _Composer:
    """Builds the nodes of one document from its events."""

    def __init__(
        self,
        text: str,
        origin_of: Callable[[yaml.Mark], ValueOrigin],
        problems: Problems,
        budget: Budget,
    ) -> None:
        self._events = _Events(text)
        self._origin_of = origin_of
        self._problems = problems
        self._budget = budget
        self._anchors: dict[str, _Anchored] = {}
        self._open: set[str] = set()  # anchors whose node is being built

    def document(self, path: str, depth: int) -> ConfigNode | None:
        """Return the only document of the text; None if the text is empty."""
        try:
            self._next()  # the start of the stream
            if isinstance(self._next(), yaml.StreamEndEvent):
                return None
            node = self._node(self._next(), path, depth)
            self._next()  # the end of the document
            event = self._next()
            if not isinstance(event, yaml.StreamEndEvent):
                raise _syntax_error(
                    event,
                    "a second document begins here; a run is one document: "
                    "remove the line ---, or move the rest to another file",
                )
            return node
        finally:
            self._events.dispose()

    def _next(self) -> Any:  # an event, whose classes have no types
        return self._events.get_event()

    def _node(self, event: Any, path: str, depth: int) -> ConfigNode:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, depth)
        self._take(event, path, nodes=1)
        anchor = event.anchor
        before = self._budget.nodes, self._budget.characters
        is_new = self._open_anchor(event, path)
        if isinstance(event, yaml.ScalarEvent):
            node: ConfigNode = self._scalar(event, path)
        else:
            self._check_depth(event, path, depth + 1)
            if isinstance(event, yaml.SequenceStartEvent):
                node = self._list(event, path, depth)
            else:
                node = self._map(event, path, depth)
        if is_new:
            self._open.remove(anchor)
            nodes = before[0] - self._budget.nodes + 1
            characters = before[1] - self._budget.characters
            self._anchors[anchor] = _Anchored(node, nodes, characters)
        return node

    def _open_anchor(self, event: Any, path: str) -> bool:
        if event.anchor is None:
            return False
        if event.anchor in self._anchors or event.anchor in self._open:
            text = f"the anchor &{event.anchor[:60]} is used before; rename one of them"
            self._note(event, path, text)
            return False
        self._open.add(event.anchor)
        return True

    def _alias(self, event: Any, path: str, depth: int) -> ConfigNode:
        name = event.anchor
        if name in self._open:
            text = f"the alias *{name[:60]} is inside the value that it names"
            self._note(event, path, f"{text}; write the value out")
            return ScalarNode(Unresolved(), self._origin(event))
        if name not in self._anchors:
            text = f"there is no anchor &{name[:60]} before the alias *{name[:60]}"
            raise _syntax_error(event, f"{text}; quote it if it is text")
        named = self._anchors[name]
        self._take(event, path, nodes=named.nodes, characters=named.characters)
        self._check_depth(event, path, depth + height(named.node))
        return named.node

    def _list(self, event: Any, path: str, depth: int) -> ConfigNode:
        self._check_tag(event, path, "seq")
        items: list[ConfigNode] = []
        while not isinstance(item := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(item, join(path, str(len(items))), depth + 1))
        return ListNode(tuple(items), self._origin(event))

    def _map(self, event: Any, path: str, depth: int) -> ConfigNode:
        self._check_tag(event, path, "map")
        entries: dict[str, MapEntry] = {}
        while not isinstance(key_event := self._next(), yaml.MappingEndEvent):
            key = self._key(key_event, path, depth)
            here = path if key is None else join(path, key)
            node = self._node(self._next(), here, depth + 1)
            if key is None:
                continue
            if key in entries:
                first = entries[key].key_origin
                text = f"duplicate key; first on line {first.line}"
                self._note(key_event, here, text)
                continue
            entries[key] = MapEntry(self._origin(key_event), node)
        return MapNode(entries, self._origin(event))

    def _key(self, event: Any, path: str, depth: int) -> str | None:
        """Return the key; report a problem and return None if it is not allowed."""
        node = self._node(event, path, depth + 1)
        if not isinstance(node, ScalarNode):
            self._note(event, path, "a key must be a single word, got a list or map")
            return None
        key = node.value
        if isinstance(key, Unresolved):
            return None
        if not isinstance(key, str):
            # A scalar event has the text as written; an alias event has only a name.
            written = getattr(event, "value", key) or "null"
            text = f"a key must be text, got {written}; quote it: '{written}'"
            self._note(event, path, text)
            return None
        if key == "<<" and not getattr(event, "style", None):
            text = "merge keys (<<) are not supported; write the keys out"
            self._note(event, path, f"{text}, or put them in a file and include it")
            return None
        if not key or len(key) > MAX_KEY or not key.isprintable():
            text = f"a key must be 1 to {MAX_KEY} printable characters"
            self._note(event, path, f"{text}, got {format_value(key)}")
            return None
        return key

    def _scalar(self, event: Any, path: str) -> ScalarNode:
        self._take(event, path, characters=len(event.value))
        value: Scalar
        try:
            value = read_scalar(event.value, tag=event.tag, is_plain=not event.style)
        except ScalarError as error:
            self._note(event, path, str(error))
            value = Unresolved()
        return ScalarNode(value, self._origin(event))

    def _check_tag(self, event: Any, path: str, kind: str) -> None:
        try:
            check_tag(event.tag, {kind})
        except ScalarError as error:
            self._note(event, path, str(error))

    def _take(
        self, event: Any, path: str, *, nodes: int = 0, characters: int = 0
    ) -> None:
        exceeded = self._budget.take(nodes=nodes, characters=characters)
        if exceeded is not None:
            self._stop(event, path, f"the run expands to {exceeded}")

    def _check_depth(self, event: Any, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            text = f"lists and mappings are nested more than {MAX_DEPTH} deep"
            self._stop(event, path, text)

    def _stop(self, event: Any, path: str, text: str) -> None:
        self._note(event, path, f"{text}; make the file smaller or simpler")
        raise _LimitError

    def _note(self, event: Any, path: str, text: str) -> None:
        self._problems.add(self._origin(event), path, text)

    def _origin(self, event: Any) -> ValueOrigin:
        return self._origin_of(event.start_mark)


def _syntax_error(event: Any, text: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)
