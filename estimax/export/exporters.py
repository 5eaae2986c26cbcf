"""Exporters: when `train_and_evaluate` should export, and which exports stay.

    FinalExporter("final")                          once, when training ends
    LatestExporter("latest", exports_to_keep=5)     after every evaluation
    BestExporter("best", compare_fn=metric_compare("auc", "max"))

The best so far is remembered in a file beside its exports and not in the process, so a
restarted training does not begin by exporting something worse.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from estimax.core.errors import BundleError, SpecError, did_you_mean
from estimax.export import manifest
from estimax.wire import atomic, json_text

EvalResult = Mapping[str, Any]
CompareFn = Callable[..., bool]  # called with best_eval_result, current_eval_result
ReceiverFn = Callable[[], Any]

BEST_FILE = "best_export.json"
_ARGUMENTS = ("best_eval_result", "current_eval_result")


class Exportable(Protocol):
    """The part of an Estimator that exporters use."""

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: ReceiverFn | None,
        *,
        assets_extra: Mapping[str, str] | None,
        checkpoint_path: str | None,
    ) -> str | bytes | os.PathLike[str]:
        """Export a checkpoint as a new version; returns its folder."""


@runtime_checkable
class Exporter(Protocol):
    """Decides after an evaluation whether to export."""

    @property
    def name(self) -> str:
        """The folder's name under `<model_dir>/export`."""

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export if it is time to; returns the new folder, or None."""


@dataclass(frozen=True)
class FinalExporter:
    """Exports once, at the end of training.

    >>> FinalExporter("final").name
    'final'
    """

    name: str
    serving_input_receiver_fn: ReceiverFn | None = None
    assets_extra: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        _check_name(self)

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export when it is the last time."""
        if not is_the_final_export:
            return None
        return _export(self, estimator, export_path, checkpoint_path)


@dataclass(frozen=True)
class LatestExporter:
    """Exports after every evaluation and keeps the newest ones.

    >>> LatestExporter("latest").exports_to_keep
    5
    """

    name: str
    serving_input_receiver_fn: ReceiverFn | None = None
    assets_extra: Mapping[str, str] | None = None
    exports_to_keep: int | None = 5  # None: all

    def __post_init__(self) -> None:
        _check_name(self)
        _check_keep(self)

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export, then remove the oldest."""
        path = _export(self, estimator, export_path, checkpoint_path)
        manifest.prune(Path(export_path), self.exports_to_keep)
        return path


def loss_smaller(best_eval_result: EvalResult, current_eval_result: EvalResult) -> bool:
    """Whether the current loss is below the best.

    >>> loss_smaller({"loss": 0.5}, {"loss": 0.4})
    True
    """
    return _is_better("loss", "min", best_eval_result, current_eval_result)


def metric_compare(metric: str, mode: str = "max") -> CompareFn:
    """A compare_fn for a metric that should become as large ("max") or small ("min").

    >>> compare = metric_compare("auc", "max")
    >>> compare(best_eval_result={"auc": 0.7}, current_eval_result={"auc": 0.8})
    True
    """
    if mode not in ("min", "max"):
        raise SpecError(
            f"metric_compare: unknown mode {mode!r}{did_you_mean(mode, ('min', 'max'))}"
        )

    def compare(best_eval_result: EvalResult, current_eval_result: EvalResult) -> bool:
        return _is_better(metric, mode, best_eval_result, current_eval_result)

    return compare


@dataclass(frozen=True)
class BestExporter:
    """Exports when an evaluation beats the best so far, also across restarts.

    >>> BestExporter().name
    'best_exporter'
    """

    name: str = "best_exporter"
    serving_input_receiver_fn: ReceiverFn | None = None
    compare_fn: CompareFn = loss_smaller
    assets_extra: Mapping[str, str] | None = None
    exports_to_keep: int | None = 5  # None: all; the best one always stays

    def __post_init__(self) -> None:
        _check_name(self)
        _check_keep(self)
        _check_compare(self.compare_fn)

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export if the result is the best so far, then remove the oldest."""
        if eval_result is None:
            raise SpecError(
                "BestExporter: expected an evaluation's result, found None."
            )
        best = read_best(export_path)
        if best is not None and not self.compare_fn(
            best_eval_result=best["eval_result"], current_eval_result=eval_result
        ):
            return None
        path = _export(self, estimator, export_path, checkpoint_path)
        # After the export: killed in between, the next evaluation just exports again.
        atomic.write_json(
            Path(export_path) / BEST_FILE,
            {
                "export": os.path.basename(path),
                "checkpoint": checkpoint_path,
                "eval_result": {str(k): _plain(v) for k, v in eval_result.items()},
            },
        )
        keep = (os.path.basename(path),)
        manifest.prune(Path(export_path), self.exports_to_keep, protect=keep)
        return path


def read_best(export_path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What a `BestExporter` remembers of its best export; None before the first."""
    path = Path(export_path) / BEST_FILE
    try:
        record = json_text.parse(path.read_bytes())
        return {name: record[name] for name in ("export", "checkpoint", "eval_result")}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError(
            f"{path}: expected the best export so far, found something else "
            f"({type(error).__name__}: {error}). Remove the file to start afresh."
        ) from error


def _export(
    exporter: FinalExporter | LatestExporter | BestExporter,
    estimator: Exportable,
    export_path: str,
    checkpoint_path: str | None,
) -> str:
    path = estimator.export_saved_model(
        export_path,
        exporter.serving_input_receiver_fn,
        assets_extra=exporter.assets_extra,
        checkpoint_path=checkpoint_path,
    )
    return os.fsdecode(path)


def _is_better(
    metric: str, mode: str, best: EvalResult | None, current: EvalResult | None
) -> bool:
    values = []
    for which, result in (("best", best), ("current", current)):
        if not result or metric not in result:
            found = did_you_mean(metric, map(str, result or ()))
            raise SpecError(f"the {which} eval result has no {metric!r}{found}")
        values.append(float(result[metric]))
    old, new = values
    # Any number beats NaN; otherwise a first NaN would never be replaced.
    if math.isnan(old):
        return not math.isnan(new)
    return new < old if mode == "min" else new > old


def _check_name(exporter: FinalExporter | LatestExporter | BestExporter) -> None:
    name: Any = exporter.name
    kind = type(exporter).__name__
    if not isinstance(name, str) or not name:
        raise SpecError(f"{kind}: name must be a non-empty string, found {name!r}.")
    if name in (".", "..") or "/" in name or os.sep in name:
        raise SpecError(f"{kind}: name {name!r} must be the name of one folder.")


def _check_keep(exporter: LatestExporter | BestExporter) -> None:
    keep = exporter.exports_to_keep
    if keep is not None and keep <= 0:
        raise SpecError(
            f"{type(exporter).__name__}: exports_to_keep must be positive, or None to "
            f"keep all, found {keep}."
        )


def _check_compare(compare_fn: Any) -> None:
    expected = ", ".join(_ARGUMENTS)
    if not callable(compare_fn):
        raise SpecError(
            f"BestExporter: compare_fn must be a function of ({expected}), found "
            f"{compare_fn!r}."
        )
    found = tuple(inspect.signature(compare_fn).parameters)
    if set(found) != set(_ARGUMENTS):
        raise SpecError(
            f"BestExporter: compare_fn must have the arguments ({expected}), found "
            f"({', '.join(found)})."
        )


def _plain(value: Any) -> Any:  # JSON
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    array = np.asarray(value)
    return array.tolist() if array.dtype.kind in "biuf" else str(value)
