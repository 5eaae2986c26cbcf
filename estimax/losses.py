"""The public path of `estimax.v1.losses`."""

import sys

from estimax.v1 import losses
from estimax.v1.losses import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = losses
