"""The tree of a run file, in which every key and value knows where it was written.

    tree = parse("train: {max_steps: 1e3}", "run.yaml", Problems("run.yaml"))
    tree.entries["train"].node.origin        # run.yaml:1:8

Nodes are immutable: an alias, or a reference used twice, is the same node twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from estimax.config.origins import Origin
from estimax.config.scalars import Scalar


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
    """Stands for a value that was refused, or whose reference leads nowhere.

    The problem has been reported; what reads the value later adds none of its own.
    """

    __slots__ = ()


def plain(node: Node) -> Any:  # dict, list or scalar
    """Return the node as Python data, without its origins.

    >>> at = Origin("x", 1, 1)
    >>> plain(MapNode({"a": Entry(at, ListNode((ScalarNode(1, at),), at))}, at))
    {'a': [1]}
    """
    if isinstance(node, MapNode):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return node.value


def height(node: Node) -> int:
    """Return how many mappings and lists are inside each other; 0 for a scalar."""
    if isinstance(node, MapNode):
        return 1 + max((height(e.node) for e in node.entries.values()), default=0)
    if isinstance(node, ListNode):
        return 1 + max((height(item) for item in node.items), default=0)
    return 0


def join(path: str, key: str) -> str:
    """Return the address of a key below an address.

    >>> join("train", "max_steps"), join("", "train")
    ('train.max_steps', 'train')
    """
    return f"{path}.{key}" if path else key
