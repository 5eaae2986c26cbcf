"""Runs that are shared by the tests of this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "programs"))
import processes  # lies beside this file


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The environment that lets a second start find what the first has compiled."""
    return processes.compilation_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """CSV files to train on and to evaluate."""
    return processes.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, data, cache):
    """The model directory of a run that nobody stopped."""
    run = processes.Run(data, tmp_path_factory.mktemp("run") / "model", env=cache)
    run.finish()
    return run.model_dir


@pytest.fixture
def start_run(tmp_path, data):
    """Make runs whose processes do not outlive the test."""
    made = []

    def make(*options, data=data, name="model", **settings):
        made.append(processes.Run(data, tmp_path / name, *options, **settings))
        return made[-1]

    yield make
    for run in made:
        run.kill_if_running()
