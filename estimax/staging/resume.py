"""The batches of one call of `train`: where they start, and where they end.

    batches = ResumableBatches(make, position, has_ended=True)
    batches.first                    # without consuming it
    for features, labels in batches: ...

A call that was interrupted continues at its position and ends where it would have. One
that ended normally lets the next call continue where it stopped, if the input is the
same Dataset. That call goes round: at the end of the data it starts at the beginning,
and it stops where it started, so that it reads as many batches as a new input gives.
Any other input is read from its beginning.

This is the only iterator between the Dataset and the thread of the `Feed`. The source
that it reads (`open_source`) knows the position in the data, with pass and epoch; this
class adds what the call has read. Only one thread may use it at a time: the thread that
makes the feed reads the first batch, the thread of the feed all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

from estimax import input as inputs
from estimax.core.errors import InputError
from estimax.input.adapters import (
    ConstantSource,
    LabeledBatch,
    check_batch,
    open_source,
    why_endless,
)
from estimax.input.iterator import at_epoch_of, without_fingerprint
from estimax.input.streams.positions import END

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
        # Opened before the position is judged: whether a call may continue there
        # depends on the input that the function returns now.
        self._open()
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
        # The batch was read to record the model, and is trained on like any other.
        self._given_back = self.first is not None

    def _open(self) -> None:
        resume: Literal["skip", "refuse"] = "skip" if self._may_start_over else "refuse"
        returned = self._make()
        self.endless = why_endless(returned)
        self._source = open_source(returned, resume=resume, seed=self._seed)
        # The source, if it can start another pass and tell its data from other data.
        self._dataset: inputs.DatasetIterator | None = None
        if isinstance(self._source, inputs.DatasetIterator):
            self._dataset = self._source
        # Batches since the beginning of the data; None if an earlier version saved the
        # position, which did not count them.
        self._count: int | None = 0
        self._began_at = 0  # the count when the call began
        self._went_round = False

    @property
    def has_fingerprint(self) -> bool:
        """Whether the position identifies the data, as it does for most Datasets."""
        return self._dataset is not None and self._dataset.recipe is not None

    @property
    def advice(self) -> str:
        """What makes the input slow, if that is known: a sentence, or ""."""
        return str(getattr(self._source, "advice", ""))

    def __iter__(self) -> ResumableBatches:
        return self

    def __next__(self) -> LabeledBatch:
        if self._given_back:
            self._given_back = False
            assert self.first is not None, "a batch was given back"
            return self.first
        batch = self._read()
        if batch is None:
            raise StopIteration
        return batch

    def _read(self) -> LabeledBatch | None:
        """Return the next batch, or None at the end of the call's data."""
        if self._went_round and self._count == self._began_at:
            return None
        element = next(self._source, END)
        if element is END and self._began_at and not self._went_round:
            assert self._dataset is not None, "only datasets go round"
            self._dataset.start_next_pass()
            self._went_round, self._count = True, 0
            element = next(self._source, END)
        if element is END:
            return None
        batch = check_batch(element)
        if self._count is not None:
            self._count += 1
        return batch

    def get_state(self) -> Any:
        """Return the position after the last batch, with what the call has read."""
        state = self._source.get_state()
        if self._dataset is None or self._count is None:
            return state
        # These keys are in checkpoints. They must not change, and a position without
        # them must stay readable.
        call = {
            "batches": self._count,
            "began_at": self._began_at,
            "went_round": self._went_round,
            "recipe": self._dataset.recipe,
        }
        return {**state, "call": call}

    def close(self) -> None:
        self._source.close()

    def _continue_at(self, position: Any) -> None:
        """Go to the position of the last call, or stay at the beginning; log which."""
        if isinstance(self._source, ConstantSource):  # every position is the same
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
            # The failed attempt may have read part of a plain iterator.
            self.close()
            self._open()
            return
        self._count = call["batches"] if call else None
        # After a normal end this is a new call, which reads one whole pass from here.
        # An interrupted call goes on as it began, and ends where it would have ended.
        if self._has_ended:
            self._began_at = self._count or 0
            _log.info("the data continues where the last call of train stopped")
        else:
            if call:
                self._began_at, self._went_round = call["began_at"], call["went_round"]
            _log.info("the data continues where training was interrupted")

    def _start_epoch_of(self, positions: Sequence[Any]) -> None:
        """Go to the beginning of the earliest epoch among the positions of shares."""
        state = self._source.get_state()
        moved = at_epoch_of(state, positions)
        if self._dataset is None or moved is None:
            _log_beginning("another number of processes reads it", logging.WARNING)
            return
        self._source.set_state(moved)
        # Shares of another size give other batches, so the count would be wrong.
        self._count = None
        _log.warning(
            "the data starts at the beginning of the epoch that was interrupted, "
            "because another number of processes reads it"
        )

    def _why_other(self, call: dict[str, Any] | None) -> str | None:
        """Return why the last call may have read different input, or None."""
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
            self._source.set_state(position)
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
            # After a normal end, new data is not a mistake and needs no advice.
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
