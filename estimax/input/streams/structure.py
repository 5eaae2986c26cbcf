"""Nested structures: the dicts and tuples of which elements and batches are made.

    map_leaves(len, {"x": [1, 2], "pair": (b"ab", None)})
    # {'x': 2, 'pair': (2, None)}    (the list [1, 2] is a leaf)

Dicts and tuples, also named ones, are structure, as in tf.data. A list is a leaf, to be
converted to an array; None stays None. `jax.tree` is not used because it sorts keys and
drops None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import Ragged


class InputTypeError(InputError, TypeError):
    """The input has data of a type that is not supported."""


# A tree of dicts and tuples. Any, because its leaves can be of any type.
Structure = Any

_LEAVES = frozenset((np.ndarray, Strings, Sparse, Ragged))


def map_leaves(fn: Callable[..., Any], tree: Structure, *rest: Structure) -> Structure:
    """Return a structure of `fn(leaf, *leaves at the same place in the others)`.

    >>> map_leaves(lambda a, b: a + b, {"x": (1, None)}, {"x": (10, None)})
    {'x': (11, None)}
    """
    if rest:
        return _map_together(fn, tree, rest)
    # Called several times for every batch. Leaves of a known type are neither passed to
    # `isinstance(leaf, Mapping)`, which takes a third of the time, nor to another call.
    if type(tree) in _LEAVES:
        return fn(tree)
    if isinstance(tree, tuple):
        parts = [
            fn(part) if type(part) in _LEAVES else map_leaves(fn, part) for part in tree
        ]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if type(tree) is dict or isinstance(tree, Mapping):
        return {
            key: fn(part) if type(part) in _LEAVES else map_leaves(fn, part)
            for key, part in tree.items()
        }
    return None if tree is None else fn(tree)


def _map_together(
    fn: Callable[..., Any], tree: Structure, rest: tuple[Structure, ...]
) -> Structure:
    """Map over several structures; raise `InputError` if they differ."""
    if type(tree) in _LEAVES:
        return fn(tree, *rest)
    if isinstance(tree, tuple):
        if any(not isinstance(r, tuple) or len(r) != len(tree) for r in rest):
            raise _mismatch(tree, rest)
        parts = [map_leaves(fn, *zipped) for zipped in zip(tree, *rest, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if isinstance(tree, Mapping):
        _check_keys(tree, rest)
        return {key: map_leaves(fn, tree[key], *(r[key] for r in rest)) for key in tree}
    if tree is None:
        if any(r is not None for r in rest):
            raise _mismatch(tree, rest)
        return None
    return fn(tree, *rest)


def leaves(tree: Structure) -> list[Any]:
    """Return all leaves in order.

    >>> leaves(({"age": 1, "city": None}, 2))
    [1, 2]
    """
    if isinstance(tree, tuple):
        parts: Iterable[Any] = tree
    elif type(tree) is dict or isinstance(tree, Mapping):
        parts = tree.values()
    else:
        return [] if tree is None else [tree]
    found: list[Any] = []
    for part in parts:
        if type(part) in _LEAVES:  # the common case, without a recursive call
            found.append(part)
        else:
            found += leaves(part)
    return found


def named_leaves(tree: Structure, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its place, as a user would index it.

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
    """Convert lists to tuples, as tf.data does with the result of a `map` function.

    A `str` becomes `bytes`.
    """
    if type(tree) in _LEAVES:
        return tree
    if isinstance(tree, list):
        return tuple(lists_to_tuples(value) for value in tree)
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(lists_to_tuples(value) for value in tree)
    if isinstance(tree, Mapping):
        return {key: lists_to_tuples(value) for key, value in tree.items()}
    return tree.encode() if isinstance(tree, str) else tree


def encode_texts(tree: Structure) -> Structure:
    """Convert every `str` of an element to `bytes`; lists are left as they are."""
    return map_leaves(
        lambda leaf: leaf.encode() if isinstance(leaf, str) else leaf, tree
    )


def call(fn: Callable[..., Any], element: Structure) -> Structure:
    """Call a function with an element; a tuple is passed as several arguments."""
    return fn(*arguments_of(element))


def arguments_of(element: Structure) -> tuple[Any, ...]:
    """Return the arguments with which a function of an element is called."""
    is_tuple = isinstance(element, tuple) and not hasattr(element, "_fields")
    return element if is_tuple else (element,)


def to_numpy(tree: Structure) -> Structure:
    """Convert text to NumPy arrays of bytes, also within sparse and ragged values.

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
    """Return whether a value is a `Dataset`, a class that this layer cannot import."""
    return hasattr(value, "node") and hasattr(value, "iterator")


def describe(tree: Structure) -> str:
    """Describe a structure for an error message.

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
