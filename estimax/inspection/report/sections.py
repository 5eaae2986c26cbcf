"""The sections of a report about each task: curves, errors, slices and rankings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.calibration.measures import reliability
from estimax.inspection.report import columns, figures, measures
from estimax.inspection.report.page import Page, Section
from estimax.inspection.report.tasks import HeadTask

Array = NDArray[Any]

_THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_WORST_ROWS = 12
_WORST_GROUPS = 10
_SLICES = 15
_MOST_CLASSES = 40  # of a confusion matrix that is drawn
_LEAST_SHARE = 0.01  # of the rows, for a slice to be listed


@dataclass(frozen=True)
class ReportRows:
    """The rows that a report looks at.

    Attributes:
      numbers: Their numbers in the evaluation data, [N].
      features: Their features by name.
      weights: Their weights, [N].
      groups: The group of each row, for rankings; None if rows have no groups.
      group_name: The feature that `groups` comes from.
    """

    numbers: Array
    features: Mapping[str, Any]
    weights: Array
    groups: Array | None = None
    group_name: str = ""


def add_task(page: Page, task: HeadTask, rows: ReportRows) -> None:
    """Append the sections of a task to a page."""

    def section(title: str) -> Section:
        return page.section(f"{task.name}: {title.lower()}" if task.name else title)

    _ADD[task.kind](section(_TITLES[task.kind]), task, rows)
    if rows.groups is not None and task.kind != "multi_class":
        _ranking(section("Ranking"), task, rows)
    _slices(section("Slices"), task, rows)
    _errors(section("Worst errors"), task, rows)


_TITLES = {
    "binary": "Two classes",
    "multi_class": "Classes",
    "regression": "Regression",
}


def _binary(section: Section, task: HeadTask, rows: ReportRows) -> None:
    curve = measures.threshold_curve(task.labels, task.scores, rows.weights)
    if curve is None:
        section.text("All labels of these rows are the same, so there are no curves.")
        return
    found = reliability(task.labels, task.scores, rows.weights)
    total = curve.tp[-1] + curve.fp[-1]
    section.tiles(
        [
            ("area under ROC", f"{curve.roc_area:.4f}"),
            ("average precision", f"{curve.average_precision:.4f}"),
            ("log loss", f"{measures.mean(task.losses, rows.weights):.4f}"),
            ("calibration error", f"{found.error:.4f}"),
            (f"label {task.classes[1]}", f"{curve.tp[-1] / total:.1%}"),
        ]
    )
    best = int(np.argmax(curve.f1))
    section.figures(
        (figures.roc_chart(curve, _THRESHOLDS), "ROC curve; dots are thresholds."),
        (
            figures.pr_chart(curve, _THRESHOLDS),
            "Precision and recall. Dashed: the share of positive labels.",
        ),
        (
            figures.calibration_chart(found),
            "Calibration, in 15 bins of equally many rows. On the dashed line, "
            "predictions are true shares.",
        ),
        (
            figures.score_chart(task.labels, task.scores, task.classes),
            "Predictions by label. The less the two overlap, the better.",
        ),
    )
    section.heading("Thresholds")
    section.text(
        "A row is predicted positive if its prediction is at or above the threshold. "
        f"The best F1 is at {curve.thresholds[best]:.4g}."
    )
    chosen = sorted({*_THRESHOLDS, float(curve.thresholds[best])})
    section.table(
        ["threshold", "precision", "recall", "false positive rate", "F1", "accuracy",
         "predicted positive"],
        [_threshold_row(curve, threshold) for threshold in chosen],
    )  # fmt: skip
    section.heading("Confusion matrix at 0.5")
    _confusion(section, task, rows)


def _threshold_row(curve: measures.ThresholdCurve, threshold: float) -> list[str]:
    at = curve.at(threshold)
    positives, negatives = curve.tp[-1], curve.fp[-1]
    right = curve.tp[at] + negatives - curve.fp[at]
    total = positives + negatives
    return [
        f"{threshold:.4g}",
        f"{curve.precision[at]:.4f}" if at else "",
        f"{curve.recall[at]:.4f}",
        f"{curve.false_positive_rate[at]:.4f}",
        f"{curve.f1[at]:.4f}",
        f"{right / total:.4f}",
        f"{(curve.tp[at] + curve.fp[at]) / total:.1%}",
    ]


def _multi_class(section: Section, task: HeadTask, rows: ReportRows) -> None:
    assert task.probabilities is not None
    right = (task.guesses == task.labels).astype(float)
    labels, counts = np.unique(task.labels, return_counts=True)
    sure = reliability(right, task.scores, rows.weights)
    section.tiles(
        [
            ("accuracy", f"{measures.mean(right, rows.weights):.4f}"),
            ("log loss", f"{measures.mean(task.losses, rows.weights):.4f}"),
            ("largest class", f"{counts.max() / counts.sum():.1%}"),
            ("classes in these rows", f"{len(labels)} of {len(task.classes)}"),
        ]
    )
    section.figures(
        (
            figures.calibration_chart(
                sure, x="probability of the predicted class", y="share that is right"
            ),
            "How often the predicted class is right, by the probability that the model "
            "gives it.",
        ),
    )
    section.heading("By class")
    section.table(
        ["class", "rows", "precision", "recall", "F1", "area under ROC"],
        [_class_row(task, rows, int(label)) for label in labels],
    )
    section.heading("Confusion matrix")
    _confusion(section, task, rows)


def _class_row(task: HeadTask, rows: ReportRows, label: int) -> list[str]:
    assert task.probabilities is not None
    is_label, is_guess = task.labels == label, task.guesses == label
    hit = rows.weights[is_label & is_guess].sum()
    guessed, there = rows.weights[is_guess].sum(), rows.weights[is_label].sum()
    curve = measures.threshold_curve(
        is_label.astype(float), task.probabilities[:, label], rows.weights
    )
    return [
        task.classes[label],
        f"{int(is_label.sum()):,}",
        f"{hit / guessed:.4f}" if guessed > 0 else "",
        f"{hit / there:.4f}" if there > 0 else "",
        f"{2 * hit / (guessed + there):.4f}" if guessed + there > 0 else "",
        "" if curve is None else f"{curve.roc_area:.4f}",
    ]


def _confusion(section: Section, task: HeadTask, rows: ReportRows) -> None:
    count = len(task.classes)
    if count > _MOST_CLASSES:
        section.text(f"Not drawn for {count} classes; at most {_MOST_CLASSES} are.")
        return
    truth = task.labels if count > 2 else task.labels > 0.5
    table = measures.confusion(
        np.asarray(truth, int), np.asarray(task.guesses, int), rows.weights, count
    )
    section.figures(
        (
            figures.confusion_chart(table, task.classes),
            "Rows are labels, columns are predictions. Percentages are of a label.",
        )
    )


def _regression(section: Section, task: HeadTask, rows: ReportRows) -> None:
    errors = task.scores - task.labels
    weights = rows.weights
    mean_label = measures.mean(task.labels, weights)
    squares = measures.mean(errors**2, weights)
    spread = measures.mean((task.labels - mean_label) ** 2, weights)
    section.tiles(
        [
            ("mean absolute error", f"{measures.mean(np.abs(errors), weights):.4g}"),
            ("root mean squared error", f"{squares**0.5:.4g}"),
            ("R²", f"{1 - squares / spread:.4f}" if spread > 0 else "undefined"),
            ("mean error", f"{measures.mean(errors, weights):+.4g}"),
            ("median absolute error", f"{np.median(np.abs(errors)):.4g}"),
        ]
    )
    found = reliability(task.labels, task.scores, weights)
    predicted = {"x_name": "prediction"}
    section.figures(
        (
            figures.scatter_chart(
                task.scores, task.labels, **predicted, y_name="label", diagonal=True
            ),
            "Labels and predictions; on the line, they are equal.",
        ),
        (
            figures.scatter_chart(
                task.scores, errors, **predicted, y_name="error", diagonal=False
            ),
            "Errors: prediction minus label.",
        ),
        (figures.histogram(errors, x="error", y="rows"), "How errors are distributed."),
        (
            figures.calibration_chart(found),
            "Mean label in 15 bins of equally many rows. On the dashed line, the model "
            "is right on average.",
        ),
    )
    quantiles = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    section.heading("Quantiles")
    section.table(
        ["", *(f"{q:.0%}" for q in quantiles)],
        [
            [name, *(f"{value:.4g}" for value in np.quantile(values, quantiles))]
            for name, values in (
                ("label", task.labels),
                ("prediction", task.scores),
                ("error", errors),
                ("absolute error", np.abs(errors)),
            )
        ],
    )


_ADD = {"binary": _binary, "multi_class": _multi_class, "regression": _regression}


def _ranking(section: Section, task: HeadTask, rows: ReportRows) -> None:
    assert rows.groups is not None
    found = measures.ranking(task.labels, task.scores, rows.groups)
    section.text(f"Rows of the same {rows.group_name} are ranked by prediction.")
    if found is None:
        section.text("No group has different labels, so nothing can be ranked.")
        return
    section.tiles(
        [
            ("groups with different labels", f"{found.groups:,}"),
            ("mean AUC of groups", f"{found.auc:.4f}"),
            ("mean reciprocal rank", f"{found.reciprocal_rank:.4f}"),
            *((f"NDCG at {k}", f"{value:.4f}") for k, value in found.ndcg.items()),
        ]
    )
    section.figures(
        (
            figures.histogram(found.group_ndcg, x="NDCG at 10 of a group", y="groups"),
            "How well single groups are ranked.",
        ),
        (
            figures.histogram(found.sizes, x="rows of a group", y="groups"),
            "How large groups are.",
        ),
    )
    worst = np.argsort(found.group_ndcg, kind="stable")[:_WORST_GROUPS]
    section.heading("Groups that are ranked worst")
    section.table(
        [rows.group_name, "rows", "NDCG at 10"],
        [
            [str(found.names[i]), f"{found.sizes[i]:,}", f"{found.group_ndcg[i]:.4f}"]
            for i in worst
        ],
    )


def _slices(section: Section, task: HeadTask, rows: ReportRows) -> None:
    overall = measures.mean(task.losses, rows.weights)
    found = []
    for name in sorted(rows.features):
        for title, inside in columns.slices(name, rows.features[name]):
            if inside.sum() >= max(20, _LEAST_SHARE * len(inside)):
                extra = measures.mean(task.losses[inside], rows.weights[inside])
                found.append(((extra - overall) * inside.sum(), title, inside))
    found.sort(key=lambda entry: -entry[0])
    if not found:
        section.text("There are too few rows, or no columns to slice by.")
        return
    loss = "absolute error" if task.kind == "regression" else "log loss"
    section.text(
        f"Parts of the rows, by the values of one column, of at least 1% of the rows. "
        f"The parts that add most to the {loss} come first; over all rows it is "
        f"{overall:.4g}."
    )
    headings = [
        "slice",
        "rows",
        loss,
        "mean label",
        "mean prediction",
        _METRICS[task.kind],
    ]
    cells = [_slice_row(task, rows, title, inside) for _, title, inside in found]
    section.table(headings, cells[:_SLICES])
    if len(cells) > _SLICES:
        rest = cells[_SLICES:300]
        section.table(headings, rest, folded=f"{len(rest)} more slices")


_METRICS = {
    "binary": "area under ROC",
    "multi_class": "accuracy",
    "regression": "mean error",
}


def _slice_row(
    task: HeadTask, rows: ReportRows, title: str, inside: Array
) -> list[str]:
    labels, scores, weights = (
        part[inside] for part in (task.labels, task.scores, rows.weights)
    )
    if task.kind == "binary":
        curve = measures.threshold_curve(labels, scores, weights)
        metric = "" if curve is None else f"{curve.roc_area:.4f}"
    elif task.kind == "multi_class":
        right = (task.guesses[inside] == labels).astype(float)
        metric = f"{measures.mean(right, weights):.4f}"
    else:
        metric = f"{measures.mean(scores - labels, weights):+.4g}"
    is_number = task.kind != "multi_class"
    return [
        title,
        f"{int(inside.sum()):,}",
        f"{measures.mean(task.losses[inside], weights):.4g}",
        f"{measures.mean(labels, weights):.4g}" if is_number else "",
        f"{measures.mean(scores, weights):.4g}",
        metric,
    ]


def _errors(section: Section, task: HeadTask, rows: ReportRows) -> None:
    worst = np.argsort(-task.losses, kind="stable")[:_WORST_ROWS]
    section.text(
        "The rows with the largest "
        f"{'absolute error' if task.kind == 'regression' else 'log loss'}, with their "
        "features; rows are counted from 0. They often show wrong labels or missing "
        "columns."
    )
    names = sorted(rows.features)
    section.table(
        ["row", "label", "prediction", *names],
        [
            [
                f"{rows.numbers[row]:,}",
                task.format_value(task.labels[row]),
                _shown_guess(task, row),
                *(columns.cell(rows.features[name], row) for name in names),
            ]
            for row in map(int, worst)
        ],
    )


def _shown_guess(task: HeadTask, row: int) -> str:
    if task.kind == "multi_class":
        return f"{task.format_value(task.guesses[row])} ({task.scores[row]:.0%})"
    return f"{task.scores[row]:.4g}"


def add_learning_curves(
    page: Page, curves: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]
) -> None:
    """Append charts of the scalars of a training and of its evaluations.

    Args:
      page: The report.
      curves: Scalars (step, value) by tag, by the name of the run: "train", "eval".
    """
    charts = list(_charts(curves))
    if not charts:
        return
    section = page.section("Learning curves")
    section.figures(*charts)


_FIRST_TAGS = ("loss", "auc", "accuracy", "average_loss", "learning_rate")
_MOST_CHARTS = 6
_NORM = "gradient_norm/"


def _charts(
    curves: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]],
) -> Iterator[tuple[str, str]]:
    tags = list(dict.fromkeys(tag for found in curves.values() for tag in found))
    wanted = [tag for tag in _FIRST_TAGS if tag in tags]
    # Metrics of several heads are called auc/<head>.
    wanted += [t for t in tags if t.split("/")[0] in ("auc", "accuracy") and "/" in t]
    wanted = [t for t in wanted if "positive_threshold" not in t][:_MOST_CHARTS]
    colors = dict(zip(curves, figures.SERIES, strict=False))
    for tag in wanted:
        lines = {
            name: _line(found[tag])
            for name, found in curves.items()
            if name in colors
            and (len(found.get(tag, ())) > 1 or (tag in found and name != "train"))
        }
        if lines:
            yield figures.line_chart(lines, x="step", y=tag, colors=colors), ""
    train = curves.get("train", {})
    norms = {t.removeprefix(_NORM): train[t] for t in train if t.startswith(_NORM)}
    largest = sorted(norms, key=lambda name: -norms[name][-1][1])[:6]
    lines = {
        _short(name): _line(norms[name]) for name in largest if len(norms[name]) > 1
    }
    if lines:
        chart = figures.line_chart(
            lines, x="step", y="gradient norm", logarithmic=_are_positive(lines)
        )
        yield chart, "Norms of the gradients of the layers where they are largest."


def _short(layer: str) -> str:
    """Return the name of a layer, of a long one only its end.

    >>> _short("dnn/logits"), _short("dnn/input_from_feature_columns/input_layer/city")
    ('dnn/logits', '…/input_layer/city')
    """
    return layer if len(layer) <= 32 else "…/" + "/".join(layer.split("/")[-2:])


def _are_positive(lines: Mapping[str, tuple[Array, Array]]) -> bool:
    return all((ys > 0).all() for _, ys in lines.values())


def _line(pairs: Sequence[tuple[int, float]]) -> tuple[Array, Array]:
    steps, values = zip(*pairs, strict=True)
    return np.array(steps), np.array(values)
