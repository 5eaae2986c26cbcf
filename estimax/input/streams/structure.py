"""Nested structures: what an element, a block of rows or a batch is made of.

    map_leaves(len, {"x": [1, 2], "pair": (b"ab", None)})
    # {'x': 2, 'pair': (2, None)}    (here the list [1, 2] was a leaf)

Dicts and tuples (named ones too) are structure, as in tf.data; a list is an array in
disguise, and None stays None. `jax.tree` would sort the keys and drop the Nones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.ragged import Ragged


class InputTypeError(InputError, TypeError):
    """Data of a kind that cannot be taken."""


# A tree of dicts and tuples; Any because its leaves are whatever the user has.
Structure = Any

_LEAVES = frozenset((np.ndarray, Strings, Sparse, Ragged))


def map_leaves(fn: Callable[..., Any], tree: Structure, *rest: Structure) -> Structure:
    """Rebuild a structure with `fn(leaf, *leaves of the others at that place)`.

    >>> map_leaves(lambda a, b: a + b, {"x": (1, None)}, {"x": (10, None)})
    {'x': (11, None)}
    """
    # The type first: asking an array whether it is a Mapping takes a third of this.
    if type(tree) in _LEAVES:
        return fn(tree, *rest)
    if type(tree) is dict or isinstance(tree, Mapping):
        if not rest:  # every batch, forty columns: no second call for each
            return {
                key: fn(leaf) if type(leaf) in _LEAVES else map_leaves(fn, leaf)
                for key, leaf in tree.items()
            }
        _check_keys(tree, rest)
        return {key: map_leaves(fn, tree[key], *(r[key] for r in rest)) for key in tree}
    if isinstance(tree, tuple):
        if any(not isinstance(r, tuple) or len(r) != len(tree) for r in rest):
            raise _mismatch(tree, rest)
        parts = [map_leaves(fn, *zipped) for zipped in zip(tree, *rest, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if tree is None:
        if any(r is not None for r in rest):
            raise _mismatch(tree, rest)
        return None
    return fn(tree, *rest)


def leaves(tree: Structure) -> list[Any]:
    """Every leaf, without its place.

    >>> leaves(({"age": 1, "city": None}, 2))
    [1, 2]
    """
    if type(tree) in _LEAVES:
        return [tree]
    if type(tree) is dict or isinstance(tree, Mapping):
        tree = tuple(tree.values())
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [] if tree is None else [tree]


def named_leaves(tree: Structure, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its place, as a user would write it.

    >>> list(named_leaves(({"age": 1}, 2)))
    [("[0]['age']", 1), ('[1]', 2)]
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from named_leaves(value, f"{name}[{key!r}]")
    elif isinstance(tree, tuple):
        for i, value in enumerate(tree):
            yield from named_leaves(value, f"{name}[{i}]")
    elif tree is not None:
        yield name, tree


def lists_to_tuples(tree: Structure) -> Structure:
    """Make a returned list structure, as tf.data does with what a `map` returns."""
    if type(tree) in _LEAVES:
        return tree
    if isinstance(tree, list):
        return tuple(lists_to_tuples(value) for value in tree)
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(lists_to_tuples(value) for value in tree)
    if isinstance(tree, Mapping):
        return {key: lists_to_tuples(value) for key, value in tree.items()}
    return tree


def call(fn: Callable[..., Any], element: Structure) -> Structure:
    """Call with a tuple element spread over the arguments, as `map` does."""
    if isinstance(element, tuple) and not hasattr(element, "_fields"):
        return fn(*element)
    return fn(element)


def to_numpy(tree: Structure) -> Structure:
    """The structure with text as NumPy arrays of bytes, sparse values included.

    >>> to_numpy((Strings.of(["a"]), b"b"))
    (array([b'a'], dtype=object), b'b')
    """

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, Sparse):
            return leaf.with_values(np.asarray(leaf.values))
        if isinstance(leaf, Ragged):
            return Ragged(np.asarray(leaf.values), leaf.row_splits)
        return np.asarray(leaf) if isinstance(leaf, Strings) else leaf

    return map_leaves(convert, tree)


def is_dataset(value: Any) -> bool:
    """Whether a value is a Dataset, as a window or a `flat_map` function makes them."""
    return hasattr(value, "node") and hasattr(value, "iterator")


def describe(tree: Structure) -> str:
    """Name the shape of a structure for an error message.

    >>> describe(({"x": 1}, None))
    "({'x'}, None)"
    """
    if isinstance(tree, Mapping):
        return "{" + ", ".join(repr(key) for key in tree) + "}"
    if isinstance(tree, tuple):
        return "(" + ", ".join(describe(value) for value in tree) + ")"
    return "None" if tree is None else type(tree).__name__


def _check_keys(tree: Mapping[Any, Any], rest: tuple[Structure, ...]) -> None:
    keys = tree.keys()
    if any(not isinstance(r, Mapping) or r.keys() != keys for r in rest):
        raise _mismatch(tree, rest)


def _mismatch(tree: Structure, rest: tuple[Structure, ...]) -> InputError:
    shown = sorted({describe(t) for t in (tree, *rest)})
    return InputError(
        f"elements of one dataset must have one structure, got {' and '.join(shown)}. "
        "Make the source (or the map function) return the same keys every time."
    )
