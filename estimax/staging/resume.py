"""The batches of one call of `train`: where they start, and where they end.

    batches = ResumableBatches(make, position, has_ended=True)
    batches.first                    # without consuming it
    for features, labels in batches: ...

A call that was interrupted continues at its position and ends where it would have. One
that ended normally lets the next call continue where it stopped, if the input is the
same Dataset. That call goes round: at the end of the data it starts at the beginning,
and it stops where it started, so that it reads as many batches as a new input gives.
Any other input is read from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from estimax import input as inputs
from estimax.core.errors import InputError
from estimax.input.adapters import DatasetBatches
from estimax.input.iterator import at_epoch_of, without_fingerprint

_log = logging.getLogger("estimax")
_OTHER_VERBS = "the verbs of the dataset, or their arguments, have changed"


class ResumableBatches:
    """An iterator of batches whose first one can be read without consuming it.

    Args:
      make: Called without arguments; returns what the `input_fn` returns.
      position: Where the last call stopped; None starts at the beginning.
      seed: Seed for shuffles that were given none.
      has_ended: Whether the call that saved the position ended normally.
      may_start_over: False raises if the call cannot continue at the position.
      is_checked: False continues at the position without comparing the data.
      epochs_of: Positions of shares of the same data, at whose epoch it starts.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        position: Any = None,
        *,
        seed: int | None = None,
        has_ended: bool = False,
        may_start_over: bool = True,
        is_checked: bool = True,
        epochs_of: Sequence[Any] = (),
    ) -> None:
        self._make = make
        self._seed = seed
        self._has_ended = has_ended
        self._may_start_over = may_start_over
        self._is_checked = is_checked
        self._open()
        self.endless = str(getattr(self._batches, "endless", ""))
        if position is not None:
            self._continue_at(position)
        elif epochs_of:
            self._start_epoch_of(epochs_of)
        # After a normal end the position stays as it was until a step has been trained,
        # so that the first save of the call finds its checkpoint already written.
        self.start = position if has_ended and position else self.get_state()
        self.first = self._read()
        if self.first is None and position is not None:
            self._start_another_pass()
        self._given_back = self.first is not None

    def _open(self) -> None:
        resume: Literal["skip", "refuse"] = "skip" if self._may_start_over else "refuse"
        self._batches = inputs.as_batches(self._make(), resume=resume, seed=self._seed)
        self._dataset: DatasetBatches | None = None
        if isinstance(self._batches, DatasetBatches):
            self._dataset = self._batches
        # Batches since the beginning of the data; None if an earlier version saved the
        # position, which did not count them.
        self._count: int | None = 0
        self._began_at = 0  # the count when the call began
        self._went_round = False

    @property
    def has_fingerprint(self) -> bool:
        """Whether the position tells the data apart: that of most Datasets does."""
        return self._dataset is not None and self._dataset.recipe is not None

    @property
    def advice(self) -> str:
        """What makes the input slow, if that is known: a sentence, or ""."""
        return str(getattr(self._batches, "advice", ""))

    def __iter__(self) -> ResumableBatches:
        return self

    def __next__(self) -> Any:
        if self._given_back:
            self._given_back = False
            return self.first
        batch = self._read()
        if batch is None:
            raise StopIteration
        return batch

    def _read(self) -> Any:
        """Return the next batch, or None at the end of the call's data."""
        if self._went_round and self._count == self._began_at:
            return None
        batch = next(self._batches, None)
        if batch is None and self._began_at and not self._went_round:
            assert self._dataset is not None, "only datasets go round"
            self._dataset.start_next_pass()
            self._went_round, self._count = True, 0
            batch = next(self._batches, None)
        if batch is not None and self._count is not None:
            self._count += 1
        return batch

    def get_state(self) -> Any:
        """Return the position after the last batch, with what the call has read."""
        state = self._batches.get_state()
        if self._dataset is None or self._count is None:
            return state
        call = {
            "batches": self._count,
            "began_at": self._began_at,
            "went_round": self._went_round,
            "recipe": self._dataset.recipe,
        }
        return {**state, "call": call}

    def close(self) -> None:
        self._batches.close()

    def _continue_at(self, position: Any) -> None:
        """Go to the position of the last call, or stay at the beginning; log which."""
        if getattr(self._batches, "is_constant", False):  # one batch, repeated
            return
        call = position.get("call") if isinstance(position, dict) else None
        why = self._why_other(call) if self._has_ended else None
        if why == _OTHER_VERBS and not self._may_start_over:
            raise InputError(
                f"cannot resume the input: {why}. "
                'RunConfig(resume_input="refuse") asks for this error.'
            )
        if why and self._may_start_over:
            _log_beginning(why)
            return
        if not self._is_checked:
            position = without_fingerprint(position)
        if not self._resume_at(position):
            self.close()
            self._open()
            return
        self._count = call["batches"] if call else None
        if self._has_ended:
            self._began_at = self._count or 0
            _log.info("the data continues where the last call of train stopped")
        else:
            if call:
                self._began_at, self._went_round = call["began_at"], call["went_round"]
            _log.info("the data continues where training was interrupted")

    def _start_epoch_of(self, positions: Sequence[Any]) -> None:
        """Go to the beginning of the earliest epoch among the positions of shares."""
        state = self._batches.get_state()
        moved = at_epoch_of(state, positions)
        if self._dataset is None or moved is None:
            _log_beginning("another number of processes reads it", logging.WARNING)
            return
        self._batches.set_state(moved)
        self._count = None
        _log.warning(
            "the data starts at the beginning of the epoch that was interrupted, "
            "because another number of processes reads it"
        )

    def _why_other(self, call: dict[str, Any] | None) -> str | None:
        """Return why the input may be another than that of the last call, or None."""
        if self._dataset is None or self._dataset.recipe is None:
            return "the input has no fingerprint, so it may be another one"
        if call is None:
            return "an earlier version of estimax, or another input, saved the position"
        if self._is_checked and call["recipe"] != self._dataset.recipe:
            return _OTHER_VERBS
        return None

    def _resume_at(self, position: Any) -> bool:
        """Go to a position; return False if the input must start over instead."""
        try:
            self._batches.set_state(position)
        except InputError as error:
            is_changed = isinstance(error, inputs.ChangedInputError)
            if is_changed and not (self._has_ended and self._may_start_over):
                raise inputs.ChangedInputError(
                    f'{error} RunConfig(resume_input="restart") starts it from its '
                    "beginning; the model and its step are kept. If only rows behind "
                    "the position were changed, as when a bad line was corrected, "
                    '"unchecked" continues there.'
                ) from error
            if not self._may_start_over:
                error.add_note(
                    'RunConfig(resume_input="refuse") asks for this error; '
                    '"exact" skips to the position, "restart" starts over.'
                )
                raise
            # After a normal end another input is no mistake, and needs no advice.
            why = getattr(error, "difference", "") if self._has_ended else ""
            level = logging.INFO if self._has_ended else logging.WARNING
            _log_beginning(why or str(error), level)
            return False
        return True

    def _start_another_pass(self) -> None:
        """Start at the beginning again: the interrupted call had read all its data."""
        _log_beginning("the interrupted call had read all of it")
        self.close()
        self._open()
        self.start, self.first = self.get_state(), self._read()


def _log_beginning(why: str, level: int = logging.INFO) -> None:
    _log.log(level, "the data starts from its beginning: %s", why)
