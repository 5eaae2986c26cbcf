"""Tests of this package share `golden_columns`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
