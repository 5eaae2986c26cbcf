"""Every test runs on eight simulated devices, with warnings as errors."""

import os
import random
import secrets
import signal
import sys
import tempfile
from pathlib import Path

import pytest

# Tests share `golden_files` and `xla_flags`, which are no part of the package.
sys.path.insert(0, str(Path(__file__).parent))

import xla_flags

# A shell starts programs in the background with Ctrl-C ignored, which they pass on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes that tests start find the modules compiled, as installed ones are.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Set before jax starts.
os.environ.setdefault("XLA_FLAGS", xla_flags.EIGHT_DEVICES)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Kernels are compiled before a test goes on, so that the same code runs every time.
os.environ.setdefault("ESTIMAX_NATIVE", "wait")

# Tests share a compilation cache of their own: many of them compile the same small
# models, and the cache of the user must not matter. The processes of a run share it.
if "ESTIMAX_TEST_CACHE" not in os.environ:
    _cache = tempfile.TemporaryDirectory(
        prefix="estimax-tests-", ignore_cleanup_errors=True
    )
    os.environ["ESTIMAX_TEST_CACHE"] = _cache.name
os.environ["XDG_CACHE_HOME"] = os.environ["ESTIMAX_TEST_CACHE"]

# Models and datasets without a seed take one from `secrets`. In tests it is the same at
# every run, so that a test of what a model has learned passes always or never.
_seeds = random.Random()
secrets.randbits = _seeds.getrandbits


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _seeds.seed(item.nodeid)


@pytest.fixture(autouse=True)
def _same_environment():
    """Undo what a test changes, such as a command that sets variables for children."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for name in {*before, *after} - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif after.get(name) != before[name]:
            os.environ[name] = before[name]


# Files that take a minute or more.
_LONGEST = ("test_documentation.py", "test_examples.py", "test_train.py", "test_rnn.py")


def pytest_collection_modifyitems(items):
    """Start with the longest files, so that all processes of a run end together."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


@pytest.fixture
def native_on(monkeypatch):
    """For tests of the kernels themselves, in a suite that may run without them."""
    monkeypatch.setattr("estimax.native.loading.setting", "wait")
