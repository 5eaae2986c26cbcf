"""Tests of this package share `table_models`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
