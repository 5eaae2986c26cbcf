"""What is compiled once is found again, if all of it is there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from estimax.native import kernel_cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def shared(tmp_path):
    path = tmp_path / "memory.py"
    path.write_text("inlined")
    return path


@pytest.fixture
def source(tmp_path):
    (tmp_path / "kernels" / "__pycache__").mkdir(parents=True)
    path = tmp_path / "kernels" / "words.py"
    path.write_text("def find_words(): ...")
    return path


def _compile(source, function="find_words"):
    """Write what Numba writes for a function; return its index."""
    folder = kernel_cache.numba_folder(source)
    (folder / f"{source.stem}.{function}-1.py311.1.nbc").write_text("code")
    index = folder / f"{source.stem}.{function}-1.py311.nbi"
    index.write_text("index")
    return index


def test_a_module_that_was_never_compiled_is_not_complete(source, shared):
    assert not kernel_cache.is_complete(source, [shared])


def test_a_module_is_complete_when_all_of_it_is_compiled(source, shared):
    _compile(source)
    assert not kernel_cache.is_complete(source, [shared])  # more may be missing
    kernel_cache.complete(source, [shared])
    assert kernel_cache.is_complete(source, [shared])


def test_a_module_that_lost_a_file_is_not_complete(source, shared, tmp_path):
    _compile(source, "one")
    index = _compile(source, "two")
    kernel_cache.complete(source, [shared])
    shutil.rmtree(tmp_path / "cache")
    index.unlink()
    assert not kernel_cache.is_complete(source, [shared])


@pytest.mark.parametrize("changed", ["source", "shared"])
def test_a_module_that_changed_is_not_complete(source, shared, changed):
    _compile(source)
    kernel_cache.complete(source, [shared])
    {"source": source, "shared": shared}[changed].write_text("another content")
    assert not kernel_cache.is_complete(source, [shared])


def test_code_that_inlined_an_older_function_is_removed(source, shared):
    index = _compile(source)
    shared.write_text("newer")
    kernel_cache.is_complete(source, [shared])
    assert not index.exists()


def test_what_was_compiled_is_found_after_a_new_installation(source, shared):
    _compile(source)
    kernel_cache.complete(source, [shared])
    shutil.rmtree(source.parent / "__pycache__")
    (source.parent / "__pycache__").mkdir()
    assert kernel_cache.is_complete(source, [shared])
    assert len(list((source.parent / "__pycache__").iterdir())) == 3


def test_a_cache_that_cannot_be_written_is_left_alone(
    source, shared, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    _compile(source)
    kernel_cache.complete(source, [shared])
    assert kernel_cache.is_complete(source, [shared])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    kernel_cache.complete(source, [shared])
    assert not kernel_cache.is_complete(source, [shared])


def test_a_user_without_a_home_has_no_cache(source, shared, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("os.access", lambda *_: False)  # installed by another user
    kernel_cache.complete(source, [shared])
    assert not kernel_cache.is_complete(source, [shared])


NUMBA = """
import sys
from pathlib import Path
from numba import njit
from estimax.native import kernel_cache
import module
folder = module.add._cache.cache_path
print(folder == str(kernel_cache.numba_folder(Path(module.__file__))), folder)
"""


@pytest.mark.parametrize("given", [True, False])
def test_the_folder_is_where_numba_writes(tmp_path, monkeypatch, given):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(
        "from numba import njit\n@njit(cache=True)\ndef add(a, b):\n    return a + b\n"
    )
    if given:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    root = Path(kernel_cache.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root}:{tmp_path / 'package'}")
    done = subprocess.run([sys.executable, "-c", NUMBA], capture_output=True, text=True)
    assert done.stdout.startswith("True"), done.stdout + done.stderr
