"""What several tests of the input package share."""

import sys
from pathlib import Path

import pytest

# Tests share `fuzz_records`, which is no part of the package.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["wait", "off"])
def native(request, monkeypatch):
    """Run a test with compiled kernels, and again with the references in Python."""
    monkeypatch.setattr("estimax.native.loading.setting", request.param)
    return request.param
