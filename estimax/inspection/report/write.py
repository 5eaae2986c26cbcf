"""Write a report of a trained model: one HTML file that needs no network.

    write_report(estimator, eval_input_fn)      # <model_dir>/report.html

The number of rows and the time for the importance of features are limited, so a report
takes seconds, whatever the size of the data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax import checkpoints, inspection
from estimax import input as inputs
from estimax.core.errors import EstimaxError, FeatureError, did_you_mean
from estimax.estimator import Estimator
from estimax.hooks import summary
from estimax.inspection.importance import RowSample, dataset, read_rows
from estimax.inspection.report import columns, figures
from estimax.inspection.report.contributions import add_contributions
from estimax.inspection.report.page import Page
from estimax.inspection.report.sections import ReportRows, add_learning_curves, add_task
from estimax.inspection.report.tasks import tasks_of
from estimax.storage import atomic, json_text

InputFn = Callable[..., Any]
Curves = dict[str, list[tuple[int, float]]]  # scalars by tag: steps and values

_MOST_FEATURES = 30  # bars in the chart of importances
_IMPORTANCE_ROWS = 4_000
_SCANNED_ROWS = 25  # rows that are read for each row that is looked at
_IMPORTANCE_METRICS = ("auc", "accuracy", "average_loss", "loss")


@dataclass(frozen=True)
class RunFacts:
    """What a report tells about a run besides the model itself.

    `estimax report` fills it from the run file.

    Attributes:
      name: The name of the run, the title of the report. "": the folder's name.
      settings: Every setting with its value and where it was set.
      environment: Versions of packages, the machine and so on, by name.
      commands: Shell commands that make the model again.
      verdict: What is to be said about the run, first of all: titles and sentences.
      compared: The metrics of the model and of others on the same rows: the headings
        and the rows of a table.

    Example:
      >>> RunFacts(name="clicks", commands=["python train.py"]).commands
      ['python train.py']
    """

    name: str = ""
    settings: Sequence[tuple[str, str, str]] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[str] = ()
    verdict: Sequence[tuple[str, str]] = ()
    compared: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ())


def write_report(
    estimator: Estimator,
    input_fn: InputFn,
    path: str | os.PathLike[str] | None = None,
    *,
    train_input_fn: InputFn | None = None,
    group: str | None = None,
    weight: str | None = None,
    max_rows: int = 20_000,
    importance_secs: float = 20.0,
    evaluation: str | None = None,
    facts: RunFacts | None = None,
    checkpoint_path: str | None = None,
) -> Path:
    """Write a report of a trained model as one HTML file.

    Use it to show a model to a colleague. The report has the metrics, learning curves,
    a summary of the data, and for each task of the model: curves with thresholds,
    calibration, the confusion matrix, errors by slices of the data, and the rows with
    the largest errors; and how much each feature matters. It needs matplotlib:
    `pip install 'estimax[report]'`.

    Args:
      estimator: A trained Estimator.
      input_fn: Function that returns the evaluation data; features must be a dict.
      path: The file to write; by default `report.html` in the model directory.
      train_input_fn: Function that returns the training data, of which a summary is
        shown beside the summary of the evaluation data. Its first rows are read.
      group: Name of a feature that groups rows for ranking, such as a query or a user.
        The report then says how well rows are ordered within groups.
      weight: Name of the feature with the example weights; by default all weigh 1.
      max_rows: Most rows to look at. They are spread evenly over the data, of which the
        first 25 times as many rows are read. With `group`, the first rows are taken,
        so that groups are whole.
      importance_secs: Seconds after which no further feature is measured for its
        importance; 0 leaves importances and contributions out.
      evaluation: Name of the evaluation of this data, as given to `evaluate`. Its
        metrics are shown if it evaluated the checkpoint; otherwise the metrics of the
        rows of the report. None shows the metrics of any evaluation, an unnamed one
        first.
      facts: What to tell about the run itself.
      checkpoint_path: The checkpoint to report on; None is the latest.

    Returns:
      The path of the report.

    Raises:
      ConfigError: matplotlib is not installed.
      MissingFileError: The model has no checkpoint.
      FeatureError: Features are no dict, or `group` or `weight` is no feature.
      SpecError: The `input_fn` returned no data.

    Example:
      >>> import numpy as np, tempfile
      >>> import estimax as ex
      >>> x = np.linspace(-1, 1, 64, dtype=np.float32)
      >>> def input_fn():
      ...     return ex.input.Dataset.from_tensor_slices(({"x": x}, 2 * x)).batch(16)
      >>> columns = [ex.feature_columns.numeric_column("x")]
      >>> model = ex.LinearRegressor(columns, model_dir=tempfile.mkdtemp())
      >>> model = model.train(lambda: input_fn().repeat(), steps=20)
      >>> path = ex.report.write_report(model, input_fn, importance_secs=0)
      >>> "Worst errors" in path.read_text()
      True
    """
    figures.check_installed()
    facts = facts or RunFacts()
    scanned = max_rows if group else _SCANNED_ROWS * max_rows
    numbers, features, labels, batch_size = _sample_rows(
        estimator, input_fn, max_rows, scanned
    )
    rows = _rows(numbers, features, group, weight)
    sample = dataset(features, labels)

    def sample_fn() -> inputs.Dataset:
        return sample.batch(batch_size)

    checkpoint = checkpoint_path or estimator.latest_checkpoint()
    tasks = tasks_of(_predictions(estimator, sample_fn, checkpoint), labels)
    step = 0 if checkpoint is None else checkpoints.step_of(checkpoint)
    curves = _curves(estimator.model_dir)
    count = len(rows.weights)
    name = facts.name or Path(estimator.model_dir).name
    page = Page(name, f"step {step:,} · {count:,} rows of the evaluation data")
    wanted = curves if evaluation is None else _only(curves, f"eval_{evaluation}")
    metrics, source = _metrics(estimator, sample_fn, wanted, step, checkpoint)
    _add_verdict(page, facts)
    _add_metrics(page, metrics, source, estimator)
    _add_data(page, estimator, features, train_input_fn, max_rows)
    add_learning_curves(page, curves)
    for task in tasks:
        add_task(page, task, rows)
    _add_calibration(page, estimator)
    if importance_secs > 0:
        known = _IMPORTANCE_METRICS if len(tasks) == 1 else ("loss",)
        metric = next((name for name in known if name in metrics), "loss")
        importances = _add_importance(
            *(page, estimator, sample_fn, metric, importance_secs),
            list(features),
            checkpoint,
        )
        names = [task.name for task in tasks]
        add_contributions(page, estimator, sample_fn, names, importances, checkpoint)
    _add_gains(page, estimator)
    _add_facts(page, facts, checkpoint)
    target = (
        Path(path) if path is not None else Path(estimator.model_dir, "report.html")
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(target, page.html().encode())
    return target


def _sample_rows(
    estimator: Estimator, input_fn: InputFn, max_rows: int, scanned: int
) -> RowSample:
    """Return rows that are spread over the first `scanned` rows of an input."""
    spread = scanned if scanned > max_rows else None
    return read_rows(
        estimator, input_fn, max_rows, where="write_report", max_scan=spread
    )


def _rows(
    numbers: NDArray[np.int64],
    features: Mapping[str, Any],
    group: str | None,
    weight: str | None,
) -> ReportRows:
    count = len(next(iter(features.values())))
    weights: NDArray[Any] = np.ones(count)
    for role, name in (("group", group), ("weight", weight)):
        if name is not None and name not in features:
            near = did_you_mean(name, features)
            raise FeatureError(f"write_report: {role}: no feature {name!r}{near}")
    if weight is not None:
        weights = np.asarray(features[weight], np.float64).reshape(count, -1)[:, 0]
    groups = None if group is None else columns.flat(features[group])
    shown = {n: v for n, v in features.items() if n != weight}
    return ReportRows(numbers, shown, weights, groups, group or "")


def _predictions(
    estimator: Estimator, sample_fn: InputFn, checkpoint: str | None
) -> dict[Any, Any]:
    found = estimator.predict(
        sample_fn, checkpoint_path=checkpoint, yield_single_examples=False
    )
    parts = list(found)
    if not isinstance(parts[0], Mapping):
        return {}
    joined = {}
    for key in parts[0]:
        values = [np.asarray(part[key]) for part in parts]
        if all(value.ndim for value in values):
            joined[key] = np.concatenate(values)
    return joined


def _curves(model_dir: str) -> dict[str, Curves]:
    """Return the scalars of the training, and of each evaluation, by its folder."""
    found = {"train": summary.read_scalars(model_dir)}
    for folder in sorted(Path(model_dir).glob("eval*/")):
        found[folder.name] = summary.read_scalars(folder)
    return {name: scalars for name, scalars in found.items() if scalars}


def _only(curves: Mapping[str, Curves], name: str) -> dict[str, Curves]:
    return {name: curves[name]} if name in curves else {}


def _metrics(
    estimator: Estimator,
    sample_fn: InputFn,
    curves: Mapping[str, Curves],
    step: int,
    checkpoint: str | None,
) -> tuple[dict[str, float], str]:
    """Return the metrics of the step and where they come from."""
    for name, scalars in curves.items():
        at_step = {tag: dict(pairs).get(step) for tag, pairs in scalars.items()}
        if name != "train" and at_step.get("loss") is not None:
            kept = {tag: value for tag, value in at_step.items() if value is not None}
            return kept, f"Evaluated on all data of {name}, at step {step:,}."
    results = estimator.evaluate(sample_fn, report=False, checkpoint_path=checkpoint)
    numbers = {
        name: float(value)
        for name, value in results.items()
        if name != "global_step" and np.ndim(value) == 0
    }
    return numbers, f"Evaluated on the rows of this report, at step {step:,}."


def _add_verdict(page: Page, facts: RunFacts) -> None:
    headings, rows = facts.compared
    if not facts.verdict and not rows:
        return
    section = page.section("Verdict")
    for title, text in facts.verdict:
        section.text(f"{title[:1].upper()}{title[1:]}: {text}")
    if rows:
        section.table(headings, rows)


def _add_metrics(
    page: Page, metrics: Mapping[str, float], source: str, estimator: Estimator
) -> None:
    section = page.section("Metrics")
    section.text(source, is_dim=True)
    first = [name for name in _IMPORTANCE_METRICS if name in metrics]
    section.tiles([(name, f"{metrics[name]:.4f}") for name in first])
    rows = [[name, f"{value:.6g}"] for name, value in sorted(metrics.items())]
    section.table(["metric", "value"], rows, folded=f"all {len(rows)} metrics")
    section.text(f"Model directory: {estimator.model_dir}", is_dim=True)


def _add_data(
    page: Page,
    estimator: Estimator,
    features: Mapping[str, Any],
    train_input_fn: InputFn | None,
    max_rows: int,
) -> None:
    section = page.section("Data")
    found = columns.summaries(features)
    count = len(next(iter(features.values())))
    headings = ["column", "kind", "missing", "distinct", "values"]
    cells = [
        [
            s.name,
            s.kind,
            f"{s.missing:.1%}",
            "" if s.distinct is None else f"{s.distinct:,}",
            s.values,
        ]
        for s in found
    ]
    if train_input_fn is None:
        section.text(f"{count:,} rows, spread over the evaluation data.")
        section.table(headings, cells)
        return
    scanned = _SCANNED_ROWS * max_rows
    trained = _sample_rows(estimator, train_input_fn, max_rows, scanned)
    section.text(
        f"{count:,} rows of the evaluation data and {len(trained.numbers):,} rows of "
        "the training data, spread over the files. Columns that differ may explain why "
        "a model is worse on the evaluation data."
    )
    by_name = {s.name: s for s in columns.summaries(trained.features)}
    section.table(
        ["column", "kind", "missing", "distinct", "evaluation data", "training data"],
        [[*row, by_name[row[0]].values if row[0] in by_name else ""] for row in cells],
    )


def _add_importance(
    page: Page,
    estimator: Estimator,
    sample_fn: InputFn,
    metric: str,
    max_secs: float,
    names: Sequence[str],
    checkpoint: str | None,
) -> inspection.Importances | None:
    """Add the importance of each feature, and return it if it could be measured."""
    try:
        found = inspection.permutation_importance(
            estimator,
            sample_fn,
            metric=metric,
            repeats=2,
            max_examples=_IMPORTANCE_ROWS,
            max_secs=max_secs,
            checkpoint_path=checkpoint,
        )
    except EstimaxError as error:  # such as a model that needs whole batches
        page.section("Feature importance").text(f"It could not be measured: {error}")
        return None
    section = page.section("Feature importance")
    section.text(
        f"How much worse {metric} is when the values of a feature are shuffled over "
        f"{found.examples:,} rows; the mean of two shuffles. Features that carry the "
        "same information share their importance."
    )
    shown = found.features[:_MOST_FEATURES]
    if shown:
        section.figures(
            (
                figures.bar_chart(
                    [f.feature for f in shown],
                    np.array([f.mean for f in shown]),
                    np.array([f.std for f in shown]),
                    x=f"{metric} lost",
                ),
                "",
            ),
            is_wide=True,
        )
    measured = {name for f in found.features for name in f.feature.split(" + ")}
    missing = sorted(set(names) - measured)
    if missing:
        section.text(
            f"Not measured within {max_secs:g} seconds: {', '.join(missing)}.",
            is_dim=True,
        )
    return found


def _add_calibration(page: Page, estimator: Estimator) -> None:
    """Add how the newest calibrated export of the model was calibrated, if any."""
    found = sorted(
        (int(path.parent.name), path)
        for path in Path(estimator.model_dir, "export").glob("*/*/manifest.json")
        if path.parent.name.isdigit()
    )
    for _, path in reversed(found):
        said = json_text.parse(path.read_bytes()).get("calibration")
        if said is None:
            continue
        error, loss = said["expected_calibration_error"], said["log_loss"]
        section = page.section("Calibration of the export")
        section.text(
            f"{path.parent.parent.name}/{path.parent.name} was calibrated by "
            f"{said['method']} on {said['rows']:,} rows; it is measured on rows that "
            f"were left out in turn. Expected calibration error: "
            f"{error['before']:.4f} before, {error['after']:.4f} after. Log loss: "
            f"{loss['before']:.4f} before, {loss['after']:.4f} after."
        )
        section.table(
            ["rows", "mean before", "mean after", "observed"],
            [
                [f"{row['rows']:,}"]
                + [f"{row[name]:.4f}" for name in ("before", "after", "actual")]
                for row in said["bins"]
            ],
        )
        return


def _add_gains(page: Page, estimator: Estimator) -> None:
    """Add the importances that trees have of their splits, if the model has trees."""
    measure = getattr(estimator, "experimental_feature_importances", None)
    if measure is None:
        return
    gains, splits = measure(normalize=True), measure(kind="split")
    section = page.section("Splits of the trees")
    section.text(
        "The share of each feature in what all splits lowered the training loss by, "
        "and the number of its splits. Features with many values get more of both, "
        "also if they tell nothing about new rows."
    )
    rows = [
        [name, f"{gain:.2%}", f"{splits[name]:,.0f}"] for name, gain in gains.items()
    ]
    section.table(["feature", "gain", "splits"], rows[:_MOST_FEATURES])


def _add_facts(page: Page, facts: RunFacts, checkpoint: str | None) -> None:
    if facts.settings:
        section = page.section("Config")
        given = [s for s in facts.settings if s[2] != "default"]
        rest = [s for s in facts.settings if s[2] == "default"]
        headings = ["setting", "value", "set in"]
        section.table(headings, given)
        if rest:
            section.table(headings, rest, folded=f"{len(rest)} settings at defaults")
    if facts.environment:
        rows = [[name, value] for name, value in facts.environment.items()]
        page.section("Environment").table(["", ""], rows)
    if facts.commands:
        section = page.section("How to reproduce")
        section.code("\n".join(facts.commands))
        section.text(f"Checkpoint: {checkpoint}", is_dim=True)
