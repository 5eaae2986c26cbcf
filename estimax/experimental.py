"""The public path of `estimax.v1.experimental`."""

import sys

from estimax.v1 import experimental
from estimax.v1.experimental import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = experimental
