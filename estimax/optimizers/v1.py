"""The public path of `estimax.v1.optimizers`."""

import sys
from importlib import import_module

# By name, because `estimax.v1` is above this package.
sys.modules[__name__] = import_module("estimax.v1.optimizers")
