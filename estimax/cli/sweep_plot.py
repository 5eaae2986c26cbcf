"""The plot of a sweep as SVG: one panel per address, a point per trial."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from estimax.config.dump import dump_flow
from estimax.config.sweep import SweepPlan

_WIDTH, _HEIGHT, _MARGIN = 300, 220, 50
_STYLE = "font-family:sans-serif;font-size:11px;fill:#333"


def plot(plan: SweepPlan, trials: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with the metric of the trials over each value.

    Args:
      plan: The sweep, for the names and scales of the axes.
      trials: Trials with a metric, the best first; the best one is drawn in red.
    """
    metrics = [float(trial["metric"]) for trial in trials]
    panels = [_order_panel(plan, trials, metrics)]
    panels += [_panel(plan, key, trials, metrics) for key in plan.space]
    width = len(panels) * (_WIDTH + _MARGIN) + _MARGIN
    height = _HEIGHT + 2 * _MARGIN
    body = "".join(
        f'<g transform="translate({_MARGIN + i * (_WIDTH + _MARGIN)},{_MARGIN})">'
        f"{panel}</g>"
        for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'style="background:white">{body}</svg>\n'
    )


def _order_panel(
    plan: SweepPlan, trials: Sequence[Mapping[str, Any]], metrics: Sequence[float]
) -> str:
    places = [float(trial["trial"]) for trial in trials]
    ticks = [(min(places), f"{min(places):g}"), (max(places), f"{max(places):g}")]
    return _drawn("trial", plan.metric, places, metrics, ticks)


def _panel(
    plan: SweepPlan,
    key: str,
    trials: Sequence[Mapping[str, Any]],
    metrics: Sequence[float],
) -> str:
    space = plan.space[key]
    values = [trial["values"][key] for trial in trials]
    if space.choice is not None:
        choices = [dump_flow(_listed(choice)) for choice in space.choice]
        places = [float(choices.index(dump_flow(value))) for value in values]
        ticks = [(float(i), choice) for i, choice in enumerate(choices)]
        return _drawn(key, plan.metric, places, metrics, ticks)
    limits = space.uniform or space.log_uniform or space.int_uniform or ()
    if space.log_uniform is not None:
        places = [math.log(value) for value in values]
        ticks = [(math.log(limit), f"{limit:g}") for limit in limits]
    else:
        places = [float(value) for value in values]
        ticks = [(float(limit), f"{limit:g}") for limit in limits]
    return _drawn(key, plan.metric, places, metrics, ticks)


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _drawn(
    title: str,
    metric: str,
    places: Sequence[float],
    metrics: Sequence[float],
    ticks: Sequence[tuple[float, str]],
) -> str:
    left = min([*places, *(at for at, _ in ticks)])
    right = max([*places, *(at for at, _ in ticks)])
    low, high = min(metrics), max(metrics)

    def x(place: float) -> float:
        return (place - left) / ((right - left) or 1.0) * _WIDTH

    def y(value: float) -> float:
        return _HEIGHT - (value - low) / ((high - low) or 1.0) * _HEIGHT

    parts = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#ccc"/>',
        _text(0, -10, f"{metric} by {title}"),
        _text(2, 12, f"{high:.5g}"),
        _text(2, _HEIGHT - 4, f"{low:.5g}"),
    ]
    parts += [_text(x(at), _HEIGHT + 16, text, "middle") for at, text in ticks[:8]]
    points = [(x(p), y(m)) for p, m in zip(places, metrics, strict=True)]
    # The best is the first; it is drawn last, above the others.
    for i, (across, down) in reversed(list(enumerate(points))):
        colour, size = ("#c00", 5) if i == 0 else ("#369", 3)
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{size}" fill="{colour}"/>'
        )
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    short = text if len(text) <= 40 else f"{text[:39]}…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{_STYLE}">'
        f"{html.escape(short)}</text>"
    )
