"""A hook that writes summaries of the model and its variables for TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import ConfigError
from estimax.core.state import TrainState
from estimax.hooks import summary
from estimax.hooks.hook import Hook, RunContext, SecondOrStepTimer, Values, described

# A histogram is made from a sample, but the whole array is copied to the host for it.
# Larger variables have no histogram.
_MOST_ELEMENTS = 1_000_000


class SummarySaverHook(Hook):
    """Write the loss, the model's summaries, and histograms and norms of its variables.

    `train` adds this hook by itself, every `RunConfig.save_summary_steps` steps. It
    writes after the first step and then at the interval, for example at the steps 1, 51
    and 101 for `save_steps=50`.

    Pass it to `evaluate` to write the summaries that the model makes for the first
    batch of the evaluation; by default evaluation writes metrics only.

    Args:
      save_steps: Steps between two writes.
      save_secs: Seconds between two writes. Give exactly one of the two.
      output_dir: Folder of the event files.
      summary_writer: Writer to use in place of `output_dir`. Give exactly one of the
        two.
      scaffold: Must be None: there is no graph to finish.
      summary_op: Must be None: every summary of the model is written.
      histograms_every: Write histograms of the variables, and the norms of the
        gradients and weights of each layer, at every n-th write; 0 for never. A
        histogram is made from a sample of 10,000 values. Variables of more than a
        million elements have none. Norms start at the second write.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: Neither or both intervals are given, or neither or both of
        `output_dir` and `summary_writer`, or `scaffold` or `summary_op` is given.

    Example:
      >>> import tempfile
      >>> import numpy as np
      >>> import estimax as ex
      >>> folder = tempfile.mkdtemp()
      >>> hook = ex.hooks.SummarySaverHook(save_steps=2, output_dir=folder)
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor().train(lambda: data, steps=5, hooks=[hook])
      >>> [step for step, _ in ex.summary.read_scalars(folder)["loss"]]
      [1, 3, 5]
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: summary.SummaryWriter | None = None,
        scaffold: None = None,
        summary_op: None = None,
        *,
        histograms_every: int = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if scaffold is not None or summary_op is not None:
            raise ConfigError(
                "SummarySaverHook: scaffold and summary_op must be None; the hook "
                "writes every summary that the model makes with ex.summary."
            )
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        if (output_dir is None) == (summary_writer is None):
            raise ConfigError(
                "SummarySaverHook: give exactly one of output_dir and summary_writer."
            )
        self._output = summary.Output(output_dir, summary_writer)
        self._histograms_every = histograms_every
        self._count = 0

    def __repr__(self) -> str:
        return described(
            self,
            save_steps=self._timer.every_steps,
            save_secs=self._timer.every_secs,
            histograms_every=self._histograms_every,
        )

    def begin(self, context: RunContext) -> None:
        self._timer.reset()
        self._count = 0
        self._output.open()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        if not self._timer.is_due_for_all(context, self._request):
            return None
        if context.state is None and not self._timer.should_trigger_for_step(
            context.step
        ):
            return None  # in evaluation the step is constant: write one batch only
        # Values named by `ex.log_value` are for hooks that request them by name.
        left_out = {"value"} if self._writes_norms() else {"value", "norm"}
        logged = (n for n, kind in context.logged.items() if kind not in left_out)
        return ["loss", *(name for name in logged if name != "loss")]

    def after_run(self, context: RunContext, values: Values) -> None:
        is_due = self._request in context.agreed
        if not values or not (
            is_due or self._timer.should_trigger_for_step(context.step)
        ):
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

    @property
    def _request(self) -> str:
        # All processes compute summaries together, so they must agree on the step.
        return f"summaries every {self._timer.every_secs} seconds"

    def _writes_norms(self) -> bool:
        """Return whether the coming write has norms: as often as histograms.

        They start one write later. Their gradients are compiled at the first request,
        which a training of a few steps does without.
        """
        every = self._histograms_every
        return bool(every) and self._count % every == min(1, every - 1)

    def end(self, context: RunContext) -> None:
        self._output.close()

    def next_step(self, step: int) -> int:
        return self._timer.next_step(step)


def _samples(state: TrainState) -> Iterator[tuple[str, NDArray[Any]]]:
    trees = (state.params, state.tables)
    rows = dict(state.row_counts)  # of tables that have padding on a mesh
    for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
        # A table that is sharded over processes is whole in none of them.
        is_here = leaf.is_fully_addressable or leaf.is_fully_replicated
        if 0 < leaf.size <= _MOST_ELEMENTS and is_here:
            name = jax.tree_util.keystr(path[1:], simple=True, separator="/")
            values = np.asarray(leaf)
            flat = (values[: rows[name]] if name in rows else values).reshape(-1)
            yield name, flat[:: summary.stride_of_sample(flat.size)]
