"""Hooks that write for TensorBoard: summaries, what is written once, and profiles.

`SummarySaverHook` writes at an interval, `BoardHook` at the begin and the end of a run,
`ProfilerHook` traces single steps with the JAX profiler.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import ConfigError
from estimax.core.state import TrainState
from estimax.core.table_stacks import on_host
from estimax.hooks import summary
from estimax.hooks.hook import (
    NEVER,
    Hook,
    RunContext,
    SecondOrStepTimer,
    Values,
    describe_hook,
)
from estimax.hooks.summary.projector import MOST_ROWS

_log = logging.getLogger("estimax")

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
        return describe_hook(
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
    trees = (state.params, on_host(state.tables))
    rows = dict(state.row_counts)  # of tables that have padding on a mesh
    for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
        # A table that is sharded over processes is whole in none of them.
        is_here = isinstance(leaf, np.ndarray) or (
            leaf.is_fully_addressable or leaf.is_fully_replicated
        )
        if 0 < leaf.size <= _MOST_ELEMENTS and is_here:
            name = jax.tree_util.keystr(path[1:], simple=True, separator="/")
            values = np.asarray(leaf)
            flat = (values[: rows[name]] if name in rows else values).reshape(-1)
            yield name, flat[:: summary.stride_of_sample(flat.size)]


class BoardHook(Hook):
    """Write the model's graph, its hyper-parameters and its embeddings.

    `train` adds this hook by itself if it writes summaries. The graph and the
    hyper-parameters are written when training starts at step 0, the embeddings at the
    end of every call. When training resumes, the hook marks the step, so that events
    which a killed run wrote behind its last checkpoint do not appear twice.

    Args:
      output_dir: Folder of the event files.
      graph: Function that returns a serialized GraphDef; None for no graph.
      hparams: Hyper-parameters by name; see `ex.summary.SummaryWriter.hparams`.
      words: The words of the rows of embedding tables, by the name of the table; a
        sequence of str, bytes or int each. The first 5,000 rows are written, for
        TensorBoard's projector.

    Example:
      >>> import tempfile
      >>> folder = tempfile.mkdtemp()
      >>> BoardHook(folder, hparams={"units": 64}).begin(RunContext(step=0))
      >>> len(os.listdir(folder))
      1
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        *,
        graph: Callable[[], bytes] | None = None,
        hparams: Mapping[str, Any] | None = None,
        words: Mapping[str, Any] | None = None,
    ) -> None:
        self._output_dir = output_dir
        self._graph = graph
        self._hparams = hparams or {}
        self._words = words or {}

    def __repr__(self) -> str:
        return describe_hook(self, str(self._output_dir))

    def begin(self, context: RunContext) -> None:
        with summary.SummaryWriter(self._output_dir) as writer:
            if context.step:
                writer.restart(context.step + 1)
                return
            if self._graph is not None:
                writer.graph(self._graph())
            if self._hparams:
                writer.hparams(self._hparams)

    def end(self, context: RunContext) -> None:
        if context.state is None:
            return
        found = []
        for name, words in sorted(self._words.items()):
            table = context.state.tables.get(name)
            if table is None or table.ndim != 2 or table.shape[1] == 1:
                continue
            if table.is_fully_replicated:
                # The copy of this process, so that no other takes part in reading it.
                table = table.addressable_data(0)
            # A table that is sharded over processes is whole in none of them.
            if table.is_fully_addressable:
                # Rows behind the words are for words that are not in the vocabulary.
                rows = min(len(words), MOST_ROWS)
                listed = [_text(word) for word in words[:rows].tolist()]
                vectors = np.asarray(table[:rows])
                found.append(summary.Embedding(name, vectors, listed))
        summary.write_embeddings(self._output_dir, found)

    def next_step(self, step: int) -> int:
        return NEVER


def _text(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


class ProfilerHook(Hook):
    """Write a profiler trace of one compiled loop at an interval.

    Use it to see where the time of a step goes, on the device and on the host. The
    traces are in `plugins/profile/<time>` below `output_dir`; TensorBoard's profile
    plugin and Perfetto show them. The first trace is taken one interval after the
    start, because the first step compiles.

    Args:
      save_steps: Steps between two traces.
      save_secs: Seconds between two traces. Give exactly one of the two.
      output_dir: Folder to write to; by default the current one.
      show_dataflow: Whether to trace the calls of Python functions on the host too.
      show_memory: Whether to write the content of the device's memory as
        `memory-<step>.prof`, for pprof.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: Neither or both of `save_steps` and `save_secs` are given, or the
        given one is not above 0.

    Example:
      >>> hook = ProfilerHook(save_steps=1000, output_dir="/tmp/profiles")
      >>> hook
      ProfilerHook(save_steps=1000, output_dir='/tmp/profiles')
      >>> hook.begin(RunContext(step=500))  # resumed at step 500
      >>> hook.next_step(500)
      1500
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        self._output_dir = Path(output_dir)
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory
        self._is_tracing = False

    def __repr__(self) -> str:
        return describe_hook(
            self,
            save_steps=self._timer.every_steps,
            save_secs=self._timer.every_secs,
            output_dir=str(self._output_dir),
        )

    def begin(self, context: RunContext) -> None:
        self._timer.update_last_triggered_step(context.step)
        if self._is_tracing:  # the last run failed during a trace
            self._stop_trace()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        if not self._timer.is_due_next():
            return None
        # Earlier steps may still be queued on the device. Wait for them, to keep them
        # out of the trace.
        jax.block_until_ready(context.state)  # type: ignore[no-untyped-call]
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = int(self._show_dataflow)
        jax.profiler.start_trace(self._output_dir, profiler_options=options)
        self._is_tracing = True
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        if not self._is_tracing:
            return
        jax.block_until_ready(context.state)  # type: ignore[no-untyped-call]
        self._stop_trace()
        self._timer.update_last_triggered_step(context.step)
        if self._show_memory:
            path = self._output_dir / f"memory-{context.step}.prof"
            jax.profiler.save_device_memory_profile(str(path))
        _log.info("wrote a profile of step %d under %s", context.step, self._output_dir)

    def next_step(self, step: int) -> int:
        return self._timer.next_step(step)

    def _stop_trace(self) -> None:
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        self._is_tracing = False
