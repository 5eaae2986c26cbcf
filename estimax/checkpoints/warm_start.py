"""A new model that starts from what another one has learned.

    settings = WarmStartSettings("runs/a", vars_to_warm_start="dnn/.*")
    state, report = warm_start(state, settings)
    print(report)                 # what was loaded, what was not, and why

Variables are found by name. The optimizer's slots come along when all of a variable's
are there: a fresh Ftrl, for one, would pull a loaded weight almost to zero in its first
step. The step counter starts at 0, unless a list names `global_step`.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints import manager, state_names, tensorflow_format
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


@dataclass(frozen=True)
class WarmStartSettings:
    """Which variables start from a checkpoint, under which names.

    `ckpt_to_initialize_from` is a checkpoint or a model_dir. `vars_to_warm_start` is a
    regular expression, or a list of them, that a variable's name must match at its
    start; a list may also name `global_step`. None takes only the variables of
    `var_name_to_vocab_info`, whose rows follow another vocabulary.
    `var_name_to_prev_var_name` maps names in the model to those in the checkpoint.

    Every selected variable must be there in the same shape; with `partial` one that is
    not keeps its initial value. `slots` False leaves the optimizer's state behind.

    >>> WarmStartSettings("runs/a", vars_to_warm_start="dnn/.*").slots
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


WarmStart = str | bytes | os.PathLike[str] | WarmStartSettings | None


def as_settings(given: Any) -> WarmStartSettings | None:
    """The settings that a `warm_start_from` argument means; a path means all of it."""
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, str | bytes | os.PathLike):
        return WarmStartSettings(os.fsdecode(given))
    raise ConfigError(
        "warm_start_from must be the path of a checkpoint or model_dir, or "
        f"WarmStartSettings, got {type(given).__name__}."
    )


@dataclass(frozen=True)
class Report:
    """What a warm start did with each variable; `str` makes a table of it."""

    source: str
    loaded: dict[str, str]  # variable -> how
    kept: dict[str, str]  # variable -> why its initial value stayed
    unused: tuple[str, ...]  # variables of the checkpoint that nothing took

    def __str__(self) -> str:
        total = len(self.loaded) + len(self.kept)
        lines = [
            f"warm start from {self.source}: {len(self.loaded)} of {total} variables",
            *_listed("loaded ", self.loaded),
            *_listed("initial", self.kept),
            *_listed("unused ", dict.fromkeys(self.unused, "in the checkpoint only")),
        ]
        return "\n".join(lines)


def warm_start(
    state: TrainState, settings: WarmStartSettings
) -> tuple[TrainState, Report]:
    """Put a checkpoint's arrays in the place of a new state's own."""
    transfer = _Transfer(state, settings, open_source(settings.ckpt_to_initialize_from))
    arrays = transfer.arrays()
    return state_names.filled(state, arrays), transfer.report()


class _Transfer:
    """One warm start under way."""

    def __init__(
        self, state: TrainState, settings: WarmStartSettings, source: Source
    ) -> None:
        self._settings = settings
        self._source = source
        self._key = state.key
        self._named = state_names.flatten_state(state)
        self._variables = state_names.variable_names(state)
        self._vocabularies = settings.var_name_to_vocab_info or {}
        self._old_names = settings.var_name_to_prev_var_name or {}
        self._selected = _selected(settings, [*self._variables, state_names.STEP])
        self._slots = state_names.slots_of(self._named, self._variables)
        self._loaded: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        _check_names(settings, self._selected, self._variables)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array to be put into the state, by its name there."""
        problems = {n: self._problem(n) for n in self._selected}
        wrong = {name: why for name, why in problems.items() if why}
        if wrong and not self._settings.partial:
            raise CheckpointError(
                f"warm start from {self._source.path}: "
                f"{len(wrong)} of the selected variables do not fit:"
                + "".join(f"\n{line}" for line in _listed("", wrong, _MOST_LISTED))
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

    def report(self) -> Report:
        """What was done."""
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
        return Report(
            self._source.path, self._loaded, self._kept | not_selected, tuple(unused)
        )

    def _old(self, name: str) -> str:
        return self._old_names.get(name, name)

    def _problem(self, name: str) -> str | None:
        """Why a variable cannot be loaded, if it cannot."""
        old, shapes = self._old(name), self._source.shapes
        if old not in shapes:
            called = "" if old == name else f" (there: {old!r})"
            near = difflib.get_close_matches(old, shapes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return f"missing in the checkpoint{called}{hint}"
        new_shape = tuple(self._named[name].shape)
        if name not in self._vocabularies and shapes[old] != new_shape:
            return (
                f"{list(shapes[old])} in the checkpoint, {list(new_shape)} in the model"
            )
        return None

    def _one(self, name: str, old_slots: Slots) -> dict[str, NDArray[Any]]:
        """A variable, its slots and its average."""
        info = self._vocabularies.get(name)
        at = None if info is None else matches(info)
        value = self._moved(name, self._old(name), info, at, initialize=True)
        arrays = {name: value}
        notes = [_form(value)]
        if at is not None:
            notes.append(f"{np.count_nonzero(at >= 0)} of {len(at)} by vocabulary")
        notes += [f"there: {self._old(name)}"] if self._old(name) != name else []
        wanted, found = self._slots.get(name, {}), old_slots.get(self._old(name), {})
        if wanted and self._fits(name, wanted, found):
            for slot, slot_name in wanted.items():
                arrays[slot_name] = self._moved(slot_name, found[slot], info, at)
            notes.append(f"with {', '.join(wanted)}")
        elif wanted:
            notes.append(f"fresh {', '.join(wanted)}")
            if "linear" in wanted:
                _log.warning(
                    "warm start: %s is loaded without its Ftrl slots, so the first "
                    "update will pull it close to zero",
                    name,
                )
        average = f"{name}/{state_names.AVERAGE}"
        if average in self._named:
            arrays[average] = value.copy()  # an average begins at its variable
        self._loaded[name] = ", ".join(notes)
        return arrays

    def _fits(
        self, name: str, wanted: Mapping[str, str], found: Mapping[str, str]
    ) -> bool:
        """Whether every slot is there in the variable's shape; one alone is no use."""
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
        """An array of the checkpoint in the form that the state has."""
        old, leaf = self._source.read(old_name), self._named[name]
        if info is not None and at is not None:
            initial = np.asarray(leaf)
            if initialize and info.backup_initializer is not None:
                key = jax.random.fold_in(self._key, zlib.crc32(name.encode()))
                initial = np.asarray(info.backup_initializer(key, initial.shape))
            old = remapped(info, at, old, initial, name=name)
        return old.astype(leaf.dtype, copy=False)


def _selected(settings: WarmStartSettings, names: Sequence[str]) -> list[str]:
    given = settings.vars_to_warm_start
    if given is None:
        mapped = settings.var_name_to_vocab_info or {}
        return [name for name in names if name in mapped]
    if isinstance(given, str):
        # As in tf.estimator: a single expression is about variables alone.
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


def _listed(
    label: str, rows: Mapping[str, str], most: int = _MOST_IN_A_TABLE
) -> list[str]:
    """Lines of a table, cut when there are very many."""
    shown = list(rows.items())[:most]
    width = max((len(name) for name, _ in shown), default=0)
    lines = [f"  {label} {name:<{width}}  {text}".rstrip() for name, text in shown]
    more = len(rows) - len(shown)
    return [*lines, f"  {label} … and {more} more"] if more > 0 else lines


Vocabulary = str | os.PathLike[str] | Sequence[str]
Array = NDArray[Any]


@dataclass(frozen=True)
class VocabInfo:
    """How the rows of a variable follow from a vocabulary, then and now.

    A vocabulary is a file of one word per line, or the words themselves. Rows without
    a match keep the variable's own initial values, unless a `backup_initializer`
    (`f(key, shape)`, as JAX's are) makes others; it is called with the whole
    variable's shape. `axis` 1 remaps columns, as for a class vocabulary; a vector has
    one axis only, which is then meant. `old_vocab_size` -1 means all of the words.

    >>> VocabInfo(["z", "q", "x"], 3, 1, ["x", "y", "z"]).axis
    0
    """

    new_vocab: Vocabulary
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: Vocabulary
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


def matches(info: VocabInfo) -> NDArray[np.int64]:
    """For each new row the old row of the same word, -1 where there is none."""
    import pyarrow.compute as pc

    new = _words(info.new_vocab, info.new_vocab_size)
    old = _words(info.old_vocab, info.old_vocab_size)
    found = pc.index_in(new, value_set=old)
    at = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return np.concatenate([at, np.full(info.num_oov_buckets, -1, np.int64)])


def remapped(
    info: VocabInfo, at: NDArray[np.int64], old: Array, initial: Array, *, name: str
) -> Array:
    """The new array: old rows (or columns) where `at` names one, else the initial."""
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
            f"VocabInfo tells of {len(at)}: new_vocab_size {info.new_vocab_size} and "
            f"{info.num_oov_buckets} out-of-vocabulary buckets."
        )
    at = at[:length]
    if at.max(initial=-1) >= old.shape[axis]:
        raise CheckpointError(
            f"warm start: {name} has {old.shape[axis]} entries along axis {axis} in "
            f"the checkpoint, fewer than the words of old_vocab (one of them is word "
            f"{int(at.max())}). Is it the vocabulary that the model was trained with?"
        )
    kept = np.flatnonzero(at >= 0)
    result = np.array(initial)
    into: list[Any] = [slice(None)] * initial.ndim
    into[axis] = kept
    result[tuple(into)] = np.take(old, at[kept], axis=axis)
    return result


def _words(given: Vocabulary, size: int) -> Any:  # an Arrow array; it has no types
    """The words, each with its line feed: an array over the file's own bytes.

    A table of ten million rows has as many words; none of them becomes an object.
    """
    import pyarrow as pa

    text = _lines(given)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    if size > len(ends):
        raise ConfigError(
            f"VocabInfo: {_shown(given)} has {len(ends)} words, fewer than the size "
            f"of {size} that is given for it."
        )
    ends = ends if size < 0 else ends[:size]
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)


def _lines(given: Vocabulary) -> bytes:
    """The text of a vocabulary, every word ended by one line feed."""
    if not isinstance(given, str | os.PathLike):
        return "".join(f"{word}\n" for word in given).encode()
    try:
        with open(given, "rb") as file:
            text = file.read().replace(b"\r\n", b"\n")
    except OSError as error:
        raise MissingFileError(
            f"VocabInfo: vocabulary file {_shown(given)} cannot be read "
            f"({error.strerror})."
        ) from None
    return text if text.endswith(b"\n") or not text else text + b"\n"


def _shown(given: Vocabulary) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    return "a list of words"


Slots = dict[str, dict[str, str]]  # variable -> slot ("accumulator") -> its name


class Source(Protocol):
    """Named arrays on disk."""

    @property
    def path(self) -> str:
        """What was opened."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every array, by name."""

    def read(self, name: str) -> NDArray[Any]:
        """One array, verified."""

    def slots(self, variables: Iterable[str]) -> Slots:
        """The optimizer's arrays of each variable that has some."""


def open_source(given: str | os.PathLike[str]) -> Source:
    """Open a checkpoint, or the latest one of a model_dir; TensorFlow's as well.

    >>> import tempfile
    >>> import numpy as np
    >>> path = formats.write(tempfile.mkdtemp() + "/model.ckpt-1", {"w": np.ones(2)}, 1)
    >>> open_source(path).shapes
    {'w': (2,)}
    """
    path = Path(given)
    if (path / formats.MANIFEST).exists():
        return _Folder(path)
    found = manager.latest(path)
    if found is not None:
        return _Folder(found)
    prefix = tensorflow_checkpoint(path)
    if prefix is not None:
        return _TensorFlow(prefix)
    raise MissingFileError(
        f"warm start: {os.fspath(given)!r} is neither a checkpoint nor a model_dir "
        "with one. Give the folder that a model was trained in, or one of the "
        "model.ckpt-<step> inside; TensorFlow's are named without .index."
    )


def tensorflow_checkpoint(given: str | os.PathLike[str]) -> str | None:
    """What the files of a TensorFlow checkpoint begin with, if there is one."""
    path = Path(given)
    candidates = [path, path / "variables" / "variables"]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        state = (path / manager.STATE_FILE).read_text()
        latest = re.search(r'^model_checkpoint_path: "(.*)"', state, re.MULTILINE)
        if latest:
            candidates.append(path / latest[1])
    for candidate in candidates:
        if Path(f"{candidate}.index").exists():
            return str(candidate)
    return None


class _Folder:
    """An estimax checkpoint."""

    def __init__(self, path: Path) -> None:
        self._folder = path
        self._manifest = formats.read_manifest(path)

    @property
    def path(self) -> str:
        return str(self._folder)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self._manifest.arrays.items()}

    def read(self, name: str) -> NDArray[Any]:
        return formats.read_entry(self._folder, self._manifest.arrays[name], name)

    def slots(self, variables: Iterable[str]) -> Slots:
        return state_names.slots_of(self._manifest.arrays, variables)


class _TensorFlow:
    """A checkpoint that tf.estimator wrote, or the variables of a SavedModel."""

    def __init__(self, prefix: str) -> None:
        self.path = prefix
        self._entries = tensorflow_format.read_index(prefix)
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: self._entries[name.encode()].shape
            for name in tensorflow_format.names(self._entries)
        }

    def read(self, name: str) -> NDArray[Any]:
        return tensorflow_format.read_array(self.path, name, self._entries)

    def slots(self, variables: Iterable[str]) -> Slots:
        return tensorflow_format.slots_of(self.shapes, set(variables))
