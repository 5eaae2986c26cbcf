"""Reports of an Estimator: metrics to TensorBoard and the log, and predictions."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from estimax import checkpoints
from estimax.core.display import format_path, html_table, html_text
from estimax.core.errors import SpecError
from estimax.estimator import curves
from estimax.heads.kept_sums import constant_loss
from estimax.hooks import RunContext, summary
from estimax.hooks.summary.encoding import tag_of

_log = logging.getLogger("estimax")


def plain_numbers(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as Python numbers, and arrays of them as lists.

    >>> plain_numbers({"auc": np.float32(0.5), "at": np.arange(2)})
    {'auc': 0.5, 'at': [0, 1]}
    """
    return {name: np.asarray(value).tolist() for name, value in results.items()}


def write_evaluation(
    folder: str,
    results: Mapping[str, Any],
    step: int,
    checkpoint: str,
    metrics: Mapping[str, Any],
) -> None:
    """Write the results of one evaluation, and curves of its metrics, for TensorBoard.

    An evaluation that was repeated with the same results is not written again. With
    other results, it replaces the earlier one of the step, unless later steps follow.
    If the folder is read-only, log a warning; the caller still returns the metrics.
    """
    scalars = {}
    for name, value in results.items():
        if name != "global_step" and np.ndim(value) == 0:
            scalars[tag_of(name)] = float(np.float32(value))
        elif name != "global_step":
            _log.info("metric %r is an array, not written to summaries", name)
    try:
        written = _written_to(folder)
        if _is_same(written.get(step), scalars):
            return
        with summary.SummaryWriter(folder) as writer:
            if step in written and step == max(written):
                writer.restart(step)
            found: list[curves.Value] = [("scalar", *pair) for pair in scalars.items()]
            found += curves.curve_summaries(metrics)
            if checkpoint:  # empty for an evaluation of the state in memory
                found.append(("text", "checkpoint_path", checkpoint))
            writer.add(step, found)
        written[step] = scalars
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        _log.warning(
            "%s: the metrics were not written, because the folder is read-only (%s)",
            folder,
            error.strerror,
        )


# The evaluations in the event files of a folder: step -> metrics.
_written: dict[Path, dict[int, dict[str, float]]] = {}


def _written_to(folder: str) -> dict[int, dict[str, float]]:
    """Return the evaluations that a folder has; its files are read once per process."""
    path = Path(folder).absolute()
    if path not in _written or not any(path.glob("*.tfevents.*")):
        by_step: dict[int, dict[str, float]] = {}
        for name, pairs in summary.read_scalars(path).items():
            for step, value in pairs:
                by_step.setdefault(step, {})[name] = value
        _written[path] = by_step
    return _written[path]


def _is_same(before: Mapping[str, float] | None, now: Mapping[str, float]) -> bool:
    """Return whether two evaluations have the same metrics; NaN equals NaN."""
    return before is not None and all(
        name in before and np.array_equal(before[name], value, equal_nan=True)
        for name, value in now.items()
    )


def log_evaluation(results: Mapping[str, Any], examples: int, name: str | None) -> None:
    """Log one line with the metrics and the number of examples."""
    numbers = ", ".join(
        f"{key} = {float(value):.6g}"
        for key, value in sorted(results.items())
        if np.ndim(value) == 0 and key != "global_step"
    )
    _log.info(
        "evaluation%s at step %d on %d examples: %s",
        f" {name!r}" if name else "",
        results["global_step"],
        examples,
        numbers,
    )


def has_not_learned(results: Mapping[str, Any], metrics: Mapping[str, Any]) -> bool:
    """Return whether a model is no better than always answering the mean label.

    A classifier must also rank no better than chance: one that is too sure of itself
    may have a high loss although it has learned.
    """
    baseline = constant_loss(metrics.get("average_loss"))
    if baseline is None or float(results["average_loss"]) < baseline:
        return False
    return float(results.get("auc", 0.5)) < _BARELY_RANKING


_BARELY_RANKING = 0.6  # an AUC; 0.5 is chance


def log_not_learned(
    results: Mapping[str, Any], metrics: Mapping[str, Any], hint: str
) -> None:
    """Log that a model is no better than the mean of the labels, and what to try."""
    _log.warning(
        "after %d steps the model is no better than always answering the mean of the "
        "labels: average_loss is %.4g, that of the mean %.4g. %s",
        results["global_step"],
        results["average_loss"],
        constant_loss(metrics["average_loss"]),
        hint,
    )


def log_nothing_to_train(model_dir: str, step: int, max_steps: int) -> None:
    """Log why `train` does nothing, and what to change."""
    _log.warning(
        "train: nothing to do: the model in %s has reached step %d, and max_steps is "
        "%d. Raise max_steps to train on, or use a new model_dir to start again",
        format_path(model_dir),
        step,
        max_steps,
    )


def log_start(
    model_dir: str, step: int, max_steps: int | None, steps: int | None
) -> None:
    """Log where training starts or resumes, and where it will end."""
    last = step + steps if steps else max_steps
    _log.info(
        "training %s step %d in %s, until %s",
        "resumes at" if step else "starts at",
        step,
        format_path(model_dir),
        f"step {last}" if last else "the data ends",
    )


def log_interruption(context: RunContext, checkpoint: str | None) -> None:
    """Log at which step a signal ended training, and how to resume."""
    _log.warning(
        "%s: training stopped at step %d. %s",
        context.interrupted_by,
        context.step,
        f"To resume from {format_path(checkpoint)}, train again with the same model_dir"
        if checkpoint
        else "No checkpoint was saved",
    )


def log_training(context: RunContext) -> None:
    """Log the step at which training ended and its last loss."""
    if not context.losses:
        return
    _, loss = context.losses[-1]
    last = float(np.asarray(loss).reshape(-1)[-1])
    _log.info("training ended at step %d: loss = %.6g", context.step, last)


def only_keys(predictions: Any, keys: Sequence[str] | str | None) -> Any:
    """Return the predictions of these keys; raise SpecError if there are none."""
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise SpecError(
            "predict: predict_keys can be used only if the model predicts a dict."
        )
    wanted = [keys] if isinstance(keys, str) else list(keys)
    kept = {key: value for key, value in predictions.items() if key in wanted}
    if not kept:
        raise SpecError(
            f"predict: none of predict_keys {wanted} is predicted; the model predicts "
            f"{list(predictions)}."
        )
    return kept


def single_examples(values: Any) -> Iterator[Any]:
    """Yield the predictions of a batch one example at a time."""
    if not isinstance(values, Mapping):
        yield from values
        return
    sizes = {key: len(value) for key, value in values.items()}
    if len(set(sizes.values())) > 1:
        raise SpecError(
            f"predict: predictions have different numbers of rows, {sizes}. Use "
            "yield_single_examples=False to get whole batches."
        )
    for row in range(next(iter(sizes.values()), 0)):
        yield {key: value[row] for key, value in values.items()}


def variables_as_html(text: str, checkpoint: str | None) -> str:
    """Return a table of the arrays of a checkpoint for a notebook, below a text."""
    if checkpoint is None:
        return html_text(f"{text}\n  no checkpoint")
    saved = checkpoints.read_manifest(checkpoint)
    rows = [
        (name, list(entry.shape), entry.dtype, f"{entry.size:,}")
        for name, entry in saved.arrays.items()
    ]
    return html_table(
        ["array", "shape", "dtype", "bytes"],
        rows,
        title=f"{text}\n  step {saved.step}: {checkpoint}",
    )
