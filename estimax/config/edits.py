"""Changes of the tree of a run file: `--set`, `--model-dir` and references.

    tree = apply_override(tree, "train.max_steps=500", problems, budget)
    tree = interpolate(tree, problems, environment)                  # ${…}

The references are `${vars.x}`, `${name}`, `${folder}` (the folder of the run file) and
`${env:X}`. A value that is a single reference takes the referenced value with its type:
`dim: "${vars.dim}"` is a number if `vars.dim` is one. A reference inside a string is
replaced as text. There are no expressions and no defaults, so that a run can be
understood from its file. `$${` stands for a literal `${`.

Each variable is resolved once, and every use of it takes its size from a budget.
Variables that refer to each other repeatedly, level after level, are thus refused
before they are expanded.
"""

from __future__ import annotations

import fnmatch
import os
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from estimax.config.nodes import (
    MAX_DEPTH,
    MAX_KEY,
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
    format_value,
    height,
    join,
)
from estimax.config.parse import check_value_characters, parse_value
from estimax.config.schema import Run
from estimax.config.schema.section import fields_of, is_section, members, tag_of
from estimax.core.errors import did_you_mean


def apply_override(
    tree: MapNode, text: str, problems: Problems, budget: Budget
) -> MapNode:
    """Apply one `PATH=VALUE` of `--set`; its problems have the option as origin."""
    path, equals, value = text.partition("=")
    origin = _option("--set", text)
    keys = path.strip().split(".")
    if not equals or not all(keys):
        problems.add(origin, "", "expected PATH=VALUE, such as train.max_steps=500")
        return tree
    if len(keys) > MAX_DEPTH or not all(_is_key(key) for key in keys):
        limits = f"at most {MAX_DEPTH} keys of {MAX_KEY} printable characters"
        problems.add(origin, "", f"expected a PATH of {limits}, joined by dots")
        return tree
    if keys[0] == "include":
        text = "files are included before --set applies; write it in the run file"
        problems.add(origin, "include", text)
        return tree
    node = parse_value(value.strip(), origin, ".".join(keys), problems, budget)
    if not any(_is_pattern(key) for key in keys):
        return _set_key(tree, keys, node, origin, problems)
    paths = [found for found in _matches(tree, keys, ()) if _fits(tree, found)]
    if not paths:
        text = "no value of the run file matches this pattern"
        problems.add(origin, ".".join(keys), text)
    for found in paths:
        tree = _set_key(tree, list(found), node, origin, problems)
    return tree


def _is_pattern(key: str) -> bool:
    return any(character in key for character in "*?[")


def _matches(
    node: ConfigNode | None, keys: list[str], above: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the addresses that a pattern means; only keys that exist match `*`."""
    if not keys:
        yield above
        return
    key, rest = keys[0], keys[1:]
    below: dict[str, ConfigNode] = {}
    if isinstance(node, MapNode):
        below = {name: entry.node for name, entry in node.entries.items()}
    elif isinstance(node, ListNode):
        below = {str(i): item for i, item in enumerate(node.items)}
    if not _is_pattern(key):
        yield from _matches(below.get(key), rest, (*above, key))
        return
    for name, item in below.items():
        if fnmatch.fnmatchcase(name, key):
            yield from _matches(item, rest, (*above, name))


def _fits(tree: MapNode, keys: tuple[str, ...]) -> bool:
    """Return whether the section at an address has its last key.

    So `features.*.oov_buckets` means the vocabularies alone.
    """
    kinds: list[Any] = [Run]
    node: ConfigNode | None = tree
    for key in keys:
        found: list[Any] = []
        for kind in kinds:
            if is_section(kind) and key in (fields := fields_of(kind)):
                if _is_variant(kind, node):
                    found += members(fields[key].kind)
            elif typing.get_origin(kind) is Mapping:
                found += members(typing.get_args(kind)[1])
            elif typing.get_origin(kind) is tuple:
                found += members(typing.get_args(kind)[0])
            elif kind is Any:
                return True
        if isinstance(node, MapNode):
            node = node.entries[key].node if key in node.entries else None
        elif isinstance(node, ListNode):
            node = node.items[int(key)]
        kinds = found
    return bool(kinds)


def _is_variant(section: type, node: ConfigNode | None) -> bool:
    """Return whether a mapping has the tag of a section, or the section has none."""
    tag = tag_of(section)
    entry = node.entries.get(tag[0]) if tag and isinstance(node, MapNode) else None
    if tag is None or entry is None:
        return True
    return isinstance(entry.node, ScalarNode) and entry.node.value == tag[1]


def set_model_dir(tree: MapNode, model_dir: str, problems: Problems) -> MapNode:
    """Apply `--model-dir`, whose value is always a string."""
    origin = _option("--model-dir", model_dir)
    if not check_value_characters(model_dir, origin, "run.model_dir", problems):
        return tree
    node = ScalarNode(model_dir, origin)
    return _set_key(tree, ["run", "model_dir"], node, origin, problems)


def _option(name: str, text: str) -> ValueOrigin:
    """Return an origin that shows an option; a long value is shortened."""
    whole = text if len(text) <= 100 else f"{text[:99]}…"
    # Characters that cannot be printed are shown as escapes.
    return ValueOrigin(
        f"{name} {whole if whole.isprintable() else format_value(whole, 120)}"
    )


def _is_key(key: str) -> bool:
    return len(key) <= MAX_KEY and key.isprintable()


def _set_key(
    tree: MapNode,
    keys: list[str],
    value: ConfigNode,
    origin: ValueOrigin,
    problems: Problems,
) -> MapNode:
    changed = _set(tree, keys, "", value, origin, problems)
    assert isinstance(changed, MapNode)
    return changed


def _set(
    node: ConfigNode | None,
    keys: list[str],
    path: str,
    value: ConfigNode,
    origin: ValueOrigin,
    problems: Problems,
) -> ConfigNode:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    here = join(path, key)
    if isinstance(node, ListNode):
        # An index has no more digits than the length of the list. int() may raise an
        # error for thousands of digits.
        is_index = key.isdecimal() and len(key) <= len(str(len(node.items)))
        if not is_index or int(key) >= len(node.items):
            last = len(node.items) - 1
            text = f"an index from 0 to {last}" if node.items else "no key: it is empty"
            problems.add(origin, here, f"expected {text}, got {format_value(key)}")
            return node
        items = list(node.items)
        items[int(key)] = _set(items[int(key)], rest, here, value, origin, problems)
        return ListNode(tuple(items), node.origin)
    # `--set a.b=1` replaces a scalar `a` by a mapping.
    old = node if isinstance(node, MapNode) else MapNode({}, origin)
    below = old.entries[key].node if key in old.entries else None
    changed = _set(below, rest, here, value, origin, problems)
    kept = old.entries[key].key_origin if key in old.entries and rest else origin
    return MapNode({**old.entries, key: MapEntry(kept, changed)}, old.origin)


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

        def replace_reference(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            if match[1] is None:
                self.problems.add(origin, path, "'${' without a closing '}'")
                return match[0]
            found = self._lookup(match[1], origin, path, above, depth)
            if isinstance(found, ScalarNode):
                return _as_text(found)
            reference = _format_reference(match[1])
            text = f"{reference} is a list or mapping, which no text can hold"
            self.problems.add(origin, path, text)
            return match[0]

        result = _REFERENCE.sub(replace_reference, text)
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
            known = [f"vars.{key}" for key in self.vars] + ["name", "folder"]
            hint = did_you_mean(name, known)
            text = (
                f"unknown reference {_format_reference(name)}{hint} (or env:VARIABLE)"
            )
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
        if name == "folder":
            folder = os.path.dirname(os.path.abspath(self.problems.file))
            origin = ValueOrigin(self.problems.file)
            # The path itself contains no references.
            return ScalarNode(folder.replace("${", "$${"), origin)
        key = name.removeprefix("vars.")
        if name.startswith("vars.") and key in self.vars:
            return self.vars[key].node
        return None

    def _environment(self, variable: str, origin: ValueOrigin, path: str) -> ConfigNode:
        if variable not in self.environment:
            text = (
                f"environment variable {_format_reference(variable)[2:-1]} is not set"
            )
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


def _format_reference(name: str) -> str:
    """Return a reference as written, shortened, with special characters escaped."""
    return f"${{{format_value(name)[1:-1]}}}"


def _as_text(node: ScalarNode) -> str:
    if node.value is None:
        return ""
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return str(node.value)
