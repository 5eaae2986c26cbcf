"""The quality of models without tuning, on tables that packages have."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_quality_is_what_is_expected():
    script = ROOT / "benchmarks" / "quality.py"
    call = [sys.executable, str(script), "--check", "--seeds", "1"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
