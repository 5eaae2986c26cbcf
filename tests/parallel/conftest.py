"""Tests of this package share `mesh_models`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
