"""`scripts/check-pythons`, run as a user runs it, as far as nothing is installed."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_help_names_the_options_and_runs_nothing():
    done = _check_pythons("--help")
    assert done.returncode == 0
    for word in ("--oldest", "--newest", "PYTHONS=", "JAX="):
        assert word in done.stdout
    assert "==" not in done.stdout + done.stderr


def test_a_machine_without_a_supported_python_is_a_failure(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("awk", "dirname", "grep", "sed", "sort", "tr"):
        (tools / name).symlink_to(shutil.which(name))
    done = _check_pythons(PATH=str(tools), PYENV_ROOT=str(tmp_path))
    assert done.returncode == 1
    assert "found no Python 3.11 or newer" in done.stderr


def test_an_interpreter_that_does_not_run_is_named(tmp_path):
    missing = tmp_path / "python3.12"
    done = _check_pythons(PYTHONS=str(missing))
    assert done.returncode == 1
    assert f"PYTHONS: {missing} does not run" in done.stderr


def test_an_older_interpreter_is_in_the_table_as_a_failure(tmp_path):
    old = tmp_path / "python3.10"
    # Answers as Python 3.10 does: prints its version, and fails the version check.
    old.write_text('#!/bin/sh\ncase $2 in *exit*) exit 1 ;; esac\necho 3.10.13 "$3"\n')
    old.chmod(0o755)
    done = _check_pythons(PYTHONS=str(old))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert re.search(
        rf"3\.10\.13 +did not run the tests +{re.escape(str(old))}", done.stdout
    )
    assert re.search(r"3\.14 +supported, but not found", done.stdout)


def test_two_ways_to_choose_jax_are_refused():
    done = _check_pythons("--oldest", JAX="0.9.0")
    assert done.returncode == 1
    assert "give one of them" in done.stderr


def test_the_oldest_declared_python_is_the_required_one():
    declared = [c.rpartition(" ")[2] for c in PROJECT["classifiers"]]
    assert PROJECT["requires-python"] == f">={declared[0]}"
    assert declared == sorted(declared, key=lambda v: int(v.partition(".")[2]))


def test_every_dependency_has_one_lower_bound_and_no_upper_one():
    # `check-pythons --oldest` turns each ">=" into "==".
    for requirement in PROJECT["dependencies"]:
        assert re.fullmatch(r"[\w-]+>=[\d.]+", requirement)


def _check_pythons(*arguments, **variables):
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "check-pythons"), *arguments],
        env={**os.environ, "JAX": "", "PYTHONS": "", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
