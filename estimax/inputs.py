"""The public path of `estimax.v1.inputs`."""

import sys

from estimax.v1 import inputs
from estimax.v1.inputs import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = inputs
