"""The tree of a run file: nodes, their origins, problems, scalars and limits.

    tree = parse("train: {max_steps: 1e3}", "run.yaml", Problems("run.yaml"))
    tree.entries["train"].node.origin        # run.yaml:1:8

- `MapNode`, `ListNode`, `ScalarNode`: the tree. Every key and value has a
  `ValueOrigin`, which says where it was written. Nodes are immutable; an alias, or a
  reference used twice, is the same node twice.
- `Problems`, `RunFileError`: all problems of a file, collected and raised at once.
- `read_scalar`, `plain_scalar`: the value of a YAML 1.2 scalar.
- `Budget` and the constants MAX_…: limits on what a run file may expand to.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import ConfigError

Scalar = str | int | float | bool | None

# Limits of one run, so that a hostile file cannot exhaust time or memory.
MAX_BYTES = 8_000_000  # of all files that one run reads
MAX_INCLUDES = 100  # entries of `include`, in all files
MAX_NODES = 250_000  # values, with aliases and references expanded
MAX_CHARACTERS = 16_000_000  # of text, with aliases and references expanded
MAX_DEPTH = 50  # mappings and lists inside each other
MAX_REFERENCES = 20  # `${vars.a}` to `${vars.b}` to ...
MAX_KEY = 200  # characters of a key
MAX_PROBLEMS = 100  # reported for one run


@dataclass(frozen=True)
class ScalarNode:
    """A string, number, boolean or null."""

    value: Scalar
    origin: ValueOrigin


@dataclass(frozen=True)
class ListNode:
    """A list of a run file, with the place where it was written."""

    items: tuple[ConfigNode, ...]
    origin: ValueOrigin


@dataclass(frozen=True)
class MapEntry:
    """The value of a key in a mapping, with the origin of the key."""

    key_origin: ValueOrigin
    node: ConfigNode


@dataclass(frozen=True)
class MapNode:
    """A mapping; keys are strings, in the order written."""

    entries: dict[str, MapEntry]
    origin: ValueOrigin


ConfigNode = ScalarNode | ListNode | MapNode


class Unresolved(str):
    """A placeholder for a value that could not be read or resolved.

    Its problem has been reported already, so later steps report nothing about it.
    """

    __slots__ = ()


def plain(node: ConfigNode) -> Any:  # dict, list or scalar
    """Return the node as Python data, without its origins.

    >>> at = ValueOrigin("x", 1, 1)
    >>> plain(MapNode({"a": MapEntry(at, ListNode((ScalarNode(1, at),), at))}, at))
    {'a': [1]}
    """
    if isinstance(node, MapNode):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return node.value


def height(node: ConfigNode) -> int:
    """Return how deeply mappings and lists are nested; 0 for a scalar."""
    if isinstance(node, MapNode):
        return 1 + max((height(e.node) for e in node.entries.values()), default=0)
    if isinstance(node, ListNode):
        return 1 + max((height(item) for item in node.items), default=0)
    return 0


def join(path: str, key: str) -> str:
    """Return the address of a key in the mapping at an address.

    >>> join("train", "max_steps"), join("", "train")
    ('train.max_steps', 'train')
    """
    return f"{path}.{key}" if path else key


@dataclass(frozen=True)
class ValueOrigin:
    """Where a value comes from: a position in a file, an option, or a default.

    >>> str(ValueOrigin("run.yaml", 4, 3))
    'run.yaml:4:3'
    >>> str(ValueOrigin("--set seed=1"))
    '--set seed=1'
    """

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


DEFAULT = ValueOrigin("default")


def format_value(value: object, most: int = 60) -> str:
    """Return the `repr` of a value for a message, cut to `most` characters.

    >>> format_value("abc"), format_value("x" * 100, most=10)
    ("'abc'", "'xxxxxxxx…")
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True)
class ConfigProblem:
    """One problem of a run file: where it is, the address of the value, the message."""

    origin: ValueOrigin
    path: str
    text: str

    def __str__(self) -> str:
        path = self.path if len(self.path) <= 200 else f"{self.path[:199]}…"
        address = f"{path}: " if path else ""
        return f"{self.origin}: {address}{self.text}"


class RunFileError(ConfigError):
    """Everything that is wrong with a run file, one line for each problem.

    >>> problem = ConfigProblem(ValueOrigin("a.yaml", 1, 1), "x", "bad")
    >>> print(RunFileError("a.yaml", [problem]))
    1 error in a.yaml
      a.yaml:1:1: x: bad
    """

    def __init__(self, file: str, problems: list[ConfigProblem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        count = f"{len(problems)} error{'s' if len(problems) > 1 else ''} in {file}"
        if len(problems) >= MAX_PROBLEMS:
            count += " (there may be more: the rest was not checked)"
        super().__init__("\n  ".join([count, *map(str, problems)]))


class Problems:
    """Collects the problems of one run file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[ConfigProblem, None] = {}  # in the order of their discovery

    def add(self, origin: ValueOrigin, path: str, text: str) -> None:
        """Add a problem, unless the same one was added before.

        Raises:
          RunFileError: There are MAX_PROBLEMS (100) now. To find suggestions for tens
            of thousands of problems would take minutes.
        """
        self._found[ConfigProblem(origin, path, text)] = None
        if len(self._found) >= MAX_PROBLEMS:
            self.raise_if_any()

    def __bool__(self) -> bool:
        """Return whether there is a problem."""
        return bool(self._found)

    def under(self, path: str) -> bool:
        """Return whether there is a problem at or below an address."""
        return any(p.path == path or p.path.startswith(f"{path}.") for p in self._found)

    def raise_if_any(self) -> None:
        """Raise `RunFileError` with all problems, in the order of their positions."""
        if self._found:
            raise RunFileError(self.file, sorted(self._found, key=self._reading_order))

    def _reading_order(
        self, problem: ConfigProblem
    ) -> tuple[bool, bool, str, int, int]:
        origin = problem.origin
        # The run file first, then the files that it includes, then the command line.
        return (
            origin.line is None,
            origin.source != self.file,
            origin.source,
            origin.line or 0,
            origin.column or 0,
        )


_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)

SCALAR_PATTERNS = {"null": _NULL, "bool": _BOOL, "int": _INT, "float": _FLOAT}
_PREFIX = "tag:yaml.org,2002:"
_INT_RANGE = range(-(2**63), 2**63)
# Characters that no file path, column or word may contain: C functions end a string at
# NUL, and a lone surrogate (half of a character) cannot be encoded as UTF-8.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


class ScalarError(ValueError):
    """A scalar is not allowed in a run file; the message is shown to the user."""


def read_scalar(text: str, *, tag: str | None, is_plain: bool) -> Scalar:
    """Return the value of a scalar.

    Args:
      text: The scalar without quotes.
      tag: Its YAML tag, or None.
      is_plain: Whether it is written without quotes.

    Raises:
      ScalarError: The scalar is not allowed: a number out of range, an unknown tag, or
        a character that cannot be used.

    >>> read_scalar("5", tag="tag:yaml.org,2002:str", is_plain=True)
    '5'
    """
    if (unusable := _UNUSABLE.search(text)) is not None:
        character = f"U+{ord(unusable[0]):04X}"
        raise ScalarError(f"a text may not hold the character {character}; remove it")
    if tag is None:
        return plain_scalar(text) if is_plain else text
    kind = "str" if tag == "!" else tag.removeprefix(_PREFIX)
    check_tag(tag, {"str", *SCALAR_PATTERNS})
    if kind == "str":
        return text
    # `!!float 3` is valid YAML: the text of an integer is also that of a float.
    pattern = SCALAR_PATTERNS[kind]
    if not (pattern.fullmatch(text) or (kind == "float" and _INT.fullmatch(text))):
        raise ScalarError(f"expected {kind} after the tag !!{kind}, got {text[:60]!r}")
    value = plain_scalar(text)
    return float(value) if kind == "float" and isinstance(value, int) else value


def check_tag(tag: str | None, allowed: set[str]) -> None:
    """Raise `ScalarError` for a tag that is not among the `allowed` core tags.

    >>> check_tag("tag:yaml.org,2002:map", {"map"})
    >>> check_tag("tag:yaml.org,2002:python/tuple", {"seq"})
    Traceback (most recent call last):
    estimax.config.nodes.ScalarError: the tag !!python/tuple is not supported: \
a run file holds plain YAML (text, numbers, lists, mappings); remove the tag
    """
    if tag is None or tag == "!" or tag.removeprefix(_PREFIX) in allowed:
        return
    name = f"!!{tag.removeprefix(_PREFIX)}" if tag.startswith(_PREFIX) else tag
    raise ScalarError(
        f"the tag {name[:60]} is not supported: a run file holds plain YAML "
        "(text, numbers, lists, mappings); remove the tag"
    )


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar in YAML 1.2, in which NO is a string.

    >>> plain_scalar("1e-3"), plain_scalar("NO"), plain_scalar("true")
    (0.001, 'NO', True)
    """
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return _whole_number(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    return text


def _whole_number(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    digits = text[2:] if base != 10 else text.lstrip("+-")
    significant = digits.lstrip("0") or "0"
    # Python refuses to convert more than 4300 digits. 64 bits have at most 22 digits,
    # in octal.
    if len(significant) <= 22:
        number = int(significant, base) * (-1 if text.startswith("-") else 1)
        if number in _INT_RANGE:
            return number
    raise ScalarError(
        f"expected a whole number of at most 64 bits, got one of {len(digits):,} "
        "digits; quote it if it is meant as text"
    )


def _float(text: str) -> float:
    number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if math.isinf(number) and "inf" not in text.lower():
        raise ScalarError(
            f"expected a number of at most 1.8e308, got {text[:60]}; "
            "infinity is written .inf"
        )
    return number


@dataclass
class Budget:
    """How many values and characters a run may still add.

    >>> Budget().take(nodes=250_001)
    'more than 250,000 values'
    """

    nodes: int = MAX_NODES
    characters: int = MAX_CHARACTERS

    def take(self, *, nodes: int = 0, characters: int = 0) -> str | None:
        """Take an amount from the budget; return the limit that it exceeds, or None.

        An amount that exceeds a limit is not taken, so a smaller one may still fit.
        """
        if nodes > self.nodes:
            return f"more than {MAX_NODES:,} values"
        if characters > self.characters:
            return f"more than {MAX_CHARACTERS:,} characters of text"
        self.nodes -= nodes
        self.characters -= characters
        return None


def merge(below: MapNode, above: MapNode) -> MapNode:
    """Merge two mappings key by key; otherwise values of `above` replace `below`."""
    entries = dict(below.entries)
    for key, entry in above.entries.items():
        old = entries.get(key)
        node = entry.node
        if old and isinstance(old.node, MapNode) and isinstance(node, MapNode):
            node = merge(old.node, node)
        entries[key] = MapEntry(entry.key_origin, node)
    return MapNode(entries, above.origin)
