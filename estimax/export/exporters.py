"""Exporters: when `train_and_evaluate` exports a model, and which exports are kept.

    FinalExporter("final")                          once, when training ends
    LatestExporter("latest", exports_to_keep=5)     after every evaluation
    BestExporter("best", compare_fn=metric_compare("auc", "max"))

`BestExporter` keeps the best result in a file beside its exports, not in memory, so
that a restarted training does not export a worse model first.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from estimax.calibration import FittedCalibration
from estimax.calibration.methods import CalibrationMethod
from estimax.core.docstrings import document_like
from estimax.core.errors import BundleError, SpecError, did_you_mean
from estimax.export import manifest
from estimax.storage import atomic, json_text

EvalResult = Mapping[str, Any]
CompareFn = Callable[..., bool]  # called with best_eval_result, current_eval_result
ReceiverFn = Callable[[], Any]
Calibration = CalibrationMethod | FittedCalibration
TableDtype = Literal["float16", "int8"]

BEST_FILE = "best_export.json"
_IGNORED = ("as_text", "event_file_pattern")  # accepted, as in tf.estimator
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
        metrics: EvalResult | None,
    ) -> str | bytes | os.PathLike[str]:
        """Export a checkpoint as a new version and return its folder."""


@runtime_checkable
class Exporter(Protocol):
    """What `EvalSpec(exporters=...)` accepts: a name, and a call per evaluation.

    Implement it for a policy of your own. `FinalExporter`, `LatestExporter` and
    `BestExporter` cover the usual ones. No base class is needed.
    """

    @property
    def name(self) -> str:
        """The name of the folder under `<model_dir>/export`."""

    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export the estimator, or decide not to.

        Args:
          estimator: The estimator that was evaluated.
          export_path: The folder of this exporter, `<model_dir>/export/<name>`.
          checkpoint_path: The checkpoint that was evaluated.
          eval_result: The metrics of the evaluation.
          is_the_final_export: Whether training has ended.

        Returns:
          The folder of the new export, or None if there is none.
        """


class _BundleExporter:
    """What the exporters below share: checks, the export itself, and `repr`.

    Each of them lists its own fields, because their order differs as in tf.estimator.
    """

    name: str
    serving_input_receiver_fn: ReceiverFn | None
    assets_extra: Mapping[str, str] | None
    exports_to_keep: int | None = None
    explain: bool = False
    calibration: Calibration | None = None
    table_dtype: TableDtype | None = None
    max_table_error: float = 0.01

    def __post_init__(self) -> None:
        name: Any = self.name
        kind = type(self).__name__
        if not isinstance(name, str) or not name:
            raise SpecError(f"{kind}: name must be a non-empty string, found {name!r}.")
        if name in (".", "..") or "/" in name or os.sep in name:
            raise SpecError(f"{kind}: name {name!r} must be the name of one folder.")
        keep = self.exports_to_keep
        if keep is not None and keep <= 0:
            raise SpecError(
                f"{kind}: exports_to_keep must be positive, or None to keep all, found "
                f"{keep}."
            )

    def __repr__(self) -> str:
        given = {
            name: value
            for name, value in vars(self).items()
            if value not in (None, False) and name not in _IGNORED
            if self._is_used(name)
        }
        texts = (f"{n}={getattr(v, '__qualname__', repr(v))}" for n, v in given.items())
        return f"{type(self).__name__}({', '.join(texts)})"

    def _is_used(self, name: str) -> bool:
        return name != "max_table_error" or self.table_dtype is not None

    def _export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
    ) -> str:
        # Any, and given only if wanted: an estimator of the user need not know them.
        export: Any = estimator.export_saved_model
        more: dict[str, Any] = {"explain": True} if self.explain else {}
        if self.calibration is not None:
            more["calibration"] = self.calibration
        if self.table_dtype is not None:
            more["table_dtype"] = self.table_dtype
            more["max_table_error"] = self.max_table_error
        path = export(
            export_path,
            self.serving_input_receiver_fn,
            assets_extra=self.assets_extra,
            checkpoint_path=checkpoint_path,
            metrics=eval_result,
            **more,
        )
        return os.fsdecode(path)


@dataclass(frozen=True, repr=False)
class FinalExporter(_BundleExporter):
    """Export once, when training ends.

    Use it when only the trained model is served.

    Args:
      name: Name of the folder under `<model_dir>/export`, in which each export is a
        version.
      serving_input_receiver_fn: Returns the example features of a request, such as
        `build_raw_serving_input_receiver_fn` makes. None: the features of the training
        input.
      assets_extra: Files to copy into the bundle: path under `assets.extra/` to the
        file.
      as_text: Ignored: the manifest of a bundle is always text.
      explain: Whether bundles get the signature "explain"; see
        `Estimator.export_saved_model`.
      calibration: The last step of the bundle, fitted to each checkpoint that is
        exported, such as `ex.calibration.Isotonic(eval_input_fn)`. None: none.
      table_dtype: "float16" or "int8" to store embedding tables in less space. None:
        float32. See `Estimator.export_saved_model`.
      max_table_error: By how much an output may change by `table_dtype`, as a share of
        its largest value on the example rows.

    Raises:
      SpecError: `name` is not the name of a folder.

    Example:
      >>> FinalExporter("final")
      FinalExporter(name='final')
    """

    name: str
    serving_input_receiver_fn: ReceiverFn | None = None
    assets_extra: Mapping[str, str] | None = None
    as_text: bool = False
    explain: bool = False
    calibration: Calibration | None = None
    table_dtype: TableDtype | None = None
    max_table_error: float = 0.01

    @document_like(Exporter.export)
    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export if training has ended."""
        if not is_the_final_export:
            return None
        return self._export(estimator, export_path, checkpoint_path, eval_result)


@document_like(FinalExporter)
@dataclass(frozen=True, repr=False)
class LatestExporter(_BundleExporter):
    """Export after every evaluation and keep the newest exports.

    Use it when a server should follow the training.

    Args:
      exports_to_keep: Number of newest exports to keep, positive. None: all.

    Raises:
      SpecError: `name` is not the name of a folder, or `exports_to_keep` is not
        positive.

    Example:
      >>> LatestExporter("latest")
      LatestExporter(name='latest', exports_to_keep=5)
    """

    name: str
    serving_input_receiver_fn: ReceiverFn | None = None
    assets_extra: Mapping[str, str] | None = None
    as_text: bool = False
    exports_to_keep: int | None = 5  # None: all
    explain: bool = False
    calibration: Calibration | None = None
    table_dtype: TableDtype | None = None
    max_table_error: float = 0.01

    @document_like(Exporter.export)
    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export, then remove the oldest exports."""
        path = self._export(estimator, export_path, checkpoint_path, eval_result)
        manifest.prune(Path(export_path), self.exports_to_keep)
        return path


def loss_smaller(best_eval_result: EvalResult, current_eval_result: EvalResult) -> bool:
    """Return whether the current loss is below the best. The default of `BestExporter`.

    Args:
      best_eval_result: The metrics of the best evaluation so far.
      current_eval_result: The metrics of this evaluation.

    Returns:
      True if the current loss is smaller. Any number is better than NaN.

    Raises:
      SpecError: A result has no "loss".

    Example:
      >>> loss_smaller({"loss": 0.5}, {"loss": 0.4})
      True
    """
    return _is_better("loss", "min", best_eval_result, current_eval_result)


def metric_compare(metric: str, mode: str = "max") -> CompareFn:
    """Return a `compare_fn` of `BestExporter` for one metric.

    Args:
      metric: The name of the metric in the evaluation's result, e.g. `"auc"`.
      mode: "max" if larger is better, "min" if smaller is.

    Returns:
      A function of `best_eval_result` and `current_eval_result`. It raises `SpecError`
      if
      a result lacks the metric.

    Raises:
      SpecError: `mode` is neither "max" nor "min".

    Example:
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

    compare.__qualname__ = f"metric_compare({metric!r}, {mode!r})"  # for repr
    return compare


@document_like(FinalExporter)
@dataclass(frozen=True, repr=False)
class BestExporter(_BundleExporter):
    """Export when an evaluation is better than the best so far, also across restarts.

    Use it when quality may fall again during training. The best export is never
    removed.

    Args:
      event_file_pattern: Ignored. tf.estimator finds the best result so far in these
        event files; here it is kept in a file beside the exports.
      compare_fn: A function of `best_eval_result` and `current_eval_result` that
        returns whether the current one is better. Default: the loss is smaller.
      exports_to_keep: Number of newest exports to keep, positive. None: all.

    Raises:
      SpecError: `name` is not the name of a folder, `exports_to_keep` is not positive,
        or `compare_fn` has other arguments.

    Example:
      >>> BestExporter("b", compare_fn=metric_compare("auc"))
      BestExporter(name='b', compare_fn=metric_compare('auc', 'max'), exports_to_keep=5)
    """

    name: str = "best_exporter"
    serving_input_receiver_fn: ReceiverFn | None = None
    event_file_pattern: str | None = "eval/*.tfevents.*"
    compare_fn: CompareFn = loss_smaller
    assets_extra: Mapping[str, str] | None = None
    as_text: bool = False
    exports_to_keep: int | None = 5  # None: all; the best one always stays
    explain: bool = False
    calibration: Calibration | None = None
    table_dtype: TableDtype | None = None
    max_table_error: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_compare(self.compare_fn)

    @document_like(Exporter.export)
    def export(
        self,
        estimator: Exportable,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: EvalResult | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Export if the result is the best so far, then remove the oldest exports.

        Raises:
          SpecError: `eval_result` is None or lacks the metric.
        """
        if eval_result is None:
            raise SpecError(
                "BestExporter: expected the metrics of an evaluation, found None."
            )
        best = read_best(export_path)
        if best is not None and not self.compare_fn(
            best_eval_result=best["eval_result"], current_eval_result=eval_result
        ):
            return None
        path = self._export(estimator, export_path, checkpoint_path, eval_result)
        # Written after the export: if the process is killed in between, the next
        # evaluation exports again.
        atomic.write_json(
            Path(export_path) / BEST_FILE,
            {
                "export": os.path.basename(path),
                "checkpoint": checkpoint_path,
                "eval_result": manifest.plain_metrics(eval_result),
            },
        )
        keep = (os.path.basename(path),)
        manifest.prune(Path(export_path), self.exports_to_keep, protect=keep)
        return path


def read_best(export_path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return what `BestExporter` wrote about its best export; None before the first."""
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


def _is_better(
    metric: str, mode: str, best: EvalResult | None, current: EvalResult | None
) -> bool:
    values = []
    for which, result in (("best", best), ("current", current)):
        if not result or metric not in result:
            found = did_you_mean(metric, map(str, result or ()), listed_as="found")
            raise SpecError(f"the {which} eval result has no {metric!r}{found}")
        values.append(float(result[metric]))
    old, new = values
    # Any number beats NaN; otherwise a first NaN would never be replaced.
    if math.isnan(old):
        return not math.isnan(new)
    return new < old if mode == "min" else new > old


def _check_compare(compare_fn: Any) -> None:
    expected = ", ".join(_ARGUMENTS)
    if not callable(compare_fn):
        raise SpecError(
            f"BestExporter: compare_fn must be a function of ({expected}), found "
            f"{type(compare_fn).__name__}."
        )
    found = tuple(inspect.signature(compare_fn).parameters)
    if set(found) != set(_ARGUMENTS):
        raise SpecError(
            f"BestExporter: compare_fn must have the arguments ({expected}), found "
            f"({', '.join(found)})."
        )
