"""The names of what an explanation returns, in Python and as a signature of a bundle.

answer = bundle.predict(rows, EXPLAIN)
answer["contributions/age"], answer["baseline"]
"""

from __future__ import annotations

from collections.abc import Collection

EXPLAIN = "explain"  # the signature
CONTRIBUTIONS = "contributions/"  # and the name of a feature
BASELINE, OUTPUT, RESIDUAL, CLASS_ID = "baseline", "output", "residual", "class_id"


def is_explanation(outputs: Collection[str]) -> bool:
    """Return whether the outputs of a signature are those of an explanation.

    >>> is_explanation(["contributions/age", "baseline", "output", "residual"])
    True
    """
    return {BASELINE, OUTPUT, RESIDUAL}.issubset(outputs)
