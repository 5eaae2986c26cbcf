"""The section of contributions: how far each feature moves the outputs of a model.

add_contributions(page, model, sample_fn, heads, importances, checkpoint)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from estimax.core.errors import EstimaxError
from estimax.estimator import Estimator
from estimax.inspection.explanations import Explanations, integrated_gradients
from estimax.inspection.importance import Importances
from estimax.inspection.report import figures
from estimax.inspection.report.page import Page

_ROWS = 1_000
_STEPS = 32  # means over rows need fewer steps than the parts of one row
_MOST_FEATURES = 30


def add_contributions(
    page: Page,
    estimator: Estimator,
    sample_fn: Callable[..., Any],
    heads: Sequence[str],
    importances: Importances | None,
    checkpoint: str | None,
) -> None:
    """Add the mean size of the part of each feature, for each head of the model.

    Nothing is added for models that cannot be explained, such as trees.

    Args:
      page: The report.
      estimator: The model.
      sample_fn: Returns the rows of the report.
      heads: The names of the heads; "" for the only one.
      importances: The permutation importances, which are shown beside; None: none.
      checkpoint: The checkpoint of the report.
    """
    for head in heads:
        found = _explain(estimator, sample_fn, head, checkpoint)
        if found is not None:
            _add(page, f"{head}: contributions" if head else "", found, importances)


def _explain(
    estimator: Estimator,
    sample_fn: Callable[..., Any],
    head: str,
    checkpoint: str | None,
) -> Explanations | None:
    for output in (f"{head}/logits", f"{head}/predictions") if head else (None,):
        try:
            return integrated_gradients(
                estimator,
                sample_fn,
                output=output,
                steps=_STEPS,
                max_examples=_ROWS,
                checkpoint_path=checkpoint,
            )
        except EstimaxError:  # no such output, or a model that has no gradients
            continue
    return None


def _add(
    page: Page, title: str, found: Explanations, importances: Importances | None
) -> None:
    section = page.section(title or "Contributions of features")
    of_class = "" if found.class_id is None else " of the predicted class"
    section.text(
        f"How far each feature moves the output{of_class} (a logit, or the predicted "
        f"value) from that of a baseline: the mean size over {len(found.output):,} "
        "rows, by integrated gradients. A feature that moves the output far need not "
        "make the model better; that is what the importance measures."
    )
    shown = list(found.mean_absolute.items())[:_MOST_FEATURES]
    sizes = np.array([size for _, size in shown])
    chart = figures.bar_chart(
        *([name for name, _ in shown], sizes, np.zeros(len(shown))),
        x="mean absolute contribution",
    )
    section.figures((chart, ""), is_wide=True)
    if importances is not None:
        lost = _lost(importances)
        section.table(
            ["feature", "mean contribution", f"importance ({importances.metric})"],
            [[name, f"{size:.4g}", lost.get(name, "")] for name, size in shown],
        )


def _lost(importances: Importances) -> Mapping[str, str]:
    """Return the importance of each feature; those shuffled as one have the same."""
    return {
        name: f"{one.mean:.4g}"
        for one in importances.features
        for name in one.feature.split(" + ")
    }
