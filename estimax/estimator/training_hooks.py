"""The hooks of a training run, in the order in which tf.estimator calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from estimax import hooks as stock
from estimax.core.errors import ConfigError
from estimax.core.spec import EstimatorSpec
from estimax.estimator.run_config import RunConfig
from estimax.hooks import Hook
from estimax.hooks.guards import OutOfRangeIdsHook
from estimax.hooks.summary.event_files import SummaryWriter, flush_all
from estimax.training import Program


def training_hooks(
    config: RunConfig,
    spec: EstimatorSpec,
    hooks: Sequence[Hook],
    listeners: Sequence[stock.CheckpointSaverListener],
    *,
    last_step: int | None,
    board: stock.BoardHook | None = None,
) -> list[Hook]:
    """Return the hooks of a `train` call, in the order in which they are called.

    In a cluster, all processes save, each its own rows. Only the chief has the other
    hooks that write to the model_dir; the others compute the same summaries, because
    all processes must run the same programs, and write none.
    """
    every: list[Hook] = []
    given = (*spec.training_chief_hooks, *hooks, *spec.training_hooks)
    every += _checkpointing(config, given, listeners if config.is_chief else ())
    if config.is_chief:
        every += [*spec.training_chief_hooks, *_summarizing(config, board)]
    else:
        saves = stock.CheckpointSaverHook
        every += [h for h in spec.training_chief_hooks if isinstance(h, saves)]
        every += _silent_summaries(config)
    every += hooks
    if last_step is not None:
        every.append(stock.StopAtStepHook(last_step=last_step))
    every += [stock.NanTensorHook(), OutOfRangeIdsHook()]
    if config.log_step_count_steps:
        interval = config.log_step_count_steps
        every.append(stock.LoggingTensorHook(["loss"], every_n_iter=interval))
    return [*every, *spec.training_hooks]


@contextmanager
def finishing_saves(hooks: Sequence[Hook]) -> Iterator[None]:
    """When the block ends, finish writing the checkpoint and the summaries.

    `end` of a hook is not called after an error. Without the wait, a `train` call right
    after the error would miss the checkpoint, or write while the old thread still does.
    Summaries would stay in a buffer (128 KB since Python 3.14) until the process ends.
    """
    try:
        yield
    finally:
        for hook in hooks:
            if isinstance(hook, stock.CheckpointSaverHook):
                hook.close()
        flush_all()


def _checkpointing(
    config: RunConfig,
    given: Sequence[Hook],
    listeners: Sequence[stock.CheckpointSaverListener],
) -> list[Hook]:
    """Return the hook that saves; if one was given, add the listeners to that one."""
    savers = [hook for hook in given if isinstance(hook, stock.CheckpointSaverHook)]
    if savers:
        savers[0].add_listeners(listeners)
        return []
    if config.saves_checkpoints:
        return [saver_hook(config, listeners)]
    if listeners:
        raise ConfigError(
            "train: saving_listeners need checkpoints, but the RunConfig saves none. "
            "Set save_checkpoints_steps or save_checkpoints_secs."
        )
    return []


def saver_hook(
    config: RunConfig,
    listeners: Sequence[stock.CheckpointSaverListener] = (),
    also_every_steps: Sequence[int] = (),
) -> stock.CheckpointSaverHook:
    """Return the hook that saves as a RunConfig says, and at multiples of steps."""
    return stock.CheckpointSaverHook(
        str(config.model_dir),
        save_secs=config.save_checkpoints_secs,
        save_steps=config.save_checkpoints_steps,
        listeners=listeners,
        also_every_steps=also_every_steps,
        keep_max=config.keep_checkpoint_max,
        keep_every_n_hours=config.keep_checkpoint_every_n_hours,
    )


def _summarizing(config: RunConfig, board: stock.BoardHook | None) -> list[Hook]:
    folder = str(config.model_dir)
    # First, because it marks where the events of this run begin.
    found: list[Hook] = [board] if board and config.save_summary_steps else []
    if config.log_step_count_steps:
        found.append(
            stock.StepCounterHook(config.log_step_count_steps, output_dir=folder)
        )
    if config.save_summary_steps:
        found.append(
            stock.SummarySaverHook(config.save_summary_steps, output_dir=folder)
        )
    return found


def _silent_summaries(config: RunConfig) -> list[Hook]:
    if not config.save_summary_steps:
        return []
    return [stock.SummarySaverHook(config.save_summary_steps, summary_writer=_Silent())]


class _Silent(SummaryWriter):
    """A writer that writes nothing."""

    def __init__(self) -> None:
        pass

    def add(self, step: int, values: Iterable[tuple[str, str, Any]]) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def board_hook(config: RunConfig, program: Program, params: Any) -> stock.BoardHook:
    """Return the hook that writes the graph, the params and the embeddings."""
    return stock.BoardHook(
        str(config.model_dir),
        graph=program.recording.graph,
        hparams=_hparams(params),
        words={name: words.words for name, words in program.words.items()},
    )


def _hparams(params: Any) -> dict[str, Any]:
    """Return those params of a model that fit into a table: numbers, text, booleans."""
    if not isinstance(params, Mapping):
        return {}
    return {
        str(name): value
        for name, value in params.items()
        if isinstance(value, bool | int | float | str)
    }
