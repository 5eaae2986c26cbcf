"""`--set a.b=c` and merging of included files: which of several values wins.

    tree = apply_override(tree, "train.max_steps=500", problems)

Precedence is always: defaults < include < the file < `--set`. Mappings merge key by
key; lists and scalars are replaced.
"""

from __future__ import annotations

from estimax.config.nodes import Entry, ListNode, MapNode, Node, join, parse_value
from estimax.config.origins import Origin, Problems


def merge(below: MapNode, above: MapNode) -> MapNode:
    """`above` over `below`: mappings merge by key, everything else is replaced."""
    entries = dict(below.entries)
    for key, entry in above.entries.items():
        old = entries.get(key)
        node = entry.node
        if old and isinstance(old.node, MapNode) and isinstance(node, MapNode):
            node = merge(old.node, node)
        entries[key] = Entry(entry.key_origin, node)
    return MapNode(entries, above.origin)


def apply_override(
    tree: MapNode, text: str, problems: Problems, option: str = "--set"
) -> MapNode:
    """Set one value; errors about it will point to the option."""
    origin = Origin(f"{option} {text}")
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        problems.add(origin, "", "expected PATH=VALUE, such as train.max_steps=500")
        return tree
    changed = _set(tree, keys, "", parse_value(value.strip(), origin), origin, problems)
    assert isinstance(changed, MapNode)
    return changed


def _set(
    node: Node | None,
    keys: list[str],
    path: str,
    value: Node,
    origin: Origin,
    problems: Problems,
) -> Node:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    here = join(path, key)
    if isinstance(node, ListNode):
        if not key.isdecimal() or int(key) >= len(node.items):
            last = len(node.items) - 1
            problems.add(
                origin, here, f"expected an index from 0 to {last}, got {key!r}"
            )
            return node
        items = list(node.items)
        items[int(key)] = _set(items[int(key)], rest, here, value, origin, problems)
        return ListNode(tuple(items), node.origin)
    # A scalar in the way gives way: `--set a.b=1` makes a mapping of `a`.
    old = node if isinstance(node, MapNode) else MapNode({}, origin)
    below = old.entries[key].node if key in old.entries else None
    changed = _set(below, rest, here, value, origin, problems)
    kept = old.entries[key].key_origin if key in old.entries and rest else origin
    return MapNode({**old.entries, key: Entry(kept, changed)}, old.origin)
