"""Changes to the tree of a run file: merged files and references.

    tree = merge(included, tree)                                     # include:
    tree = interpolate(tree, problems, environment)                  # ${…}

The references are `${vars.x}`, `${name}` and `${env:X}`. A value that is a single
reference takes the referenced value with its type: `dim: "${vars.dim}"` is a number if
`vars.dim` is one. A reference inside a string is replaced as text. There are no
expressions and no defaults, so that a run can be understood from its file. `$${` stands
for a literal `${`.

Each variable is resolved once, and every use of it takes its size from a budget.
Variables that refer to each other repeatedly, level after level, are thus refused
before they are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from estimax.config.nodes import (
    MAX_DEPTH,
    MAX_REFERENCES,
    Budget,
    ConfigNode,
    ListNode,
    MapEntry,
    MapNode,
    Problems,
    RunFileError,
    ScalarNode,
    Unresolved,
    ValueOrigin,
    height,
    join,
    shown,
)
from estimax.config.parse import check_value_characters, parse_value
from estimax.core.errors import did_you_mean

# No "{" inside a reference: with `[^}]*` every unclosed "${" would scan the rest of the
# text, which takes quadratic time.
_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")


def interpolate(
    tree: MapNode, problems: Problems, environment: Mapping[str, str]
) -> MapNode:
    """Return the tree with every reference replaced; report those without a value."""
    resolver = _Resolver(tree, problems, environment)
    resolved = resolver.walk(tree, "", (), 0)
    resolver.note_unused()
    assert isinstance(resolved, MapNode)
    return resolved


@dataclass(frozen=True)
class _Resolved:
    """The value of a variable, and how much of the budget it takes."""

    node: ConfigNode
    height: int
    nodes: int
    characters: int


class _Resolver:
    def __init__(
        self, tree: MapNode, problems: Problems, environment: Mapping[str, str]
    ) -> None:
        self.tree = tree
        self.problems = problems
        self.environment = environment
        # The tree itself is within its limits. This budget limits what it expands to.
        self.budget = Budget()
        self.is_exceeded = False
        self.resolved: dict[str, _Resolved] = {}
        self.used: set[str] = set()
        self.circular: set[str] = set()
        self.vars: dict[str, MapEntry] = {}
        entry = tree.entries.get("vars")
        if entry is not None and isinstance(entry.node, MapNode):
            self.vars = entry.node.entries

    def walk(
        self, node: ConfigNode, path: str, above: tuple[str, ...], depth: int
    ) -> ConfigNode:
        """Return `node` with its references replaced.

        `above` are the references that led here, `depth` how many mappings and lists
        of the result are around it.
        """
        text = node.value if isinstance(node, ScalarNode) else None
        size = len(text) if isinstance(text, str) else 0
        if not self._take(node.origin, path, nodes=1, characters=size):
            return ScalarNode(Unresolved(), node.origin)
        if isinstance(text, str) and "${" in text:
            return self._text(text, node.origin, path, above, depth)
        if isinstance(node, ScalarNode):
            return node
        if depth >= MAX_DEPTH:
            self._note_depth(node.origin, path)
            return ScalarNode(Unresolved(), node.origin)
        if isinstance(node, MapNode):
            entries = {}
            for key, entry in node.entries.items():
                value = self.walk(entry.node, join(path, key), above, depth + 1)
                entries[key] = MapEntry(entry.key_origin, value)
            return MapNode(entries, node.origin)
        items = []
        for i, item in enumerate(node.items):
            items.append(self.walk(item, join(path, str(i)), above, depth + 1))
        return ListNode(tuple(items), node.origin)

    def _text(
        self,
        text: str,
        origin: ValueOrigin,
        path: str,
        above: tuple[str, ...],
        depth: int,
    ) -> ConfigNode:
        whole = _REFERENCE.fullmatch(text)
        if whole and whole[1] is not None:
            return self._lookup(whole[1], origin, path, above, depth)

        def replaced(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            if match[1] is None:
                self.problems.add(origin, path, "'${' without a closing '}'")
                return match[0]
            found = self._lookup(match[1], origin, path, above, depth)
            if isinstance(found, ScalarNode):
                return _as_text(found)
            text = f"{_shown(match[1])} is a list or mapping, which no text can hold"
            self.problems.add(origin, path, text)
            return match[0]

        result = _REFERENCE.sub(replaced, text)
        if not self._take(origin, path, characters=len(result)):
            return ScalarNode(Unresolved(), origin)
        return ScalarNode(result, origin)

    def _lookup(
        self,
        name: str,
        origin: ValueOrigin,
        path: str,
        above: tuple[str, ...],
        depth: int,
    ) -> ConfigNode:
        """Return the value of a reference, with the origin of the reference."""
        nothing = ScalarNode(Unresolved(), origin)
        if name in above or name in self.circular:
            if name not in self.circular:
                circle = " -> ".join([*above, name])
                self.problems.add(origin, path, f"references go in a circle: {circle}")
                self.circular.update(above)
            return nothing
        if name.startswith("env:"):
            return self._environment(name.removeprefix("env:"), origin, path)
        target = self._target(name)
        if target is None:
            known = [f"vars.{key}" for key in self.vars] + ["name"]
            hint = did_you_mean(name, known)
            text = f"unknown reference {_shown(name)}{hint} (or env:VARIABLE)"
            self.problems.add(origin, path, text)
            return nothing
        self.used.add(name)
        if len(above) >= MAX_REFERENCES:
            text = f"references lead through more than {MAX_REFERENCES} others"
            self.problems.add(origin, path, f"{text}; write the value out")
            return nothing
        found = self.resolved.get(name)
        if found is None:
            found = self.resolved[name] = self._resolve(name, target, above, depth)
        else:
            use = {"nodes": found.nodes, "characters": found.characters}
            if not self._take(origin, path, **use):
                return nothing
        if depth + found.height > MAX_DEPTH:
            self._note_depth(origin, path)
            return nothing
        return _at(found.node, origin)

    def _resolve(
        self, name: str, target: ConfigNode, above: tuple[str, ...], depth: int
    ) -> _Resolved:
        before = self.budget.nodes, self.budget.characters
        node = self.walk(target, name, (*above, name), depth)
        if isinstance(node, ScalarNode):
            return _Resolved(node, 0, 1, len(str(node.value)))
        nodes, characters = self.budget.nodes, self.budget.characters
        return _Resolved(node, height(node), before[0] - nodes, before[1] - characters)

    def _note_depth(self, origin: ValueOrigin, path: str) -> None:
        text = f"references nest lists and mappings more than {MAX_DEPTH} deep"
        self.problems.add(origin, path, f"{text}; write the value out")

    def _take(
        self, origin: ValueOrigin, path: str, *, nodes: int = 0, characters: int = 0
    ) -> bool:
        """Take from the budget; report a problem and return False if it is used up."""
        exceeded = self.budget.take(nodes=nodes, characters=characters)
        if exceeded is not None and not self.is_exceeded:
            self.is_exceeded = True  # reported once: all later values exceed it as well
            text = f"references expand to {exceeded}; write fewer or shorter ones"
            self.problems.add(origin, path, text)
        return exceeded is None

    def _target(self, name: str) -> ConfigNode | None:
        if name == "name" and "name" in self.tree.entries:
            return self.tree.entries["name"].node
        key = name.removeprefix("vars.")
        if name.startswith("vars.") and key in self.vars:
            return self.vars[key].node
        return None

    def _environment(self, variable: str, origin: ValueOrigin, path: str) -> ConfigNode:
        if variable not in self.environment:
            text = f"environment variable {_shown(variable)[2:-1]} is not set"
            self.problems.add(origin, path, text)
            return ScalarNode(Unresolved(), origin)
        value = self.environment[variable]
        is_text = check_value_characters(value, origin, path, self.problems)
        if not is_text or not self._take(origin, path, characters=len(value)):
            return ScalarNode(Unresolved(), origin)
        # A variable of the environment may contain what a run file may not, such as a
        # tag. That is not an error of the run file; the value is a string then.
        problems = Problems(str(origin))
        try:
            node = parse_value(value, origin, path, problems, self.budget)
            problems.raise_if_any()
        except RunFileError:
            return ScalarNode(value, origin)
        return node

    def note_unused(self) -> None:
        for key, entry in self.vars.items():
            # An included file may serve several runs, so its variables may be unused.
            written_here = entry.key_origin.source == self.problems.file
            if written_here and f"vars.{key}" not in self.used:
                text = "nothing refers to it; remove it or use ${vars." + key + "}"
                self.problems.add(entry.key_origin, f"vars.{key}", text)


def _at(node: ConfigNode, origin: ValueOrigin) -> ConfigNode:
    """Return a scalar with another origin; other nodes unchanged."""
    return ScalarNode(node.value, origin) if isinstance(node, ScalarNode) else node


def _shown(name: str) -> str:
    """Return a reference as written, shortened, with special characters escaped."""
    return f"${{{shown(name)[1:-1]}}}"


def _as_text(node: ScalarNode) -> str:
    if node.value is None:
        return ""
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return str(node.value)


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
