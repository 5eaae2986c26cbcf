"""The lists of values in a tf.train.Example, with TensorFlow's names.

    Feature(int64_list=Int64List(value=[31]))
    example.features.feature["age"].int64_list.value[0]

They exist so that programs which build and read Examples run as they are.
`Feature.of(31)` is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError


@dataclass(frozen=True)
class BytesList:
    """The values of a feature of text or bytes, as `tf.train.BytesList`.

    Args:
      value: The values; text is encoded as UTF-8.

    Raises:
      InputError: A value is neither text nor bytes, or `value` is not a list.

    Example:
      >>> BytesList(value=["Ada"])
      BytesList(value=(b'Ada',))
    """

    value: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = _listed(self, "text or bytes", str | bytes)
        encoded = (v.encode() if isinstance(v, str) else bytes(v) for v in given)
        object.__setattr__(self, "value", tuple(encoded))


@dataclass(frozen=True)
class FloatList:
    """The values of a feature of floats, as `tf.train.FloatList`.

    Args:
      value: The values, numbers. A message holds them as float32.

    Raises:
      InputError: A value is not a number, or `value` is not a list.

    Example:
      >>> FloatList(value=[1, 2.5])
      FloatList(value=(1.0, 2.5))
    """

    value: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = _listed(self, "numbers", int | float | np.number | np.bool_)
        object.__setattr__(self, "value", tuple(float(v) for v in given))


@dataclass(frozen=True)
class Int64List:
    """The values of a feature of integers, as `tf.train.Int64List`.

    Args:
      value: The values, integers or booleans.

    Raises:
      InputError: A value is not an integer, or `value` is not a list.

    Example:
      >>> Int64List(value=[31])
      Int64List(value=(31,))
    """

    value: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = _listed(self, "integers", int | np.integer | np.bool_)
        object.__setattr__(self, "value", tuple(int(v) for v in given))


def _listed(made: Any, expected: str, kinds: Any) -> list[Any]:
    """Return the values as a list; raise InputError unless all are of these kinds."""
    name, value = type(made).__name__, made.value
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise InputError(
            f"{name}: expected a list of {expected}, got {value!r}. Write "
            f"{name}(value=[{value!r}])."
        )
    listed = list(value)
    for one in listed:
        if not isinstance(one, kinds):
            raise InputError(f"{name}: expected {expected}, got {one!r}.")
    return listed
