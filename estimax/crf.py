"""The public path of `estimax.v1.crf`."""

import sys

from estimax.v1 import crf
from estimax.v1.crf import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = crf
