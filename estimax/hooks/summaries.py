"""Writing what a model logs, and its variables, for TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax import summary
from estimax.core.errors import ConfigError
from estimax.core.state import TrainState
from estimax.hooks.hook import Hook, RunContext, SecondOrStepTimer, Values

# Taking a sample means moving the whole array from the device; this bounds it.
_MOST_ELEMENTS = 1_000_000


class SummarySaverHook(Hook):
    """Writes the loss, all that the model logs, and histograms of its variables.

    Acts after the first step and then every `save_steps` steps or `save_secs` seconds.
    Values are stamped with the number of steps done, the coming update included: 1, 51,
    101 for `save_steps=50`. Variables of up to a million elements are written every
    `histograms_every`-th time (0: never), from a sample of ten thousand values each.

    In evaluation it writes what the model logs there, of the first batch; nothing of
    that is written without it.

    >>> hook = SummarySaverHook(save_steps=100, output_dir="/tmp/estimax-doc-events")
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: summary.SummaryWriter | None = None,
        *,
        histograms_every: int = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        if (output_dir is None) == (summary_writer is None):
            raise ConfigError(
                "SummarySaverHook: say where to write, by output_dir or by "
                "summary_writer."
            )
        self._output = summary.Output(output_dir, summary_writer)
        self._histograms_every = histograms_every
        self._count = 0

    def begin(self, context: RunContext) -> None:
        """Open the summaries."""
        self._timer.reset()
        self._count = 0
        self._output.open()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for the loss and all that the model logs, when it may be time."""
        if not self._timer.is_due_next():
            return None
        if context.state is None and not self._timer.should_trigger_for_step(
            context.step
        ):
            return None  # an evaluation, whose step stays what it is
        # What is named by `ex.log_value` is for hooks that ask for it.
        logged = (name for name, kind in context.logged.items() if kind != "value")
        return ["loss", *(name for name in logged if name != "loss")]

    def after_run(self, context: RunContext, values: Values) -> None:
        """Write the values if it is time."""
        if not values or not self._timer.should_trigger_for_step(context.step):
            return
        self._timer.update_last_triggered_step(context.step)
        writer = self._output.writer
        assert writer is not None, "a hook must begin before it runs"
        kinds = context.logged
        found = [(kinds.get(name, "scalar"), name, v) for name, v in values.items()]
        every = self._histograms_every
        if every and context.state is not None and self._count % every == 0:
            found += [("histogram", *sample) for sample in _samples(context.state)]
        writer.add(context.step, found)
        self._count += 1

    def end(self, context: RunContext) -> None:
        """Close the summaries."""
        self._output.close()

    def next_step(self, step: int) -> int:
        """The step count at which to write next."""
        return self._timer.next_step(step)


def _samples(state: TrainState) -> Iterator[tuple[str, NDArray[Any]]]:
    trees = (state.params, state.tables)
    for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
        if 0 < leaf.size <= _MOST_ELEMENTS:
            name = jax.tree_util.keystr(path[1:], simple=True, separator="/")
            flat = np.asarray(leaf).reshape(-1)
            yield name, flat[:: summary.stride_of_sample(flat.size)]
