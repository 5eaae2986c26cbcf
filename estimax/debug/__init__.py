"""Finding out what went wrong in a training run. Read `find.py`."""

from estimax.debug.find import find_nonfinite
from estimax.debug.values import value
from estimax.training import Finding, NonFinite

__all__ = ["Finding", "NonFinite", "find_nonfinite", "value"]
