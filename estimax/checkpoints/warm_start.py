"""A new model that starts from what another one has learned.

    settings = WarmStartSettings("runs/a", vars_to_warm_start="dnn/.*")
    state, report = warm_start(state, settings)
    print(report)                 # what was loaded, what was not, and why

Variables are found by name. The optimizer's slots come along when all of a variable's
are there: a fresh Ftrl, for one, would pull a loaded weight almost to zero in its first
step. The step counter starts at 0, unless a list names `global_step`.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.checkpoints import state_names, vocabularies
from estimax.checkpoints.sources import Slots, Source, open_source
from estimax.checkpoints.vocabularies import VocabInfo
from estimax.core.errors import CheckpointError, ConfigError, did_you_mean
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
        at = None if info is None else vocabularies.matches(info)
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
            old = vocabularies.remapped(info, at, old, initial, name=name)
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
