"""A YAML file is a whole run: read, checked and built. Read `schema/run.py` first."""

from estimax.config.load import LoadedRun, load
from estimax.config.nodes import ConfigProblem, RunFileError, ValueOrigin
from estimax.config.schema import Run

__all__ = ["ConfigProblem", "LoadedRun", "Run", "RunFileError", "ValueOrigin", "load"]
