"""The public path of `estimax.metrics.losses`."""

import sys

from estimax.metrics import losses
from estimax.metrics.losses import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = losses
