"""The host transform of `expression_column`: a formula over features, in float64.

    Expression("price / area")({"price": [6.0, 1.0], "area": [2.0, 0.0]})

`core/formulas.py` has the language. A missing number is NaN. Whatever is computed from
a missing number is missing, and so is a result that is no finite number: a division by
zero, the logarithm of a negative number, an overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import is_real
from estimax.core.errors import FeatureError
from estimax.core.formulas import Node, described, parse
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import Transform, column_of

Numbers64 = NDArray[np.float64]


@dataclass(frozen=True)
class Expression(Transform):
    """A number computed from others, float32 [B, 1]; used by `expression_column`.

    Args:
      expression: The formula; see `expression_column`.
      required: Whether a missing result is an error. It is NaN otherwise.

    Example:
      >>> ratio = Expression("price / area")
      >>> ratio({"price": np.array([6, 1]), "area": np.array([2, 0])}).tolist()
      [[3.0], [nan]]
    """

    kind = "expression"

    expression: str
    required: bool = False

    def __post_init__(self) -> None:
        parse(self.expression)  # checks it

    @property
    def name(self) -> str:
        return self.expression

    @property
    def keys(self) -> tuple[str, ...]:
        return parse(self.expression).names

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the numbers of a batch; raise `FeatureError` if a feature has none."""
        what = described(self.expression)
        values = {key: _numbers(raw, key, what) for key in self.keys}
        rows = {key: len(column) for key, column in values.items()}
        if len(set(rows.values())) > 1:
            raise FeatureError(f"{what}: its features differ in rows: {rows}.")
        with np.errstate(all="ignore"):
            found = _compute(parse(self.expression).root, values)
            result = found.astype(np.float32)
        result[~np.isfinite(result)] = np.nan
        if self.required:
            check_none_missing(what, result, values)
        return result.reshape(-1, 1)


def check_none_missing(
    what: str, result: NDArray[Any], inputs: Mapping[str, Any]
) -> None:
    """Raise `FeatureError` with the values of the first row whose result is missing."""
    missing = np.isnan(result)
    if not missing.any():
        return
    row = int(missing.argmax())
    values = ", ".join(f"{key} = {column[row]}" for key, column in inputs.items())
    raise FeatureError(
        f"{what}: the result is missing where {values}. Give the column a default, or "
        "correct the data."
    )


def _numbers(raw: Mapping[str, Any], key: str, what: str) -> Numbers64:
    column = column_of(raw, key)
    if isinstance(column, Sparse | Strings) or not is_real(column.dtype):
        found = "text" if isinstance(column, Strings) else "sparse"
        found = str(getattr(column, "dtype", found))
        raise FeatureError(
            f"{what}: feature {key!r} must be dense numbers, found {found}."
        )
    if column.size != len(column):
        raise FeatureError(
            f"{what}: feature {key!r} must have one number in a row, found shape "
            f"{column.shape}."
        )
    numbers = column.reshape(-1).astype(np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def _compute(node: Node, values: Mapping[str, Numbers64]) -> Numbers64:
    if node.kind == "name":
        return values[str(node.value)]
    if node.kind == "number":
        return np.asarray(node.value, np.float64)
    parts = [_compute(part, values) for part in node.parts]
    if node.kind == "if":
        return _choose(*parts)
    name = str(node.value)
    if name in _OF_MISSING:
        return _OF_MISSING[name](*parts)
    # Some functions of NumPy have a number for NaN: 1 ** NaN is 1.
    missing = np.isnan(parts[0])
    for other in parts[1:]:
        missing = missing | np.isnan(other)
    found = np.asarray(_PLAIN[name](*parts), np.float64)
    return np.where(missing | ~np.isfinite(found), np.nan, found)


def _choose(condition: Numbers64, yes: Numbers64, no: Numbers64) -> Numbers64:
    chosen = np.where(condition != 0, yes, no)
    return np.where(np.isnan(condition), np.nan, chosen)


def _and(a: Numbers64, b: Numbers64) -> Numbers64:
    is_false = (a == 0) | (b == 0)
    unknown = np.isnan(a) | np.isnan(b)
    return np.where(is_false, 0.0, np.where(unknown, np.nan, 1.0))


def _or(a: Numbers64, b: Numbers64) -> Numbers64:
    is_true = ((a != 0) & ~np.isnan(a)) | ((b != 0) & ~np.isnan(b))
    unknown = np.isnan(a) | np.isnan(b)
    return np.where(is_true, 1.0, np.where(unknown, np.nan, 0.0))


def _coalesce(*given: Numbers64) -> Numbers64:
    found = given[0]
    for other in given[1:]:
        found = np.where(np.isnan(found), other, found)
    return found


def _round(number: Numbers64, digits: Any = 0.0) -> Any:
    shift = 10.0 ** np.rint(digits)
    return np.rint(number * shift) / shift


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(*given: Any) -> Any:
        found = given[0]
        for other in given[1:]:
            found = function(found, other)
        return found

    return folded


# Functions that have a result for some missing numbers.
_OF_MISSING: dict[str, Callable[..., Numbers64]] = {
    "and": _and,
    "or": _or,
    "where": _choose,
    "coalesce": _coalesce,
    "isnan": lambda x: np.isnan(x).astype(np.float64),
}
_PLAIN: dict[str, Callable[..., Any]] = {
    **{"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide},
    **{"//": np.floor_divide, "%": np.mod, "**": np.power, "negative": np.negative},
    **{"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal},
    **{">": np.greater, ">=": np.greater_equal, "not": lambda x: x == 0},
    **{"abs": np.abs, "ceil": np.ceil, "cos": np.cos, "exp": np.exp},
    **{"expm1": np.expm1, "floor": np.floor, "log": np.log, "log10": np.log10},
    **{"log1p": np.log1p, "log2": np.log2, "sign": np.sign, "sin": np.sin},
    **{"sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "round": _round},
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "max": _fold(np.maximum),
    "min": _fold(np.minimum),
}
