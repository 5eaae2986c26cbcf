"""Reports of an Estimator: metrics to TensorBoard and the log, and predictions."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from estimax import summary
from estimax.core.errors import SpecError
from estimax.hooks import RunContext

_log = logging.getLogger("estimax")


def write_evaluation(
    folder: str, results: Mapping[str, Any], step: int, checkpoint: str
) -> None:
    """Write the metrics of one evaluation for TensorBoard.

    If the folder is read-only, log a warning; the caller still returns the metrics.
    """
    try:
        with summary.SummaryWriter(folder) as writer:
            for name, value in results.items():
                if name != "global_step" and np.ndim(value) == 0:
                    writer.scalar(name, float(value), step)
                elif name != "global_step":
                    _log.info("metric %r is an array, not written to summaries", name)
            if checkpoint:  # empty for an evaluation of the state in memory
                writer.text("checkpoint_path", checkpoint, step)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        _log.warning(
            "%s: the metrics were not written, because the folder is read-only (%s)",
            folder,
            error.strerror,
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
