"""The public path of `estimax.export.scoring`."""

import sys

from estimax.export import scoring
from estimax.export.scoring import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = scoring
