"""A YAML file is a whole run: read, checked and built. Read `schema/run.py` first."""

from estimax.config.load import LoadedRun, load
from estimax.config.nodes import Origin, Problem, RunFileError
from estimax.config.schema import Run

__all__ = ["LoadedRun", "Origin", "Problem", "Run", "RunFileError", "load"]
