"""`--set a.b=c` and merging of included files: which of several values wins.

    tree = apply_override(tree, "train.max_steps=500", problems)

Precedence is always: defaults < include < the file < `--set`. Mappings merge key by
key; lists and scalars are replaced.
"""

from __future__ import annotations

from estimax.config.limits import MAX_DEPTH, MAX_KEY, Budget
from estimax.config.nodes import Entry, ListNode, MapNode, Node, ScalarNode, join
from estimax.config.origins import Origin, Problems, shown
from estimax.config.parse import check_value_characters, parse_value


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
    tree: MapNode, text: str, problems: Problems, budget: Budget
) -> MapNode:
    """Apply one `PATH=VALUE` of `--set`; problems with it point to the option."""
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
    return _changed(tree, keys, node, origin, problems)


def set_model_dir(tree: MapNode, model_dir: str, problems: Problems) -> MapNode:
    """Apply `--model-dir`, whose value is text whatever it looks like."""
    origin = _option("--model-dir", model_dir)
    if not check_value_characters(model_dir, origin, "run.model_dir", problems):
        return tree
    node = ScalarNode(model_dir, origin)
    return _changed(tree, ["run", "model_dir"], node, origin, problems)


def _option(name: str, text: str) -> Origin:
    """Return an origin that shows an option; a long value is cut."""
    whole = text if len(text) <= 100 else f"{text[:99]}…"
    # What cannot be printed is shown as an escape.
    return Origin(f"{name} {whole if whole.isprintable() else shown(whole, 120)}")


def _is_key(key: str) -> bool:
    return len(key) <= MAX_KEY and key.isprintable()


def _changed(
    tree: MapNode, keys: list[str], value: Node, origin: Origin, problems: Problems
) -> MapNode:
    changed = _set(tree, keys, "", value, origin, problems)
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
        # A key as long as the list's length has, so that int() is safe to call.
        is_index = key.isdecimal() and len(key) <= len(str(len(node.items)))
        if not is_index or int(key) >= len(node.items):
            last = len(node.items) - 1
            text = f"an index from 0 to {last}" if node.items else "no key: it is empty"
            problems.add(origin, here, f"expected {text}, got {shown(key)}")
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
