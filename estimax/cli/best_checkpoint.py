"""The checkpoint of the best evaluation, which the commands on a trained run use.

    best = best_checkpoint(run)
    best.step, best.checkpoint        # None if the run has no `export: [{type: best}]`

`export/best` has the model of one step. `evaluate`, `predict`, `report` and `export`
speak of the same step if its checkpoint is still there, so training keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimax import config
from estimax.config.schema.run import BestExport
from estimax.storage import atomic

_MARK = b"best\n"  # what the mark of a kept checkpoint contains, if it was made here


@dataclass(frozen=True)
class BestCheckpoint:
    """The best evaluation of a run, by the metric of its export `best`."""

    step: int
    metric: str
    metrics: Mapping[str, float]
    checkpoint: str | None  # None if it has been removed


def best_checkpoint(run: config.Run) -> BestCheckpoint | None:
    """Return the best evaluation of a run; None if none was exported as the best."""
    from estimax import checkpoints
    from estimax.export.exporters import read_best

    given = next((e for e in run.export if isinstance(e, BestExport)), None)
    if given is None:
        return None
    best = read_best(_folder(run, given))
    if best is None:
        return None
    metrics = dict(best["eval_result"])
    step = int(metrics.pop("global_step"))
    path = checkpoints.path_of(run.run.model_dir, step)
    found = path if path in checkpoints.all_checkpoints(run.run.model_dir) else None
    metric = given.metric.removeprefix("eval/")
    return BestCheckpoint(step, metric, metrics, None if found is None else str(found))


def checkpoint_of(run: config.Run, given: str | None) -> str | None:
    """Return the checkpoint to use: as given, or the best; None is the latest."""
    if given is not None:
        return given
    best = best_checkpoint(run)
    return None if best is None else best.checkpoint


def _folder(run: config.Run, given: BestExport) -> Path:
    return Path(run.run.model_dir) / "export" / given.name


class KeepBestCheckpoint:
    """An exporter that exports nothing, and keeps the checkpoint of the best export.

    It follows the exporter of the run, whose record says which evaluation is the best.

    Args:
      run: The run.
    """

    name = "keep/best/checkpoint"  # no name of an export has a slash

    def __init__(self, run: config.Run) -> None:
        self._run = run

    def export(
        self,
        estimator: object,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Mark the checkpoint of the best evaluation, and no other."""
        from estimax import checkpoints
        from estimax.checkpoints.listing import KEEP_MARK

        best = best_checkpoint(self._run)
        if best is None or best.checkpoint is None:
            return
        for path in checkpoints.all_checkpoints(self._run.run.model_dir):
            mark = path / KEEP_MARK
            if str(path) == best.checkpoint and not mark.exists():
                atomic.write_bytes(mark, _MARK)
            elif str(path) != best.checkpoint and _is_own(mark):
                mark.unlink(missing_ok=True)


def _is_own(mark: Path) -> bool:
    """Return whether a mark was made here, and not by a user or another rule."""
    return mark.is_file() and mark.read_bytes() == _MARK
