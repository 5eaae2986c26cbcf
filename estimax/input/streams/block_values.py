"""BlockValue: the value of one row, computed for all rows of a block at once.

    block = BlockCall(rows=3)
    x = block.value(np.array([1.0, 2.0, 3.0]))
    y = x * 2 + 1                       # what a function of one row does with its value
    y.column                            # array([3., 5., 7.])

`map` calls a function of one row with such values. Operations that are exact for an
array as for its items (arithmetic, comparisons, rounding) run on the column. All other
functions of NumPy, and methods of bytes, are called for every row, so that their
results are the same bit by bit: a sum over an axis adds in another order, and `np.exp`
of an array may use other instructions. `decode_csv` and `parse_single_example` take a
`BlockValue` of records and parse all of them at once.

Whatever needs the value itself, such as `if x > 3`, `float(x)` or `print(x)`, refuses:
it raises, and marks the call as refused, also if the function catches the exception.
So do questions for the type of a value, which is not the type of a row.

A function that is called for one row may return a Python number, or a sparse value that
is as wide as its row. A column holds the values of many rows as one array; its
`RowForm` gives back exactly what the function would have returned for each of them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import DataColumn, as_value, row_of


@dataclass(frozen=True, eq=False)
class RowForm:
    """The type of the values that the rows of a column stand for.

    Attributes:
      kind: "row" if `row_of` returns the value; "python" for a bool, int or float;
        "point" for an array without axes; "sparse" for a `Sparse` that is only as wide
        as its values require; "constant" for a value that is the same in every row.
      constant: The value, if `kind` is "constant".
      as_column: Whether the value is converted to a column, as an element of a dataset
        that does not consist of rows.
    """

    kind: Literal["row", "python", "point", "sparse", "constant"] = "row"
    constant: Any = None
    as_column: bool = False

    def row(self, column: DataColumn, i: int) -> Any:
        """Return the value of row i."""
        value = self._row(column, i)
        return as_value(value) if self.as_column else value

    def _row(self, column: DataColumn, i: int) -> Any:
        if self.kind == "constant":
            return self.constant
        value = row_of(column, i)
        if self.kind == "python":
            return value.item()
        if self.kind == "point":
            return np.asarray(value)
        return trim_width(value) if self.kind == "sparse" else value

    def rows(self, column: DataColumn) -> list[Any]:
        """Return the values of all rows."""
        if self.kind == "row" and not self.as_column:
            if isinstance(column, Strings) and column.ndim == 1:
                return column.tolist()
            if isinstance(column, np.ndarray):
                return list(column)
        return [self.row(column, i) for i in range(len(column))]

    def batch(self, column: DataColumn) -> DataColumn:
        """Return what stacking the values of all rows gives."""
        if self.kind == "sparse":
            assert isinstance(column, Sparse)
            return trim_width(column)
        # A part of a longer column is copied, as stacking does: whoever writes into a
        # batch must not change rows of another batch, or of a cache.
        if isinstance(column, np.ndarray) and column.base is not None:
            return column.copy()
        return column

    def is_like(self, other: RowForm) -> bool:
        """Return whether columns of both forms can be joined."""
        return (
            self.kind == other.kind
            and self.constant is other.constant
            and self.as_column == other.as_column
        )


ROW = RowForm()


def trim_width(sparse: Sparse) -> Sparse:
    """Return a sparse value whose last axis ends behind its last value."""
    if sparse.is_lists:
        return Sparse.of_lists(sparse.values, sparse.starts)
    width = int(np.asarray(sparse.indices)[:, -1].max(initial=-1)) + 1
    shape = (*sparse.dense_shape[:-1], width)
    return Sparse(sparse.indices, sparse.values, shape)


_PYTHON, _POINT = RowForm("python"), RowForm("point")
_PLAIN_KINDS = "biuf"

# These give the same bits for an array as for its items: their results are exact, or
# rounded as IEEE 754 prescribes. Others, such as exp, are called for every row.
_EXACT = frozenset(
    (
        np.add,
        np.subtract,
        np.multiply,
        np.true_divide,
        np.floor_divide,
        np.remainder,
        np.negative,
        np.positive,
        np.absolute,
        np.equal,
        np.not_equal,
        np.less,
        np.less_equal,
        np.greater,
        np.greater_equal,
        np.logical_and,
        np.logical_or,
        np.logical_xor,
        np.logical_not,
        np.bitwise_and,
        np.bitwise_or,
        np.bitwise_xor,
        np.invert,
        np.left_shift,
        np.right_shift,
        np.floor,
        np.ceil,
        np.trunc,
        np.rint,
        np.sqrt,
        np.square,
        np.sign,
        np.isnan,
        np.isinf,
        np.isfinite,
    )
)
# Methods that change nothing and depend on nothing else.
_ARRAY_METHODS = """
all any argmax argmin clip copy cumprod cumsum dot flatten max mean min prod ravel
repeat reshape round squeeze std sum swapaxes take transpose var
"""
_BYTES_METHODS = """
count endswith find isalnum isalpha isdigit lower lstrip partition removeprefix
removesuffix replace rfind rpartition rsplit rstrip split startswith strip title upper
zfill
"""
_OF_ARRAYS = frozenset(_ARRAY_METHODS.split())
_OF_BYTES = frozenset(_BYTES_METHODS.split())


class RefusedError(Exception):
    """A function uses a row in a way that is not possible for many rows at once."""


class BlockCall:
    """One call of a function with all rows of a block.

    Args:
      rows: The number of rows.

    Attributes:
      refusal: Why the function cannot be called with a block; None if it can.
      failure: The first error of an operation on a value, also if it was caught.
      flags: The columns of all values that are True or False for a row, in the order in
        which they were made.
      is_running: Whether the function is being called.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusal: str | None = None
        self.failure: Exception | None = None
        self.flags: list[NDArray[np.bool_]] = []
        self.is_running = False

    def value(
        self, column: DataColumn, form: RowForm = ROW, *, is_own: bool = True
    ) -> BlockValue:
        """Return a value for the function; `is_own` if no one else has the column."""
        if form.kind == "python" and np.asarray(column).dtype == bool:
            self.flags.append(np.asarray(column))
        return BlockValue(self, column, form, is_own)

    def refuse(self, what: str) -> NoReturn:
        """Mark the call as refused and raise; `what` completes "the function …"."""
        self.refusal = self.refusal or what
        raise RefusedError(what)

    def attempt(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function, and keep its error.

        One bad row fails the whole block. If the function of the user handles that
        error, its handler has run for all rows, and the result must not be used.
        """
        try:
            return fn(*args, **options)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def each(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function for every row; return its results as a value."""
        if any(isinstance(option, BlockValue) for option in options.values()):
            self.refuse("passes a value of the row by keyword")
        columns = [self._rows_of(arg) for arg in args]
        rows = zip(*columns, strict=False)
        results = self.attempt(lambda: [fn(*row, **options) for row in rows])
        return self.collect(results)

    def _rows_of(self, arg: Any) -> Any:
        """Return the argument of every row."""
        if isinstance(arg, BlockValue):
            return arg.form.rows(arg.column)
        if type(arg) in (list, tuple) and any(_has_block(part) for part in arg):
            parts = [self._rows_of(part) for part in arg]
            rows = zip(*parts, strict=False)
            return map(list, rows) if type(arg) is list else rows
        return itertools.repeat(arg, self.rows)

    def collect(self, results: Sequence[Any]) -> Any:
        """Return the results of all rows as one value, or a list or tuple of values."""
        kinds = {type(result) for result in results}
        if len(kinds) != 1:
            self.refuse("returns values of different types")
        kind, first = kinds.pop(), results[0]
        if kind in (bool, int, float):
            dtype = np.dtype({bool: np.bool_, int: np.int64, float: np.float64}[kind])
            return self.value(np.array(results, dtype), _PYTHON)
        if kind is bytes:
            return self.value(Strings.of(results))
        if kind in (list, tuple):
            if len({len(result) for result in results}) != 1:
                self.refuse("makes lists of different lengths")
            columns = zip(*results, strict=True)
            return kind([self.collect(list(column)) for column in columns])
        is_array = kind is np.ndarray
        if not is_array and not issubclass(kind, np.generic):
            self.refuse(f"makes values of type {kind.__name__}")
        if len({(r.dtype, r.shape) for r in results}) != 1:
            self.refuse("makes arrays of different shapes or dtypes")
        if first.dtype.kind not in _PLAIN_KINDS:
            self.refuse(f"makes arrays of dtype {first.dtype}")
        column = np.stack(results) if is_array else np.array(results, first.dtype)
        return self.value(column, _POINT if is_array and not first.shape else ROW)

    def apply_ufunc(self, ufunc: np.ufunc, args: Sequence[Any]) -> BlockValue:
        """Apply a ufunc to columns; axes of a row are broadcast as NumPy does."""
        parts = [arg.column if isinstance(arg, BlockValue) else arg for arg in args]
        ranks = [
            part.ndim - 1 if isinstance(arg, BlockValue) else getattr(part, "ndim", 0)
            for arg, part in zip(args, parts, strict=True)
        ]
        most = max(ranks)
        for i, (arg, rank) in enumerate(zip(args, ranks, strict=True)):
            if rank < most and isinstance(arg, BlockValue):
                # New axes go behind the rows: the axes of a row align at the right.
                shape = parts[i].shape
                parts[i] = parts[i].reshape(shape[0], *(1,) * (most - rank), *shape[1:])
        try:
            return BlockValue(self, ufunc(*parts), ROW, True)
        except Exception as error:  # as `attempt`, without a call
            self.failure = self.failure or error
            raise


class BlockValue:
    """The values that a function of one row gets for all rows of a block.

    It behaves like the value of one row: a number, an array, bytes, or `Sparse`.
    """

    __slots__ = ("block", "column", "form", "is_own")

    # For NumPy: `array * value` and `np.add(array, value)` call the methods here.
    __array_priority__ = 1000

    def __init__(
        self, block: BlockCall, column: DataColumn, form: RowForm, is_own: bool
    ) -> None:
        put = object.__setattr__
        put(self, "block", block)
        put(self, "column", column)
        put(self, "form", form)
        put(self, "is_own", is_own)

    block: BlockCall
    column: Any  # a DataColumn, of which mypy does not know which one
    form: RowForm
    is_own: bool

    @property
    def is_numeric(self) -> bool:
        """Whether a row is a NumPy number or an array of numbers."""
        return (
            self.form.kind in ("row", "point")
            and isinstance(self.column, np.ndarray)
            and self.column.dtype.kind in _PLAIN_KINDS
        )

    @property
    def is_text(self) -> bool:
        """Whether a row is bytes."""
        column = self.column
        is_row = self.form.kind == "row" and not self.form.as_column
        return is_row and isinstance(column, Strings) and column.ndim == 1

    @property
    def text(self) -> Strings:
        """The bytes of every row, for a function of estimax that reads all of them."""
        if not self.is_text:
            self.block.refuse("parses something else than bytes")
        text: Strings = self.column
        return text

    def like(self, column: DataColumn, form: RowForm = ROW) -> BlockValue:
        """Return another value of the same rows, computed by a function of estimax."""
        return self.block.value(column, form)

    @property
    def __class__(self) -> Any:
        # `isinstance` and class patterns ask for it. An answer would lead the function
        # down another path than a row: `if isinstance(x, bytes): x = x.decode()`.
        if self.block.is_running:
            self.block.refuse("asks for the type of a value")
        return BlockValue

    @__class__.setter
    def __class__(self, kind: type) -> None:
        self.block.refuse("writes into a value")

    # NumPy

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *args: Any, **options: Any
    ) -> Any:
        if "out" in options or method == "at":
            self.block.refuse("writes into an array")
        if (
            method == "__call__"
            and not options
            and ufunc in _EXACT
            and all(_is_numeric(arg) for arg in args)
        ):
            return self.block.apply_ufunc(ufunc, args)
        return self.block.each(getattr(ufunc, method), *args, **options)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, options: Any
    ) -> Any:
        if "out" in options or function.__name__ in _WRITERS:
            self.block.refuse("writes into an array")
        if function in (np.stack, np.concatenate) and not options:
            parts = args[0] if len(args) == 1 else ()
            if isinstance(parts, list | tuple) and all(map(_is_own_number, parts)):
                return _join_axes(self.block, function, parts)
        return self.block.each(function, *args, **options)

    # Operators of numbers and text are set below the class.

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        is_basic = all(type(part) in (int, slice) for part in parts)
        if self.is_numeric and self.column.ndim > 1 and is_basic:
            index = (slice(None), *parts)
            cut = self.block.attempt(operator.getitem, self.column, index)
            return self.block.value(cut, is_own=self.is_own)
        return self.block.each(operator.getitem, self, index)

    def __len__(self) -> int:
        if isinstance(self.column, np.ndarray | Strings) and self.column.ndim > 1:
            return int(self.column.shape[1])
        self.block.refuse("uses the length of a value")

    def __iter__(self) -> Iterator[Any]:
        if not self.is_numeric or self.column.ndim < 2:
            self.block.refuse("iterates over a value")
        return iter([self[i] for i in range(len(self))])

    def __round__(self, digits: int | None = None) -> Any:
        return self.block.each(round, self, *([] if digits is None else [digits]))

    def __getattr__(self, name: str) -> Any:
        block = self.block
        if self.is_numeric:
            if name in ("shape", "ndim", "size"):
                return getattr(np.empty(self.column.shape[1:], bool), name)
            if name == "dtype":
                return self.column.dtype
            if name == "astype":
                return self._astype
        methods = _OF_ARRAYS if self.is_numeric else frozenset()
        methods = _OF_BYTES if self.is_text else methods
        if name not in methods:
            block.refuse(f"uses .{name} of a value")
        return lambda *args, **options: block.each(
            lambda row, *rest, **more: getattr(row, name)(*rest, **more),
            self,
            *args,
            **options,
        )

    def _astype(self, dtype: Any, **options: Any) -> Any:
        target, source = np.dtype(dtype), self.column.dtype
        # What becomes of a float that an integer cannot hold depends on the processor.
        is_exact = target.kind in _PLAIN_KINDS and (
            source.kind != "f" or target.kind in "bf"
        )
        if is_exact and not options:
            form = ROW if self.form.kind == "row" else _POINT
            return self.block.value(
                self.block.attempt(self.column.astype, target), form
            )
        return self.block.each(lambda row: row.astype(dtype, **options), self)


# Functions of NumPy that change an argument.
_WRITERS = frozenset(
    ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")
)


def _has_block(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(_has_block(part) for part in value)
    return isinstance(value, BlockValue)


def _is_numeric(value: Any) -> bool:
    """Return whether NumPy takes a value as a number or an array of numbers."""
    if isinstance(value, BlockValue):
        return value.is_numeric
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in _PLAIN_KINDS
    return type(value) in (bool, int, float)


def _is_own_number(value: Any) -> bool:
    return isinstance(value, BlockValue) and value.is_numeric


def _join_axes(
    block: BlockCall, function: Callable[..., Any], parts: Sequence[BlockValue]
) -> BlockValue:
    """Stack or concatenate the values of every row along its first axis."""
    columns: list[NDArray[Any]] = [part.column for part in parts]
    return block.value(block.attempt(function, columns, axis=1))


def _operate(
    op: Callable[..., Any], ufunc: np.ufunc | None, args: Sequence[Any]
) -> Any:
    """Apply an operator to the columns if that is exact, else to every row."""
    block = next(arg.block for arg in args if isinstance(arg, BlockValue))
    if ufunc in _EXACT and all(_is_numeric(arg) for arg in args):
        assert ufunc is not None
        return block.apply_ufunc(ufunc, args)
    if op in (operator.eq, operator.ne) and len(args) == 2:
        text, other = args if isinstance(args[0], BlockValue) else args[::-1]
        if text.is_text and type(other) is bytes:
            return block.value(op(text.column, other), _PYTHON)
    return block.each(op, *args)


def _define_operators() -> None:
    """Give `BlockValue` the operators of Python."""

    def forward(op: Any, ufunc: Any) -> Any:
        return lambda self, *rest: _operate(op, ufunc, (self, *rest))

    def make_reflected(op: Any, ufunc: Any) -> Any:
        return lambda self, other: _operate(op, ufunc, (other, self))

    def in_place(op: Any, ufunc: Any) -> Any:
        def change(self: BlockValue, other: Any) -> Any:
            if isinstance(self.column, np.ndarray) and self.column.ndim == 1:
                if self.form.kind != "point":  # numbers cannot be changed in place
                    return _operate(op, ufunc, (self, other))
            elif self.is_text:
                return _operate(op, ufunc, (self, other))
            self.block.refuse("writes into an array")

        return change

    arithmetic: dict[str, tuple[Any, Any]] = {
        "add": (operator.add, np.add),
        "sub": (operator.sub, np.subtract),
        "mul": (operator.mul, np.multiply),
        "truediv": (operator.truediv, np.true_divide),
        "floordiv": (operator.floordiv, np.floor_divide),
        "mod": (operator.mod, np.remainder),
        "divmod": (divmod, None),
        "pow": (operator.pow, None),
        "matmul": (operator.matmul, None),
        "and": (operator.and_, np.bitwise_and),
        "or": (operator.or_, np.bitwise_or),
        "xor": (operator.xor, np.bitwise_xor),
        "lshift": (operator.lshift, np.left_shift),
        "rshift": (operator.rshift, np.right_shift),
    }
    for name, pair in arithmetic.items():
        setattr(BlockValue, f"__{name}__", forward(*pair))
        setattr(BlockValue, f"__r{name}__", make_reflected(*pair))
        setattr(BlockValue, f"__i{name}__", in_place(*pair))
    others: dict[str, tuple[Any, Any]] = {
        "eq": (operator.eq, np.equal),
        "ne": (operator.ne, np.not_equal),
        "lt": (operator.lt, np.less),
        "le": (operator.le, np.less_equal),
        "gt": (operator.gt, np.greater),
        "ge": (operator.ge, np.greater_equal),
        "neg": (operator.neg, np.negative),
        "pos": (operator.pos, np.positive),
        "abs": (operator.abs, np.absolute),
        "invert": (operator.invert, np.invert),
    }
    for name, pair in others.items():
        setattr(BlockValue, f"__{name}__", forward(*pair))


def _make_refusal(reason: str) -> Callable[..., NoReturn]:
    """Return a method that refuses."""
    return lambda self, *args, **options: self.block.refuse(reason)


def _refuse_the_rest() -> None:
    """Let everything that needs the value of a single row refuse."""
    reasons = {
        "decides by a value": ("bool", "contains"),
        "converts a value with int(), float() or a NumPy type": (
            "int",
            "float",
            "complex",
            "index",
            "array",
            "trunc",
            "floor",
            "ceil",
            "buffer",  # for bytes.join, struct and re, from Python 3.12 on
        ),
        "uses a value as a key": ("hash",),
        "formats or prints a value": ("str", "repr", "format", "bytes"),
        "writes into a value": ("setitem", "delitem", "setattr", "delattr"),
        "copies or saves a value": ("copy", "deepcopy", "reduce", "reduce_ex"),
        "calls a value": ("call", "enter", "next", "reversed"),
    }
    for reason, names in reasons.items():
        for name in names:
            setattr(BlockValue, f"__{name}__", _make_refusal(reason))


_define_operators()
_refuse_the_rest()
