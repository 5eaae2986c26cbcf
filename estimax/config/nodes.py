"""YAML text as a tree in which every key and value knows where it was written.

    problems = Problems("run.yaml")
    tree = parse("train: {max_steps: 1e3}", "run.yaml", problems)
    tree.entries["train"].node.origin        # run.yaml:1:8

Scalars follow YAML 1.2: only `true` and `false` are booleans (`NO` is a country) and
`1e-3` is a number. Stock PyYAML follows 1.1, lets the last of two equal keys win, and
forgets positions; hence this file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from estimax.config.origins import Origin, Problems

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class ScalarNode:
    """A text, number, truth value or null."""

    value: Scalar
    origin: Origin


@dataclass(frozen=True)
class ListNode:
    """A sequence."""

    items: tuple[Node, ...]
    origin: Origin


@dataclass(frozen=True)
class Entry:
    """One key of a mapping: where the key stands, and its value."""

    key_origin: Origin
    node: Node


@dataclass(frozen=True)
class MapNode:
    """A mapping with text keys, in the order written."""

    entries: dict[str, Entry]
    origin: Origin


Node = ScalarNode | ListNode | MapNode


class Unresolved(str):
    """The value of a reference that leads nowhere, which has been reported."""

    __slots__ = ()


def plain(node: Node) -> Any:  # dict, list or scalar
    """The node as Python data, without its places.

    >>> plain(parse("a: [1, true]", "x", Problems("x")))
    {'a': [1, True]}
    """
    if isinstance(node, MapNode):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return node.value


def parse(text: str, file: str, problems: Problems) -> Node | None:
    """Read one YAML document; None (and a problem) when it is not YAML.

    >>> parse("NO", "x", Problems("x")).value
    'NO'
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        _note_syntax_error(error, text, file, problems)
        return None
    except yaml.reader.ReaderError as error:
        problems.add(Origin(file, 1, 1), "", f"not UTF-8 text: {error.reason}")
        return None
    finally:
        loader.dispose()
    if root is None:
        return MapNode({}, Origin(file, 1, 1))
    return _Converter(file, problems).convert(root, "", ())


def parse_value(text: str, origin: Origin) -> Node:
    """Read a value given on the command line or in the environment, as YAML.

    What is not YAML is taken as text, so that paths and patterns need no quotes.

    >>> parse_value("[1, 2]", Origin("--set")).items[1].value
    2
    """
    problems = Problems(str(origin))
    node = parse(text, str(origin), problems)
    try:
        problems.raise_if_any()
    except ValueError:
        node = None
    if node is None or text == "":
        return ScalarNode(text, origin)
    return _moved(node, origin)


def _moved(node: Node, origin: Origin) -> Node:
    """The same tree, said to come from elsewhere."""
    if isinstance(node, MapNode):
        entries = node.entries.items()
        moved = {k: Entry(origin, _moved(e.node, origin)) for k, e in entries}
        return MapNode(moved, origin)
    if isinstance(node, ListNode):
        return ListNode(tuple(_moved(item, origin) for item in node.items), origin)
    return ScalarNode(node.value, origin)


def _note_syntax_error(
    error: yaml.MarkedYAMLError, text: str, file: str, problems: Problems
) -> None:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        problems.add(Origin(file, 1, 1), "", f"not YAML: {error}")
        return
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    hint = ""
    if "${" in line:
        hint = '; inside { } and [ ] a reference needs quotes: "${vars.x}"'
    elif "\t" in line:
        hint = "; indent with spaces, not tabs"
    origin = Origin(file, mark.line + 1, mark.column + 1)
    problems.add(origin, "", f"not YAML: {error.problem}{hint}")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, used for its nodes only."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own protocol


_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


SCALAR_PATTERNS = {"null": _NULL, "bool": _BOOL, "int": _INT, "float": _FLOAT}


def plain_scalar(text: str) -> Scalar:
    """What an unquoted scalar means in YAML 1.2.

    >>> plain_scalar("1e-3"), plain_scalar("NO"), plain_scalar("true")
    (0.001, 'NO', True)
    """
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Converter:
    """PyYAML nodes to ours, noting duplicate keys and what a run may not hold."""

    def __init__(self, file: str, problems: Problems) -> None:
        self.file = file
        self.problems = problems

    def convert(self, node: yaml.Node, path: str, above: tuple[int, ...]) -> Node:
        origin = self._origin(node)
        if id(node) in above:
            self.problems.add(origin, path, "an alias inside the thing it names")
            return ScalarNode(None, origin)
        if isinstance(node, yaml.MappingNode):
            return self._map(node, path, (*above, id(node)))
        if isinstance(node, yaml.SequenceNode):
            inner = (*above, id(node))
            items = (
                self.convert(item, join(path, str(i)), inner)
                for i, item in enumerate(node.value)
            )
            return ListNode(tuple(items), origin)
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _map(self, node: yaml.MappingNode, path: str, above: tuple[int, ...]) -> Node:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key_origin = self._origin(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.add(key_origin, path, "a key must be a single word")
                continue
            key = key_node.value
            here = join(path, key)
            if key in entries:
                first = entries[key].key_origin
                text = f"duplicate key; first on line {first.line}"
                self.problems.add(key_origin, here, text)
                continue
            entries[key] = Entry(key_origin, self.convert(value_node, here, above))
        return MapNode(entries, self._origin(node))

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Node:
        origin = self._origin(node)
        if node.tag.startswith("!") or node.tag.startswith("tag:yaml.org,2002:python"):
            self.problems.add(
                origin, path, f"tags such as {node.tag} are not used here"
            )
        is_plain = node.style is None
        return ScalarNode(plain_scalar(node.value) if is_plain else node.value, origin)

    def _origin(self, node: yaml.Node) -> Origin:
        mark = node.start_mark
        return Origin(self.file, mark.line + 1, mark.column + 1)


def join(path: str, key: str) -> str:
    """The address of a key below an address.

    >>> join("train", "max_steps"), join("", "train")
    ('train.max_steps', 'train')
    """
    return f"{path}.{key}" if path else key
