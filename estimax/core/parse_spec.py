"""How a feature is stored in an Example: what columns declare and parsers read.

    {"age": FixedLenFeature((1,), "float32"), "genres": VarLenFeature("string")}

dtypes are plain names ("float32", "int64", "string"), since NumPy has no dtype for
byte strings of any length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

STRING = "string"


def dtype_name(dtype: Any) -> str:
    """The plain name of whatever a user calls a dtype; text of any kind is "string".

    >>> dtype_name(np.float32), dtype_name(str), dtype_name("int64")
    ('float32', 'string', 'int64')
    """
    if isinstance(dtype, str) and dtype == STRING:
        return STRING
    found = np.dtype(dtype)
    return STRING if found.kind in "OSUT" else found.name


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature of which every example has exactly `shape` values.

    >>> FixedLenFeature([2], np.float32)
    FixedLenFeature(shape=(2,), dtype='float32', default_value=None)
    """

    shape: tuple[int, ...]
    dtype: str
    default_value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))


@dataclass(frozen=True)
class VarLenFeature:
    """A feature of which every example has any number of values.

    >>> VarLenFeature(str)
    VarLenFeature(dtype='string')
    """

    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
