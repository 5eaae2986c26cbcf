"""The public path of `estimax.v1.feature_columns`."""

import sys

from estimax.v1 import feature_columns
from estimax.v1.feature_columns import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = feature_columns
