"""Every test runs on eight simulated devices, with warnings as errors."""

import os
import sys
from pathlib import Path

import pytest

# Set before jax starts: tests that shard need several devices, the others use one.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Tests share `golden_files`, which is no part of the package.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def native_on(monkeypatch):
    """For tests of the kernels themselves, in a suite that may run without them."""
    monkeypatch.setattr("estimax.native.loading.setting", "on")
