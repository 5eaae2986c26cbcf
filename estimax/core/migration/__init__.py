"""Names of TensorFlow: which name estimax has for each, or what to write instead.

    ex.layers        # AttributeError: … layers are Flax layers, written inline …
    Adam().minimize  # AttributeError: Optimizer has no 'minimize': …

One table serves the errors of `ex.NAME` (`missing`) and `estimax port` (`counterpart`).
`Retired` is for methods. Read `table.py` first.
"""

from estimax.core.migration.counterparts import (
    Counterpart,
    Retired,
    counterpart,
    look_up,
    missing,
    missing_package,
)
from estimax.core.migration.programs import ARGUMENTS, METHODS, RENAMED_METHODS
from estimax.core.migration.table import is_module, meanings

__all__ = [
    "ARGUMENTS",
    "METHODS",
    "RENAMED_METHODS",
    "Counterpart",
    "Retired",
    "counterpart",
    "is_module",
    "look_up",
    "meanings",
    "missing",
    "missing_package",
]
