"""The public path of `estimax.v1.metrics`."""

import sys

from estimax.v1 import metrics
from estimax.v1.metrics import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = metrics
