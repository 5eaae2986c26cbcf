"""Kernels are announced, proven before they are used, and can be left off."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from estimax.native import loading


@pytest.fixture
def fresh(monkeypatch, native_on):
    """A process in which no kernel has proven itself yet."""
    monkeypatch.setattr(loading, "_loaded", {})


def test_kernels_that_agree_are_used_and_proven_once(fresh):
    asked = []
    for _ in range(3):
        module = loading.kernels("distinct", lambda kernels: not asked.append(kernels))
        assert asked == [module]


def test_kernels_that_disagree_are_left_off_with_one_warning(fresh, caplog):
    for _ in range(3):
        assert loading.kernels("distinct", lambda kernels: False) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "another result than the reference (Python 3." in record.message
    assert "numba" in record.message


def test_kernels_that_fail_are_left_off_with_the_reason(fresh, caplog):
    assert loading.kernels("distinct", lambda kernels: 1 / 0) is None
    assert "ZeroDivisionError: division by zero" in caplog.text


def test_off_means_off(fresh, monkeypatch, caplog):
    monkeypatch.setattr("estimax.native.loading.setting", "off")
    assert loading.kernels("distinct", lambda kernels: True) is None
    assert not caplog.records


def test_another_setting_is_an_error(monkeypatch):
    monkeypatch.setattr("estimax.native.loading.setting", "of")
    with pytest.raises(ValueError, match=r"expected 'on' .*, 'wait' .* or 'off'"):
        loading.is_on()


def test_without_numba_the_reference_is_used():
    code = """
import sys
sys.modules["numba"] = None
from estimax.feature_columns.transforms.words import fingerprint64
print(hex(fingerprint64(["hello"])[0]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0xb48be5a931380ce8"
    assert "native kernels 'hashing' are off" in done.stderr


@pytest.mark.slow
def test_kernels_are_compiled_once_for_two_installations(tmp_path):
    package = Path(loading.__file__).parents[1]
    code = """
import logging, numpy as np
logging.basicConfig(level="INFO")
from estimax.native import distinct, loading
distinct.distinct_ids(np.zeros((1, 2), np.int32), np.ones(1, np.int32))
stats = loading._loaded["distinct"].number_distinct.stats
print(loading.__file__, "hits", sum(stats.cache_hits.values()))
"""

    def run(folder):
        shutil.copytree(
            package, folder / "estimax", ignore=shutil.ignore_patterns("__pycache__")
        )
        environment = {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | environment,
            cwd=folder,
        )
        assert str(folder) in done.stdout
        return done

    assert "compiling native kernels 'distinct'" in run(tmp_path / "one").stderr
    second = run(tmp_path / "two")
    assert "compiling native kernels" not in second.stderr
    assert "hits 2" in second.stdout
