"""The public path of `estimax.feature_columns.transforms`."""

import sys

from estimax.feature_columns import transforms
from estimax.feature_columns.transforms import *  # noqa: F403 - for type checkers and editors

sys.modules[__name__] = transforms
