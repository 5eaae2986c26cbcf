"""Batch scoring: rows of files in, predictions in files out, without training code.

Read `score.py` first, then `plan.py` for what survives a kill, `planning.py` for how
files are shared, and `worker.py` for what a process does. `tables.py` reads rows and
`rows.py` writes predictions, also for commands of one process.
"""

from estimax.export.scoring.score import (
    ChangedScoringError,
    ScoringError,
    ScoringProgress,
    ScoringResult,
    score_files,
)

__all__ = [
    "ChangedScoringError",
    "ScoringError",
    "ScoringProgress",
    "ScoringResult",
    "score_files",
]
