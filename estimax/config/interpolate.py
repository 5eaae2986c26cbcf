"""`${vars.x}`, `${name}` and `${env:X}` in the values of a run, and nothing else.

    tree = interpolate(tree, problems, environment)

A value that is one reference takes the referenced value with its type (`dim:
"${vars.dim}"` is a number when `vars.dim` is); a reference inside a text becomes text.
There are no expressions and no defaults: what a run does can be read off its file.
`$${` writes a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from estimax.config.nodes import (
    Entry,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    Unresolved,
    join,
    parse_value,
)
from estimax.config.origins import Origin, Problems
from estimax.core.errors import did_you_mean

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")


def interpolate(
    tree: MapNode, problems: Problems, environment: Mapping[str, str]
) -> MapNode:
    """Replace every reference; what cannot be resolved becomes a problem."""
    resolver = _Resolver(tree, problems, environment)
    resolved = resolver.walk(tree, "", ())
    resolver.note_unused()
    assert isinstance(resolved, MapNode)
    return resolved


class _Resolver:
    def __init__(
        self, tree: MapNode, problems: Problems, environment: Mapping[str, str]
    ) -> None:
        self.tree = tree
        self.problems = problems
        self.environment = environment
        self.used: set[str] = set()
        self.circular: set[str] = set()
        self.vars: dict[str, Entry] = {}
        entry = tree.entries.get("vars")
        if entry is not None and isinstance(entry.node, MapNode):
            self.vars = entry.node.entries

    def walk(self, node: Node, path: str, above: tuple[str, ...]) -> Node:
        if isinstance(node, MapNode):
            entries = {
                key: Entry(e.key_origin, self.walk(e.node, join(path, key), above))
                for key, e in node.entries.items()
            }
            return MapNode(entries, node.origin)
        if isinstance(node, ListNode):
            items = (
                self.walk(item, join(path, str(i)), above)
                for i, item in enumerate(node.items)
            )
            return ListNode(tuple(items), node.origin)
        if isinstance(node.value, str) and "${" in node.value:
            return self._text(node, node.value, path, above)
        return node

    def _text(
        self, node: ScalarNode, text: str, path: str, above: tuple[str, ...]
    ) -> Node:
        whole = _REFERENCE.fullmatch(text)
        if whole and whole[1] is not None:
            return self._lookup(whole[1], node.origin, path, above)

        def replaced(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            if match[1] is None:
                self.problems.add(node.origin, path, "'${' without a closing '}'")
                return match[0]
            found = self._lookup(match[1], node.origin, path, above)
            if isinstance(found, ScalarNode):
                return _as_text(found)
            text = f"${{{match[1]}}} is a list or mapping and cannot be part of a text"
            self.problems.add(node.origin, path, text)
            return match[0]

        return ScalarNode(_REFERENCE.sub(replaced, text), node.origin)

    def _lookup(
        self, name: str, origin: Origin, path: str, above: tuple[str, ...]
    ) -> Node:
        """The value of one reference, said to be written where it is used."""
        if name in above or name in self.circular:
            if name not in self.circular:
                circle = " -> ".join([*above, name])
                self.problems.add(origin, path, f"references go in a circle: {circle}")
                self.circular.update(above)
            return ScalarNode(Unresolved(), origin)
        if name.startswith("env:"):
            return self._environment(name.removeprefix("env:"), origin, path)
        target = self._target(name)
        if target is None:
            known = [f"vars.{key}" for key in self.vars] + ["name"]
            hint = did_you_mean(name, known)
            text = f"unknown reference ${{{name}}}{hint} (or env:VARIABLE)"
            self.problems.add(origin, path, text)
            return ScalarNode(Unresolved(), origin)
        self.used.add(name)
        return _at(self.walk(target, name, (*above, name)), origin)

    def _target(self, name: str) -> Node | None:
        if name == "name" and "name" in self.tree.entries:
            return self.tree.entries["name"].node
        key = name.removeprefix("vars.")
        if name.startswith("vars.") and key in self.vars:
            return self.vars[key].node
        return None

    def _environment(self, variable: str, origin: Origin, path: str) -> Node:
        if variable not in self.environment:
            text = f"environment variable {variable} is not set"
            self.problems.add(origin, path, text)
            return ScalarNode(Unresolved(), origin)
        return parse_value(self.environment[variable], origin)

    def note_unused(self) -> None:
        for key, entry in self.vars.items():
            # An included file may serve several runs, so its own vars may go unused.
            written_here = entry.key_origin.source == self.problems.file
            if written_here and f"vars.{key}" not in self.used:
                text = "nothing refers to it; remove it or use ${vars." + key + "}"
                self.problems.add(entry.key_origin, f"vars.{key}", text)


def _at(node: Node, origin: Origin) -> Node:
    """The same value with the place of its reference, for scalars."""
    return ScalarNode(node.value, origin) if isinstance(node, ScalarNode) else node


def _as_text(node: ScalarNode) -> str:
    if node.value is None:
        return ""
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return str(node.value)
