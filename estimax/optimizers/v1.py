"""The public path of `estimax.v1.optimizers`."""

import sys

from estimax.v1 import optimizers
from estimax.v1.optimizers import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = optimizers
