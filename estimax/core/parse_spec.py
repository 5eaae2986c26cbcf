"""Parse specs: how a feature is stored in an Example.

    {"age": FixedLenFeature((1,), "float32"), "genres": VarLenFeature("string")}

`feature_columns.make_parse_example_spec` makes such a dict from columns; the parsers of
`ex.input` read one. A dtype is a name ("float32", "int64", "string"), because NumPy has
no dtype for byte strings of any length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

STRING = "string"


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype; any kind of text is "string".

    >>> dtype_name(np.float32), dtype_name(str), dtype_name("int64")
    ('float32', 'string', 'int64')
    """
    if isinstance(dtype, str) and dtype == STRING:
        return STRING
    found = np.dtype(dtype)
    return STRING if found.kind in "OSUT" else found.name


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature that has the same number of values in every example.

    Use it in the dict that a parser of `ex.input` takes, for dense features: numbers
    and single words. The parsed feature is an array [B, *shape].

    Args:
      shape: Shape of the values of one example; `()` for a single value.
      dtype: `"float32"`, `"int64"` or `"string"`, or a NumPy dtype.
      default_value: Value, or array of `shape`, for examples that lack the feature. By
        default the feature is required, and parsing fails without it.

    Example:
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
    """A feature that has any number of values in an example.

    Use it in the dict that a parser of `ex.input` takes, for multi-valued features such
    as tags. The parsed feature is an `ex.Sparse` [B, longest].

    Args:
      dtype: `"float32"`, `"int64"` or `"string"`, or a NumPy dtype.

    Example:
      >>> VarLenFeature(str)
      VarLenFeature(dtype='string')
    """

    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
