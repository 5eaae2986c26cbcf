"""The run file as frozen dataclasses, one per section. Read `run.py` first."""

from estimax.config.schema.run import Run

__all__ = ["Run"]
