"""The kernels announce the seconds that their first compilation takes."""

import os
import shutil
from pathlib import Path

import pytest

from estimax.native import loading


@pytest.fixture
def source(tmp_path):
    original = Path(loading.__file__).parent / "kernels" / "records.py"
    (tmp_path / "__pycache__").mkdir()
    return Path(shutil.copy(original, tmp_path / "kernels.py"))


def _index(source):
    return source.parent / "__pycache__" / "kernels.find_words-1.py311.nbi"


def test_kernels_that_were_never_compiled_are_announced(source):
    assert not loading.is_cached(source)


def test_kernels_compiled_since_they_changed_are_not(source):
    _index(source).touch()
    assert loading.is_cached(source)


def test_kernels_changed_since_they_were_compiled_are_announced(source):
    _index(source).touch()
    os.utime(_index(source), (1, 1))
    assert not loading.is_cached(source)
