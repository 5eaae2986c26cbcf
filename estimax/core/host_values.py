"""Values a device cannot hold, carried as ones it can: words as ids, int64 as int32.

    predictions = {"classes": Words(class_ids, ("no", "yes")), "class_ids": Int64(ids)}
    jax.jit(...)(…)           # both pass through jit as ordinary integers
    np.asarray(predictions["classes"])    # array([[b"yes"], …], dtype=object)

A head returns these among its predictions; `materialize` turns a whole tree of them
into NumPy when it has come back from the device, and an export writes the vocabulary
beside the function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Words:
    """Class names: `ids` on the device, the word of each id on the host."""

    ids: Any  # integer array of any shape
    vocabulary: tuple[str, ...] = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of words."""
        return tuple(self.ids.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        words = np.array([word.encode() for word in self.vocabulary], dtype=object)
        found: NDArray[Any] = words[np.asarray(self.ids)]
        return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Int64:
    """Integers promised as int64 outside, computed as int32 inside."""

    values: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.values.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self.values).astype(np.int64)


def is_host_value(value: Any) -> bool:
    """Whether a value is one of this file's, which trees should treat as a leaf."""
    return isinstance(value, Words | Int64)


def materialize(tree: Any) -> Any:  # the same tree with NumPy leaves
    """Turn every leaf into NumPy, words and int64 included."""
    return jax.tree.map(np.asarray, tree, is_leaf=is_host_value)
