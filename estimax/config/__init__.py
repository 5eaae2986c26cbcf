"""Run files: a YAML file that describes a whole run. Read `schema/run.py` first.

`load` reads and checks a file; `build.build` makes the estimator of it. A file passes
through `parse` (YAML to nodes), `edits` (--set and ${…}), `decode` (nodes to the
dataclasses of `schema`) and `checks`. `build.plan` turns a run into expressions, which
`build` evaluates and `script` prints as Python.
"""

from estimax.config.load import LoadedRun, load
from estimax.config.nodes import ConfigProblem, RunFileError, ValueOrigin
from estimax.config.schema import Run

__all__ = ["ConfigProblem", "LoadedRun", "Run", "RunFileError", "ValueOrigin", "load"]
