"""Warm start: begin a new model with variables of a checkpoint.

    settings = WarmStartSettings("runs/a", vars_to_warm_start="dnn/.*")
    state, report = warm_start(state, settings)
    print(report)                 # what was loaded, what was not, and why

Variables are matched by name. The optimizer state of a variable is loaded with it if
all of it is in the checkpoint. This matters: with fresh state, the first update of Ftrl
would move a loaded weight almost to zero. The step starts at 0, unless the list
`vars_to_warm_start` names `global_step`.

In order: the settings, `warm_start` and its report; remapping rows from one vocabulary
to another. `sources.py` reads checkpoints and bundles.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import reprlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.checkpoints import state_names
from estimax.checkpoints.sources import CheckpointReader, SlotNames, open_source
from estimax.core.errors import (
    CheckpointError,
    ConfigError,
    MissingFileError,
    did_you_mean,
)
from estimax.core.state import TrainState

_MOST_LISTED = 20
_MOST_IN_A_TABLE = 200
_log = logging.getLogger("estimax")

WordsOrFile = str | os.PathLike[str] | Sequence[str]  # a vocabulary file, or its words


@dataclass(frozen=True)
class WarmStartSettings:
    """Which variables of a new model start from a checkpoint.

    Pass it as `warm_start_from` to an Estimator. A path in its place loads all
    variables. The checkpoint may be one of estimax or of TensorFlow. It is used only
    if the model_dir has no checkpoint yet.

    Args:
      ckpt_to_initialize_from: A checkpoint, or a model_dir for its latest one.
      vars_to_warm_start: Regular expression, or a list of them; a variable is loaded if
        the start of its name matches one. A list may also name `global_step`. None
        loads only the variables in `var_name_to_vocab_info`.
      var_name_to_vocab_info: `VocabInfo` by variable, for variables whose rows belong
        to a vocabulary that has changed.
      var_name_to_prev_var_name: Name in the checkpoint by name in the model, for
        variables that were renamed.
      slots: Whether to load the optimizer state of the variables too.
      partial: Whether a selected variable may be missing in the checkpoint or have
        another shape. It then keeps its initial value. By default it is an error.

    Raises:
      ConfigError: The path is empty, or a regular expression is not valid.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> old = ex.BaselineRegressor().train(lambda: data, steps=50)
      >>> settings = ex.WarmStartSettings(old.model_dir, "baseline/.*")
      >>> new = ex.BaselineRegressor(warm_start_from=settings)
      >>> bool(new.evaluate(lambda: data, steps=1)["loss"] < 0.1)  # not yet trained
      True
    """

    ckpt_to_initialize_from: str | os.PathLike[str]
    vars_to_warm_start: str | Sequence[str] | None = ".*"
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None
    slots: bool = field(default=True, kw_only=True)
    partial: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.ckpt_to_initialize_from:
            raise ConfigError(
                "WarmStartSettings: ckpt_to_initialize_from is empty; name a "
                "checkpoint or a model_dir."
            )
        given = self.vars_to_warm_start
        patterns = [given] if isinstance(given, str) else given or ()
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                raise ConfigError(
                    "WarmStartSettings: vars_to_warm_start must be a regular "
                    f"expression or a list of them, got {pattern!r} ({error})."
                ) from None

    def __repr__(self) -> str:
        return _short_repr(self)


@dataclass(frozen=True)
class VocabInfo:
    """The old and the new vocabulary of a variable, for a warm start.

    Use it in `WarmStartSettings.var_name_to_vocab_info` when a vocabulary has changed:
    each row of the new variable is loaded from the row of the same word. Rows of words
    that the old vocabulary does not have keep their initial values.

    Args:
      new_vocab: The vocabulary of the new model: a file with one word per line, or a
        list of words.
      new_vocab_size: Number of words of `new_vocab` that are used.
      num_oov_buckets: Rows behind the vocabulary for unknown words. They keep their
        initial values.
      old_vocab: The vocabulary of the checkpoint, as a file or a list.
      old_vocab_size: Number of words of `old_vocab` that were used; -1 for all.
      backup_initializer: Function `f(key, shape)`, such as JAX's initializers, for rows
        without a match. It is called with the shape of the whole variable. None keeps
        the initial values of the variable.
      axis: Axis of the vocabulary: 0 for rows, 1 for columns, as in the logits of a
        class vocabulary. A vector is remapped along its only axis.

    Raises:
      ConfigError: A vocabulary is empty, a size is out of range, or `axis` is neither
        0 nor 1.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> import estimax as ex
      >>> def model_fn(features, mode):
      ...     rows = ex.get_variable("rows", (3,), initializer=0.0)
      ...     loss = jnp.mean(rows[features["id"]])
      ...     return ex.EstimatorSpec(mode, loss=loss, train_op="SGD")
      >>> old = ex.Estimator(model_fn).train(lambda: {"id": np.array([2])}, steps=1)
      >>> info = ex.VocabInfo(["c", "d", "a"], 3, 0, old_vocab=["a", "b", "c"])
      >>> settings = ex.WarmStartSettings(old.model_dir, None, {"rows": info})
      >>> new = ex.Estimator(model_fn, warm_start_from=settings)
      >>> new = new.train(lambda: {"id": np.array([1])}, steps=1)
      >>> new.get_variable_value("rows") < 0  # "c" was trained before, "d" now
      array([ True,  True, False])
    """

    new_vocab: WordsOrFile
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: WordsOrFile
    old_vocab_size: int = -1
    backup_initializer: Callable[..., Any] | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        if self.axis not in (0, 1):
            raise ConfigError(f"VocabInfo: axis must be 0 or 1, got {self.axis}.")
        for name in ("new_vocab", "old_vocab"):
            if not getattr(self, name):
                raise ConfigError(f"VocabInfo: {name} is empty; name a file or words.")
        if self.new_vocab_size < 1 or self.num_oov_buckets < 0:
            raise ConfigError(
                "VocabInfo: new_vocab_size must be >= 1 and num_oov_buckets >= 0, got "
                f"{self.new_vocab_size} and {self.num_oov_buckets}."
            )

    def __repr__(self) -> str:
        return _short_repr(self)


def _short_repr(settings: WarmStartSettings | VocabInfo) -> str:
    """Return a repr of the fields that are not the default, long lists shortened."""
    shown = []
    for one in fields(settings):
        value = getattr(settings, one.name)
        if value != one.default:
            text = reprlib.repr(value) if isinstance(value, list) else repr(value)
            shown.append(f"{one.name}={text}")
    return f"{type(settings).__name__}({', '.join(shown)})"


WarmStart = str | bytes | os.PathLike[str] | WarmStartSettings | None


def as_settings(given: Any) -> WarmStartSettings | None:
    """Return a `warm_start_from` argument as settings; a path loads all variables."""
    if given is None:
        return None
    if isinstance(given, str | bytes | os.PathLike):
        given = WarmStartSettings(os.fsdecode(given))
    if not isinstance(given, WarmStartSettings):
        raise ConfigError(
            "warm_start_from must be the path of a checkpoint or model_dir, or "
            f"WarmStartSettings, got {type(given).__name__}."
        )
    # Absolute, so that a later change of the working directory does not move it.
    path = os.path.abspath(os.fsdecode(given.ckpt_to_initialize_from))
    return replace(given, ckpt_to_initialize_from=path)


@dataclass(frozen=True)
class WarmStartReport:
    """What a warm start did with each variable; print it for a table."""

    source: str
    loaded: dict[str, str]  # variable -> how
    kept: dict[str, str]  # variable -> why it keeps its initial value
    unused: tuple[str, ...]  # variables of the checkpoint that were not loaded

    def __str__(self) -> str:
        total = len(self.loaded) + len(self.kept)
        lines = [
            f"warm start from {self.source}: {len(self.loaded)} of {total} variables",
            *_table_lines("loaded ", self.loaded),
            *_table_lines("initial", self.kept),
            *_table_lines(
                "unused ", dict.fromkeys(self.unused, "in the checkpoint only")
            ),
        ]
        return "\n".join(lines)


def warm_start(
    state: TrainState, settings: WarmStartSettings
) -> tuple[TrainState, WarmStartReport]:
    """Return a new state with arrays of a checkpoint, and a report of them."""
    reader = open_source(settings.ckpt_to_initialize_from)
    transfer = _Transfer(state, settings, reader)
    arrays = transfer.arrays()
    return state_names.fill_state(state, arrays), transfer.report()


class _Transfer:
    """One warm start: selects, checks and reads arrays, and records what it did."""

    def __init__(
        self, state: TrainState, settings: WarmStartSettings, source: CheckpointReader
    ) -> None:
        self._settings = settings
        self._source = source
        self._key = state.key
        self._named = state_names.flatten_state(state)
        self._variables = state_names.variable_names(state)
        self._vocabularies = settings.var_name_to_vocab_info or {}
        self._old_names = settings.var_name_to_prev_var_name or {}
        self._selected = _select_names(settings, [*self._variables, state_names.STEP])
        self._slots = state_names.slots_of(self._named, self._variables)
        self._loaded: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        _check_names(settings, self._selected, self._variables)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to load, by their names in the state."""
        # All problems are collected from the shapes alone, before an array is read.
        problems = {n: self._problem(n) for n in self._selected}
        wrong = {name: why for name, why in problems.items() if why}
        if wrong and not self._settings.partial:
            raise CheckpointError(
                f"warm start from {self._source.path}: "
                f"{len(wrong)} of the selected variables do not fit:"
                + "".join(f"\n{line}" for line in _table_lines("", wrong, _MOST_LISTED))
                + "\nSelect fewer with vars_to_warm_start, rename with "
                "var_name_to_prev_var_name, or give partial=True to start these "
                "from their initial values."
            )
        taken = [name for name in self._selected if name not in wrong]
        if not [name for name in taken if name != state_names.STEP]:
            raise CheckpointError(
                f"warm start from {self._source.path}: nothing to load. "
                f"vars_to_warm_start is {self._settings.vars_to_warm_start!r}; the "
                f"model has {', '.join(self._variables[:_MOST_LISTED])}."
            )
        self._kept |= wrong
        arrays: dict[str, NDArray[Any]] = {}
        old_slots = self._source.slots([self._old(name) for name in taken])
        for name in taken:
            arrays |= self._one(name, old_slots)
        return arrays

    def report(self) -> WarmStartReport:
        """Return what was loaded; call it after `arrays`."""
        rest = [n for n in self._variables if n not in self._loaded | self._kept]
        used = {self._old(name) for name in self._loaded}
        own = self._source.slots(self._source.shapes)
        slots = {name for by_slot in own.values() for name in by_slot.values()}
        unused = [
            name
            for name in sorted(self._source.shapes.keys() - used - slots)
            if not name.startswith("training/")
            and not name.endswith("/" + state_names.AVERAGE)
            and name not in (state_names.STEP, state_names.KEY)
        ]
        not_selected = dict.fromkeys(rest, "not selected")
        return WarmStartReport(
            self._source.path, self._loaded, self._kept | not_selected, tuple(unused)
        )

    def _old(self, name: str) -> str:
        return self._old_names.get(name, name)

    def _problem(self, name: str) -> str | None:
        """Return why a variable cannot be loaded; None if it can."""
        old, shapes = self._old(name), self._source.shapes
        if old not in shapes:
            called = "" if old == name else f" (named {old!r} there)"
            near = difflib.get_close_matches(old, shapes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"missing in the checkpoint{called}{hint}"
        new_shape = tuple(self._named[name].shape)
        if name not in self._vocabularies and shapes[old] != new_shape:
            return (
                f"{list(shapes[old])} in the checkpoint, {list(new_shape)} in the model"
            )
        return None

    def _one(self, name: str, old_slots: SlotNames) -> dict[str, NDArray[Any]]:
        """Return the arrays of a variable, its slots and its average, by name."""
        info = self._vocabularies.get(name)
        at = None if info is None else matches(info)
        value = self._moved(name, self._old(name), info, at, initialize=True)
        arrays = {name: value}
        details = [_form(value)]
        if at is not None:
            details.append(f"{np.count_nonzero(at >= 0)} of {len(at)} by vocabulary")
        details += [f"from {self._old(name)}"] if self._old(name) != name else []
        wanted, found = self._slots.get(name, {}), old_slots.get(self._old(name), {})
        # All slots of a variable or none: half of them, such as the second moment of
        # Adam without the first, would be a state that no training can have.
        if wanted and self._fits(name, wanted, found):
            for slot, slot_name in wanted.items():
                arrays[slot_name] = self._moved(slot_name, found[slot], info, at)
            details.append(f"with {', '.join(wanted)}")
        elif wanted:
            details.append(f"fresh {', '.join(wanted)}")
            if "linear" in wanted:
                _log.warning(
                    "warm start: %s is loaded without its Ftrl slots, so the first "
                    "update will pull it close to zero",
                    name,
                )
        average = f"{name}/{state_names.AVERAGE}"
        if average in self._named:
            arrays[average] = value.copy()  # an average starts at its variable
        self._loaded[name] = ", ".join(details)
        return arrays

    def _fits(
        self, name: str, wanted: Mapping[str, str], found: Mapping[str, str]
    ) -> bool:
        """Return whether all slots are in the checkpoint, in the variable's shape."""
        old = self._source.shapes[self._old(name)]
        return self._settings.slots and all(
            slot in found and self._source.shapes[found[slot]] == old for slot in wanted
        )

    def _moved(
        self,
        name: str,
        old_name: str,
        info: VocabInfo | None,
        at: NDArray[np.int64] | None,
        *,
        initialize: bool = False,
    ) -> NDArray[Any]:
        """Return an array of the checkpoint, remapped and cast for the state."""
        old, leaf = self._source.read(old_name), self._named[name]
        if info is not None and at is not None:
            initial = np.asarray(leaf)
            if initialize and info.backup_initializer is not None:
                # A key for each variable, by its name: the values do not depend on
                # which other variables are loaded.
                key = jax.random.fold_in(self._key, zlib.crc32(name.encode()))
                initial = np.asarray(info.backup_initializer(key, initial.shape))
            old = remap_rows(info, at, old, initial, name=name)
        return old.astype(leaf.dtype, copy=False)


def _select_names(settings: WarmStartSettings, names: Sequence[str]) -> list[str]:
    given = settings.vars_to_warm_start
    if given is None:
        mapped = settings.var_name_to_vocab_info or {}
        return [name for name in names if name in mapped]
    if isinstance(given, str):
        # As in tf.estimator, a single expression never selects global_step.
        names = [name for name in names if name != state_names.STEP]
        given = [given]
    return [name for name in names if any(re.match(p, name) for p in given)]


def _check_names(
    settings: WarmStartSettings, selected: Iterable[str], variables: Iterable[str]
) -> None:
    chosen = set(selected)
    for field_name in ("var_name_to_vocab_info", "var_name_to_prev_var_name"):
        for name in getattr(settings, field_name) or {}:
            if name not in chosen:
                raise ConfigError(
                    f"WarmStartSettings: {field_name} names {name!r}, which is no "
                    "variable that vars_to_warm_start selects"
                    f"{did_you_mean(name, chosen or variables)}"
                )


def _form(array: NDArray[Any]) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def _table_lines(
    label: str, rows: Mapping[str, str], most: int = _MOST_IN_A_TABLE
) -> list[str]:
    """Return lines of a table, at most `most` of them."""
    shown = list(rows.items())[:most]
    width = max((len(name) for name, _ in shown), default=0)
    lines = [f"  {label} {name:<{width}}  {text}".rstrip() for name, text in shown]
    more = len(rows) - len(shown)
    return [*lines, f"  {label} … and {more} more"] if more > 0 else lines


def matches(info: VocabInfo) -> NDArray[np.int64]:
    """Return the old row of each new row's word; -1 if the word is new."""
    import pyarrow.compute as pc

    new = _words(info.new_vocab, info.new_vocab_size)
    old = _words(info.old_vocab, info.old_vocab_size)
    found = pc.index_in(new, value_set=old)
    at = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return np.concatenate([at, np.full(info.num_oov_buckets, -1, np.int64)])


def remap_rows(
    info: VocabInfo,
    at: NDArray[np.int64],
    old: NDArray[Any],
    initial: NDArray[Any],
    *,
    name: str,
) -> NDArray[Any]:
    """Return `initial` with the old rows (or columns) that `at` names."""
    axis = min(info.axis, initial.ndim - 1)
    length = initial.shape[axis] if initial.ndim else 0
    others = [n for i, n in enumerate(initial.shape) if i != axis]
    if old.ndim != initial.ndim or others != [
        n for i, n in enumerate(old.shape) if i != axis
    ]:
        raise CheckpointError(
            f"warm start: {name} is {list(old.shape)} in the checkpoint and "
            f"{list(initial.shape)} in the model; a vocabulary changes axis {axis} "
            "only."
        )
    if length > len(at):
        raise CheckpointError(
            f"warm start: {name} has {length} entries along axis {axis}, but its "
            f"VocabInfo has {len(at)}: new_vocab_size {info.new_vocab_size} and "
            f"{info.num_oov_buckets} out-of-vocabulary buckets."
        )
    at = at[:length]
    if at.max(initial=-1) >= old.shape[axis]:
        raise CheckpointError(
            f"warm start: {name} has {old.shape[axis]} entries along axis {axis} in "
            f"the checkpoint, fewer than the words of old_vocab (one of them is word "
            f"{int(at.max())}). Is it the vocabulary that the model was trained with?"
        )
    # One gather and one scatter along the axis; a loop over the words of a table of ten
    # million rows would take minutes.
    kept = np.flatnonzero(at >= 0)
    result = np.array(initial)
    into: list[Any] = [slice(None)] * initial.ndim
    into[axis] = kept
    result[tuple(into)] = np.take(old, at[kept], axis=axis)
    return result


def _words(given: WordsOrFile, size: int) -> Any:  # an Arrow array; it has no types
    """Return the words, each with its line feed, as an Arrow array.

    The array points into the bytes of the file. A table may have ten million rows, so
    no Python object is made per word.
    """
    import pyarrow as pa

    # A word keeps its line feed. Both vocabularies have it, so words are equal if and
    # only if their lines are, and no byte has to be copied to remove it.
    text = _lines(given)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    if size > len(ends):
        raise ConfigError(
            f"VocabInfo: {_vocabulary_name(given)} has {len(ends)} words, fewer than "
            f"the size of {size} given for it."
        )
    ends = ends if size < 0 else ends[:size]
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)


def _lines(given: WordsOrFile) -> bytes:
    """Return the text of a vocabulary with one line feed after every word."""
    if not isinstance(given, str | os.PathLike):
        return "".join(f"{word}\n" for word in given).encode()
    try:
        with open(given, "rb") as file:
            text = file.read().replace(b"\r\n", b"\n")
    except OSError as error:
        raise MissingFileError(
            f"VocabInfo: vocabulary file {_vocabulary_name(given)} cannot be read "
            f"({error.strerror})."
        ) from None
    return text if text.endswith(b"\n") or not text else text + b"\n"


def _vocabulary_name(given: WordsOrFile) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    return "a list of words"
