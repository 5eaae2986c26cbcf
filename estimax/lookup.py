"""The public path of `estimax.v1.lookup`."""

import sys

from estimax.v1 import lookup
from estimax.v1.lookup import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = lookup
