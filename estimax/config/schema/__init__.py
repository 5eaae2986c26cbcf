"""The sections of a run file as frozen dataclasses. Read `run.py` first.

Variants of a section (optimizers, schedules, features, heads, models) are named after
what they describe, with the suffix Config: `AdamConfig` describes
`ex.optimizers.Adam`.
"""

from estimax.config.schema.run import Run

__all__ = ["Run"]
