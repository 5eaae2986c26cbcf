"""Figures of a report, drawn by matplotlib as SVG that is part of the page.

    svg = line_chart({"train": (steps, losses)}, x="step", y="loss")

Colors are placeholders while drawing; in the SVG they become variables of the page's
style sheet, so that one file is legible on light and on dark screens. Text stays text.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from estimax.calibration.measures import Reliability
from estimax.core.errors import ConfigError
from estimax.inspection.report.measures import ThresholdCurve

Array = NDArray[Any]
P = ParamSpec("P")

INK, GRID, PAPER = "#010203", "#040506", "#070809"
SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06")
_VARIABLES = {
    INK: "var(--ink)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{color: f"var(--series-{i})" for i, color in enumerate(SERIES, 1)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text that can be selected and searched
    "svg.hashsalt": "estimax",  # the same ids in every run
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}
_SIZE = (4.6, 3.5)  # inches
_MOST_POINTS = 600  # of a line: more cannot be seen


def check_installed() -> None:
    """Raise `ConfigError` with advice if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ConfigError(
            "a report needs matplotlib, which is not installed: pip install "
            "'estimax[report]'"
        ) from None


def with_style(draw: Callable[P, str]) -> Callable[P, str]:
    """Return the function with matplotlib set to the style of reports."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> str:
        from matplotlib import rc_context

        with rc_context(_STYLE):
            return draw(*args, **options)

    return drawn


class Drawing:
    """A figure with one set of axes; `svg` returns it.

    Args:
      title: What the figure shows, for readers of the page without pictures.
      size: Width and height in inches.
    """

    def __init__(self, title: str, size: tuple[float, float] = _SIZE) -> None:
        from matplotlib.figure import Figure

        self.title = title
        self.figure = Figure(figsize=size, layout="constrained")
        self.axes = self.figure.subplots()

    def svg(self) -> str:
        """Return the figure as an SVG element."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        # The layout is found here: `savefig` would draw the figure twice to find it.
        FigureCanvasSVG(self.figure)
        self.figure.dpi = 72.0  # of SVG
        self.figure.get_layout_engine().execute(self.figure)
        self.figure.set_layout_engine("none")
        out = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        self.figure.savefig(out, format="svg", metadata=metadata)
        text = out.getvalue()
        text = text[text.index("<svg") :]
        for color, variable in _VARIABLES.items():
            text = text.replace(color, variable)
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        # Sizes come from the style sheet; matplotlib writes points.
        text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
        label = self.title.replace('"', "'")
        return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


@with_style
def line_chart(
    lines: Mapping[str, tuple[Array, Array]],
    *,
    x: str,
    y: str,
    colors: Mapping[str, str] | None = None,
    logarithmic: bool = False,
) -> str:
    """Return a chart of lines by name; short ones have a dot at every point.

    `colors` are those of the lines, by name; by default they follow their order.
    """
    drawing = Drawing(f"{y} over {x}", (4.6, 3.5 + 0.22 * max(0, len(lines) - 3)))
    axes = drawing.axes
    given = colors or dict(zip(lines, SERIES, strict=False))
    for name, (xs, ys) in lines.items():
        places = _spread(len(xs))
        marker = "o" if len(places) <= 30 else None
        axes.plot(
            xs[places], ys[places], color=given[name], label=name, marker=marker, ms=3.5
        )
    if logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if len(lines) > 3:  # below the chart, where names of any length fit
        drawing.figure.legend(loc="outside lower left", fontsize=9)
    elif len(lines) > 1 or colors:
        axes.legend()
    return drawing.svg()


@with_style
def roc_chart(curve: ThresholdCurve, marks: Sequence[float]) -> str:
    """Return the ROC curve, with some thresholds marked."""
    drawing = Drawing("ROC curve")
    x, y = curve.false_positive_rate, curve.recall
    drawing.axes.plot([0, 1], [0, 1], color=GRID, ls="--", lw=1.2)
    _curve(drawing, curve, x, y, marks, below=True)
    drawing.axes.set_xlabel("false positive rate")
    drawing.axes.set_ylabel("true positive rate")
    return drawing.svg()


@with_style
def pr_chart(curve: ThresholdCurve, marks: Sequence[float]) -> str:
    """Return the precision-recall curve, with some thresholds marked."""
    drawing = Drawing("precision-recall curve")
    base = curve.tp[-1] / (curve.tp[-1] + curve.fp[-1])
    drawing.axes.axhline(base, color=GRID, ls="--", lw=1.2)
    _curve(drawing, curve, curve.recall, curve.precision, marks, below=False)
    drawing.axes.set_xlabel("recall")
    drawing.axes.set_ylabel("precision")
    drawing.axes.set_ylim(0, 1.03)
    return drawing.svg()


def _curve(
    drawing: Drawing,
    curve: ThresholdCurve,
    x: Array,
    y: Array,
    marks: Sequence[float],
    *,
    below: bool,
) -> None:
    """Draw the line, and marks with labels below or above it."""
    # Where nothing is predicted positive, there is no precision.
    start = 0 if below else 1
    places = start + _spread(len(x) - start)
    drawing.axes.plot(x[places], y[places], color=SERIES[0])
    drawn: list[tuple[float, float]] = []
    for mark in marks:
        at = curve.at(mark)
        is_near = any(max(abs(x[at] - a), abs(y[at] - b)) < 0.06 for a, b in drawn)
        if at < 1 or is_near:
            continue
        drawn.append((x[at], y[at]))
        drawing.axes.plot(x[at], y[at], "o", color=SERIES[1], ms=4.5)
        away = (5, -11) if below else (4, 4)
        drawing.axes.annotate(
            f"{mark:.2g}", (x[at], y[at]), away, textcoords="offset points", size=8
        )


@with_style
def calibration_chart(
    found: Reliability, *, x: str = "mean prediction", y: str = "mean label"
) -> str:
    """Return mean labels over mean predictions; the diagonal is perfect."""
    drawing = Drawing("calibration")
    # Rare events use a small corner of the square, so zoom in to it.
    top = float(max(found.predicted.max(), found.actual.max())) * 1.05 or 1.0
    limit = min(1.0, top) if top <= 1.05 else top
    low = min(0.0, float(found.predicted.min()), float(found.actual.min()))
    drawing.axes.plot([low, limit], [low, limit], color=GRID, ls="--", lw=1.2)
    drawing.axes.plot(found.predicted, found.actual, "o-", color=SERIES[0], ms=4.5)
    drawing.axes.set_xlabel(x)
    drawing.axes.set_ylabel(y)
    return drawing.svg()


@with_style
def score_chart(labels: Array, scores: Array, classes: Sequence[str]) -> str:
    """Return histograms of the scores of each of two classes."""
    drawing = Drawing("distribution of scores by label")
    edges = np.linspace(0, max(float(scores.max()), 1e-6), 31).tolist()
    for index, color in enumerate(SERIES[:2]):
        mine = scores[(labels > 0.5) == bool(index)]
        if len(mine):
            share = np.full(len(mine), 1 / len(mine))
            drawing.axes.hist(
                mine, edges, weights=share, histtype="stepfilled", alpha=0.25, fc=color
            )
            drawing.axes.hist(
                mine, edges, weights=share, histtype="step", ec=color, lw=1.6
            )
            drawing.axes.plot([], [], color=color, label=f"label {classes[index]}")
    drawing.axes.set_xlabel("prediction")
    drawing.axes.set_ylabel("share of the rows of a label")
    drawing.axes.margins(y=0.25)  # space for the legend
    drawing.axes.legend()
    return drawing.svg()


@with_style
def confusion_chart(table: Array, classes: Sequence[str]) -> str:
    """Return the confusion matrix; colors are shares of the rows of a label."""
    side = min(8.0, 2.4 + 0.42 * len(classes))
    drawing = Drawing("confusion matrix", (side + 0.9, side))
    axes = drawing.axes
    totals = table.sum(axis=1, keepdims=True)
    shares = np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)
    for row in range(len(table)):
        for column in range(len(table)):
            share = float(shares[row, column])
            # Squares of one color, more or less transparent, fit any background.
            axes.fill(
                [column - 0.5, column + 0.5, column + 0.5, column - 0.5],
                [row - 0.5, row - 0.5, row + 0.5, row + 0.5],
                color=SERIES[0],
                alpha=0.03 + 0.75 * share,
                lw=0,
            )
            if len(classes) <= 12:
                axes.text(
                    column,
                    row,
                    f"{table[row, column]:,.4g}\n{share:.0%}",
                    ha="center",
                    va="center",
                    size=9,
                )
    ticks = range(len(classes))
    rotation = 0 if max(map(len, classes), default=0) <= 3 else 40
    axes.set_xticks(
        ticks, classes, rotation=rotation, ha="right" if rotation else "center"
    )
    axes.set_yticks(ticks, classes)
    axes.set_xlim(-0.5, len(classes) - 0.5)
    axes.set_ylim(len(classes) - 0.5, -0.5)
    axes.grid(False)
    axes.set_xlabel("prediction")
    axes.set_ylabel("label")
    return drawing.svg()


@with_style
def bar_chart(names: Sequence[str], values: Array, errors: Array, *, x: str) -> str:
    """Return horizontal bars with whiskers, the first one at the top."""
    drawing = Drawing(x, (7.6, 1.0 + 0.27 * len(names)))
    places = np.arange(len(names))
    drawing.axes.barh(
        places,
        values,
        xerr=errors,
        color=SERIES[0],
        alpha=0.85,
        error_kw={"ecolor": INK, "elinewidth": 1},
    )
    drawing.axes.set_yticks(places, names)
    drawing.axes.invert_yaxis()
    drawing.axes.grid(axis="y", visible=False)
    drawing.axes.set_xlabel(x)
    return drawing.svg()


@with_style
def scatter_chart(
    x: Array, y: Array, *, x_name: str, y_name: str, diagonal: bool
) -> str:
    """Return points, at most 1,500 of them, and the diagonal or the zero line."""
    drawing = Drawing(f"{y_name} over {x_name}")
    places = np.linspace(0, len(x) - 1, min(len(x), 1500)).astype(int)
    drawing.axes.plot(
        x[places], y[places], "o", color=SERIES[0], alpha=0.3, ms=3, mew=0
    )
    if diagonal:
        ends = [min(x.min(), y.min()), max(x.max(), y.max())]
        drawing.axes.plot(ends, ends, color=SERIES[1], lw=1.2)
    else:
        drawing.axes.axhline(0, color=SERIES[1], lw=1.2)
    drawing.axes.set_xlabel(x_name)
    drawing.axes.set_ylabel(y_name)
    return drawing.svg()


@with_style
def histogram(values: Array, *, x: str, y: str) -> str:
    """Return a histogram of up to 40 bins, between the 0.5% and 99.5% quantiles."""
    drawing = Drawing(f"distribution of {x}")
    low, high = np.quantile(values, [0.005, 0.995])
    bins = 40
    if values.dtype.kind in "iu":  # bins of whole numbers, so that none is empty
        low, high = np.floor(low) - 0.5, np.ceil(high) + 0.5
        bins = int(high - low) if high - low <= 40 else 40
    edges = np.linspace(low, high if high > low else low + 1, bins + 1).tolist()
    drawing.axes.hist(np.clip(values, low, high), edges, color=SERIES[0], alpha=0.8)
    drawing.axes.set_xlabel(x)
    drawing.axes.set_ylabel(y)
    return drawing.svg()


def _spread(count: int) -> Array:
    """Return up to 600 evenly spread places of a line, with both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(int))
