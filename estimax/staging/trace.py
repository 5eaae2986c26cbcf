"""Which part of a model runs on the host: recorded while the model is traced.

A JAX array holds no strings. So while a `model_fn` is traced, a column or head that
needs work on the host (a vocabulary, a hash, a label check) asks for it here:

    transform = pad_ids(HashBucket("city", 1000), "error")
    ids = staging.stage(transform, features)                 # inside model_fn

While the model is recorded (`training/recording.py`), the transform runs on the first
batch and is remembered. From then on the input thread runs the remembered transforms
(`host_plan.py`), and when the compiled step is traced, the same call returns the array
that the plan will deliver. Outside of any trace the transform simply runs.

Features reach the model as a plain dict of arrays. The identity of an array object
tells which feature it is, so a model may rename, drop or re-pack features freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core import device_dtypes
from estimax.core.device_dtypes import Forwarded
from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.raw_values import as_raw
from estimax.core.spec import Mode

# What the names of counters of computed ids begin with.
OUT_OF_RANGE = "ids_out_of_range/"
# The Flax collections of variables that optimizers update.
TRAINED_COLLECTIONS = ("params", "tables")

Raw = Any  # np.ndarray of numbers | Strings | Sparse: one feature on the host
# Name of a table -> function of the table and ids, which returns rows.
RowReaders = Mapping[str, Callable[[Any, Any], Any]]


class HostTransform(Protocol):
    """Work on raw features on the host: hashable by value, a pure function."""

    @property
    def name(self) -> str:
        """The name of the result; it need not be unique."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features that it reads."""

    def __call__(self, raw: Mapping[str, Raw]) -> Any:
        """Return NumPy arrays, or a pytree of them (`Ids`, for instance)."""


class NestedKey(tuple[Any, ...]):
    """The place of a value in nested features: keys of dicts, `(i,)` in tuples.

    >>> NestedKey(("user", (0,))).text
    'user/0'
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """The steps, joined by slashes."""
        return "/".join(str(s[0] if isinstance(s, tuple) else s) for s in self)


class Origin(NamedTuple):
    """Which raw value it is: a feature or a label, by its key.

    `key` is None if the features (or labels) are one array and not a dict, and a
    `NestedKey` within nested dicts and tuples. An origin is a tuple because batches are
    dicts by origin, and hashing a tuple runs no Python code.
    """

    part: str  # "features" or "labels"
    key: str | NestedKey | None

    @property
    def name(self) -> str:
        """The name in messages and batches: "features/age", "labels"."""
        return self.part if self.key is None else f"{self.part}/{self.short_name}"

    @property
    def short_name(self) -> str:
        """The name without its part: "age", "user/age"; empty for one array."""
        if self.key is None:
            return ""
        return self.key.text if isinstance(self.key, NestedKey) else str(self.key)


@dataclass(frozen=True)
class HostCall:
    """A recorded transform and the raw values that it reads, in order of its keys."""

    name: str
    transform: HostTransform
    inputs: tuple[Origin, ...]

    def run(self, batch: Mapping[Origin, Raw]) -> Any:
        """Return the result of the transform for a raw batch."""
        keys = self.transform.keys
        try:
            raw = {k: batch[o] for k, o in zip(keys, self.inputs, strict=True)}
        except KeyError as error:
            (origin,) = error.args
            raise FeatureError(
                f"{origin.name} is missing in this batch, and was in the first. Every "
                "batch must have the same features."
            ) from None
        return self.transform(raw)


class HostOnly:
    """Stands for a raw feature that no device can hold; using it raises an error.

    `kind` is "text", "sparse", or "wide" for integers beyond 32 bits, which have a
    `shape`.
    """

    stays_on_host = True

    def __init__(
        self, origin: Origin, kind: str, shape: tuple[int, ...] | None = None
    ) -> None:
        self.origin = origin
        self.kind = kind
        if shape is not None:
            self.shape = shape

    def _refuse(self, *_: Any, **__: Any) -> Any:
        if self.kind == "wide":
            raise wide_error(self.origin)
        columns = (
            "categorical_column_with_hash_bucket or …_with_vocabulary_list"
            if self.kind == "text"
            else "a categorical column, or parse it as a FixedLenFeature"
        )
        raise FeatureError(
            f"{self.origin.name} is {self.kind} and stays on the host, but the model "
            f"used it as an array. Pass it through a feature column ({columns}), "
            "wrapped in indicator_column or embedding_column for a dense layer; for "
            "text labels give the head a label_vocabulary."
        )

    # No __jax_array__: then jax would raise an error that does not name the feature.
    __array__ = __getitem__ = __len__ = __iter__ = _refuse
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __float__ = __int__ = __bool__ = _refuse
    # Without these, `city == "Oslo"` would be False for every example, and no error.
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    def __repr__(self) -> str:
        return f"<{self.kind} feature {self.origin.name!r}, on the host>"


def wide_error(origin: Origin, value: Any = None) -> FeatureError:
    """Return the error for a model that reads integers beyond 32 bits on the device."""
    found = "integers beyond 32 bits" if value is None else str(value)
    advice = (
        "Subtract an offset, or convert the labels to float32, in the input_fn."
        if origin.part == "labels"
        else "Give ids to a categorical column, which works on the host: "
        f"categorical_column_with_hash_bucket({origin.short_name!r}, size, "
        "dtype=np.int64). Give a quantity to a numeric_column without a "
        "normalizer_fn, or convert it to float32 or to a coarser unit in the input_fn."
    )
    return FeatureError(
        f"{origin.name} holds {found}, and the model uses it as an array, but devices "
        f"compute with 32-bit integers (up to 2147483647). {advice}"
    )


class Trace:
    """What is recorded while a `model_fn` is traced, and what it is given.

    Columns, heads and tables read and fill the trace of their thread: see `current`.
    `result_of` returns the result of a call.
    """

    def __init__(self, mode: Mode, result_of: Callable[[HostCall], Any]) -> None:
        self.mode = mode
        self.calls: dict[tuple[HostTransform, tuple[Origin, ...]], HostCall] = {}
        self.logged: dict[str, LoggedValue] = {}
        self.lookups: list[Lookup] = []
        # Filled by `variables/declare.py`: penalties by variable, None without a
        # regularizer; and each declared variable by the id of its value.
        self.penalties: dict[str, Any] = {}
        self.declared: dict[int, tuple[Any, Any]] = {}
        # Filled by `losses/collection.py`: pairs (name, loss) by collection.
        self.losses: dict[str, list[tuple[str, Any]]] = {}
        # Set by `ModelModule`: returns the variables of the model, by Flax collection.
        self.variables: Callable[[], Mapping[str, Any]] = dict
        # The number of steps done, and whether the model asked for it.
        self.step: Any = None
        self.reads_step = False
        self.rows: Mapping[str, TableRows] = {}
        # What columns use for a missing value of a feature: one entry per column.
        self.defaults: dict[Origin, list[Any]] = {}
        # Set by `training/model.py`; see `apply` there.
        self.row_zeros: Mapping[str, Sequence[jax.Array]] = {}
        self.cuts_lookups = False
        # Set while a model is explained: a `ModelInputs` of `model_inputs.py`.
        self.inputs: Any = None
        # Pairs of a table and a call that `variables.side_by_side` reads in training.
        self.joined: set[tuple[str, str]] = set()
        # Filled by `feature_columns/embed_layers.py`: large tables of `nn.Embed`.
        self.embeds: set[str] = set()
        # How the rows of a table are read that is sharded over a mesh, or stored in
        # another form in a bundle; and, on a mesh, whether native kernels may be used,
        # which know one device only.
        self.readers: RowReaders = {}
        self.uses_kernels = True
        # Float32 [B], 0 for rows of padding, which heads leave out; None without any.
        self.mask: Any = None
        self._result_of = result_of
        self._results: dict[str, Any] = {}
        self._origins: dict[int, tuple[Any, Origin]] = {}
        self._wide: set[Origin] = set()
        self._call_of_leaf: dict[int, tuple[Any, HostCall]] = {}

    def register_feature(
        self, value: Any, origin: Origin, *, is_wide: bool = False
    ) -> Any:
        """Remember which raw value this object is; return the object.

        `is_wide` says that the value has 64-bit integers on the host.
        """
        if is_wide:
            self._wide.add(origin)
        # Keep the object with its id: the id of a freed object may be used again.
        self._origins[id(value)] = (value, origin)
        return value

    def origin(self, value: Any) -> Origin | None:
        """Return which raw value an object is, or None if it is none."""
        found = self._origins.get(id(value))
        return found[1] if found else None

    def is_wide(self, origin: Origin) -> bool:
        """Return whether a raw value has 64-bit integers on the host."""
        return origin in self._wide

    def call_of(self, leaf: Any) -> HostCall | None:
        """Return the call whose result this array object is, or None."""
        found = self._call_of_leaf.get(id(leaf))
        return found[1] if found else None

    def variable_name(self, value: Any) -> tuple[str, bool] | None:
        """Return the name of the variable that an array is, and if it is trained.

        Return None for an array that is not a variable of the model.
        """
        found = self.declared.get(id(value))
        if found is not None:
            module, name, trainable = found[1]
            return "/".join((*module.path, name)), trainable
        for collection, tree in self.variables().items():
            for name, leaf in named_leaves(tree):
                if leaf is value:
                    return name, collection in TRAINED_COLLECTIONS
        return None

    def count_out_of_range(self, table: str, size: int, bad: Any) -> None:
        """Count ids that the model computed and that are not rows of a table.

        The number is a logged value, which `hooks/guards.py` reads.
        """
        name = f"{OUT_OF_RANGE}{table} of {size} rows"
        before = self.logged.get(name)
        total = bad if before is None else before.value + bad
        self.logged[name] = LoggedValue("value", total)

    def call(self, transform: HostTransform, inputs: tuple[Origin, ...]) -> Any:
        """Return the result of a transform; record the call if it is new."""
        key = (transform, inputs)
        call = self.calls.get(key)
        if call is None:
            names = {c.name for c in self.calls.values()}
            call = HostCall(_unused_name(transform.name, names), transform, inputs)
            self.calls[key] = call
        if call.name not in self._results:
            result = self._result_of(call)
            self._results[call.name] = result
            for leaf in jax.tree.leaves(result):
                self._call_of_leaf[id(leaf)] = (leaf, call)
        return self._results[call.name]


@dataclass(frozen=True)
class Lookup:
    """One lookup in an embedding table, recorded while tracing."""

    table: str
    shape: tuple[int, ...]  # [V, …]
    call: HostCall | None  # None if the ids were computed on the device
    ids: Any
    trainable: bool
    # Whether a layer reads it together with its other columns in training; see
    # `variables.side_by_side`.
    is_joined: bool = False


@dataclass(frozen=True)
class TableRows:
    """A table, the rows of it that a batch needs, and the place of each id there."""

    table: jax.Array  # [V, D], or the stack that the table is a part of
    rows: jax.Array  # [U, D]
    # Call name -> [B, L] into rows, -1 for none; not always those of `stack.lines`.
    inverse: Mapping[str, jax.Array]
    stack: StackedRows | None = None


class StackReads(NamedTuple):
    """What all columns with one id per example read from a stack, as two arrays.

    A line is one of `RowStack.lines`. One array of many lines, and not many
    arrays: the program does not grow with the columns.

    Attributes:
      rows: The rows of the stack, int32 [n, B]; -1 where an example has no id.
      places: The places of those rows in the distinct ids of the stack, [n, B];
        arbitrary where there is no id.
    """

    rows: Any
    places: Any


@dataclass(frozen=True)
class StackedRows:
    """The rows of all tables of a stack that a batch needs, and one table of them.

    Attributes:
      name: The name of the stack.
      table: The name of the table.
      rows: The rows of the batch [U, D], of all tables.
      first: The row of the stack at which the table begins.
      place: The row of `rows` at which those of the table begin.
      reads: For columns with one id per example: rows of the stack and places in
        `rows`, [n, B] each; see `StackReads`. None if there are none.
      lines: The line of the table's calls in them.
    """

    name: str
    table: str
    rows: jax.Array
    first: int
    place: int
    reads: StackReads | None
    lines: Mapping[str, int]


@dataclass(frozen=True)
class LoggedValue:
    """A value that the model logs: kind is scalar, histogram, image or text.

    A kind of "value" is for hooks that request it by name; it is not written.
    """

    kind: str
    value: Any


_current: ContextVar[Trace | None] = ContextVar("estimax_trace", default=None)


def current() -> Trace | None:
    """Return the trace of this thread, or None if code runs eagerly."""
    return _current.get()


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Make a trace the current one of this thread, inside a `with` block."""
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)


def stage(transform: HostTransform, values: Mapping[str, Any]) -> Any:
    """Run a transform on the host for these raw values; return device arrays.

    Inside a traced `model_fn`, the values must be the features or labels that the
    model was given. Outside, they are arrays, and the transform runs at once.
    """
    given = [_value_of(transform, values, key) for key in transform.keys]
    trace = current()
    if trace is not None:
        origins = [trace.origin(value) for value in given]
        known = [origin for origin in origins if origin is not None]
        if len(known) == len(given):
            return trace.call(transform, tuple(known))
    for key, value in zip(transform.keys, given, strict=True):
        if isinstance(value, jax.core.Tracer | HostOnly):
            raise FeatureError(
                f"column {transform.name!r} reads feature {key!r} on the host, but the "
                "model computed it on the device. Pass the raw feature, or compute it "
                "in the input_fn."
            )
    pairs = zip(transform.keys, given, strict=True)
    raw = {key: as_raw(value, f"feature {key!r}") for key, value in pairs}
    return jax.tree.map(jnp.asarray, transform(raw))


def declare_default(value: Any, default: Any) -> None:
    """Record what a column uses for a missing value of a raw feature.

    A request to an exported model may leave such a value out. NaN means that the column
    replaces NaN itself; None, that it has no default.
    """
    trace = current()
    origin = None if trace is None else trace.origin(value)
    if trace is not None and origin is not None:
        trace.defaults.setdefault(origin, []).append(default)


def forward(value: Any, default: Any = None) -> Any:
    """Return a `Forwarded` for a raw feature, and any other value as it is.

    Args:
      value: A value among the outputs of a model.
      default: What fills the empty places of a sparse feature.

    Raises:
      FeatureError: The feature is sparse and there is no default.
    """
    trace = current()
    origin = trace.origin(value) if trace is not None else None
    if origin is None:
        return value
    is_sparse = isinstance(value, HostOnly) and value.kind == "sparse"
    if is_sparse and default is None:
        raise FeatureError(
            f"{origin.name} is sparse and cannot be a prediction, which needs rows of "
            "one length. ex.forward_features(estimator, keys, sparse_default_values) "
            "fills its empty places."
        )
    return Forwarded(origin, default if is_sparse else None)


def can_stage(value: Any) -> bool:
    """Return whether the host can transform a value: it is raw, or it is concrete."""
    trace = current()
    if trace is not None and trace.origin(value) is not None:
        return True
    return not isinstance(value, jax.core.Tracer)


def is_wide(value: Any) -> bool:
    """Return whether a raw value has 64-bit integers, which may not fit a device.

    Turn such a value into floats or ids with a host transform.
    """
    trace = current()
    origin = None if trace is None else trace.origin(value)
    if trace is not None and origin is not None:
        return trace.is_wide(origin)
    if value is None or isinstance(value, jax.Array | HostOnly):
        return False
    raw = as_raw(value)
    return isinstance(raw, np.ndarray) and device_dtypes.is_wide(raw.dtype)


def named_leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested dicts, with their keys joined by slashes.

    >>> list(named_leaves({"a": {"b": 1}, "c": 2}))
    [('a/b', 1), ('c', 2)]
    """
    if not isinstance(tree, Mapping):
        yield above, tree
        return
    for key, item in tree.items():
        yield from named_leaves(item, f"{above}/{key}" if above else str(key))


def _value_of(transform: HostTransform, values: Mapping[str, Any], key: str) -> Any:
    if key not in values:
        near = did_you_mean(key, [str(k) for k in values], listed_as="found")
        raise FeatureError(
            f"column {transform.name!r} needs feature {key!r}, which is not among the "
            f"features{near}"
        )
    return values[key]


def _unused_name(name: str, taken: set[str]) -> str:
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}#{n}"
    return candidate
