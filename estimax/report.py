"""The public path of `estimax.inspection.report`."""

import sys

from estimax.inspection import report
from estimax.inspection.report import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = report
