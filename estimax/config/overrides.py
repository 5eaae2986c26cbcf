"""Overrides of the command line: `--set PATH=VALUE` and `--model-dir`.

    tree = apply_override(tree, "train.max_steps=5", problems, budget)
    tree = apply_override(tree, "features.*.oov_buckets=2", problems, budget)

A path may have patterns (`*`, `?`, `[ab]`) for keys that the run file has.
"""

from __future__ import annotations

import fnmatch
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from estimax.config.nodes import (
    MAX_DEPTH,
    MAX_KEY,
    Budget,
    ConfigNode,
    ListNode,
    MapEntry,
    MapNode,
    Problems,
    ScalarNode,
    ValueOrigin,
    join,
    shown,
)
from estimax.config.parse import check_value_characters, parse_value
from estimax.config.schema import Run
from estimax.config.schema.section import fields_of, is_section, members, tag_of


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
        return _changed(tree, keys, node, origin, problems)
    paths = [found for found in _matches(tree, keys, ()) if _fits(tree, found)]
    if not paths:
        text = "no value of the run file matches this pattern"
        problems.add(origin, ".".join(keys), text)
    for found in paths:
        tree = _changed(tree, list(found), node, origin, problems)
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
    return _changed(tree, ["run", "model_dir"], node, origin, problems)


def _option(name: str, text: str) -> ValueOrigin:
    """Return an origin that shows an option; a long value is shortened."""
    whole = text if len(text) <= 100 else f"{text[:99]}…"
    # Characters that cannot be printed are shown as escapes.
    return ValueOrigin(f"{name} {whole if whole.isprintable() else shown(whole, 120)}")


def _is_key(key: str) -> bool:
    return len(key) <= MAX_KEY and key.isprintable()


def _changed(
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
            problems.add(origin, here, f"expected {text}, got {shown(key)}")
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
