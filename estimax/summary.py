"""The public path of `estimax.hooks.summary`."""

import sys

from estimax.hooks import summary
from estimax.hooks.summary import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = summary
