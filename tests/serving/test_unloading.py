"""What the server keeps of a version after it was unloaded: nothing."""

import gc
import shutil
import threading
import time
import weakref

import pytest
from serving.bundles import export_clicks

from estimax.serving.batching import Scheduler
from estimax.serving.config import BatchingConfig, ModelConfig
from estimax.serving.manager import ModelManager
from estimax.serving.versions import load_version


@pytest.mark.parametrize("second_bias", [0.0, 1.0], ids=["same program", "new program"])
def test_nothing_of_a_version_outlives_its_unload(tmp_path, second_bias):
    first = export_clicks(tmp_path / "first")
    second = export_clicks(tmp_path / "second", bias=second_bias)
    base = tmp_path / "model"
    scheduler = Scheduler(1)
    loaded = []

    def load(path, is_serving, stop):
        made = load_version(path, BatchingConfig(), scheduler, stop.check)
        parts = made, made.bundle, made.programs, made.queue
        loaded.append([weakref.ref(part) for part in parts])
        return made

    manager = ModelManager([ModelConfig("m", str(base))], load)
    try:
        for number, path in ((1, first), (2, second)):
            shutil.copytree(path, base / str(number))
            manager.poll()
            _wait(lambda number=number: _answers(manager) == number)
            _request(manager)
        _wait(lambda: _alive(loaded[0]) == 0)
        assert _alive(loaded[1]) == len(loaded[1])
    finally:
        manager.close()
        scheduler.close()


def _answers(manager):
    """Return the highest version that answers, if there is one."""
    ready = manager.models()["m"].available()
    return max((version.number for version in ready), default=None)


def _request(manager):
    done, answers = threading.Event(), []

    def deliver(answer):
        answers.append(answer)
        done.set()

    with manager.acquire("m") as served:
        served.loaded.submit("predict", served.loaded.example, deliver)
        assert done.wait(60)
    assert "logits" in answers[0]


def _alive(references):
    gc.collect()
    return sum(reference() is not None for reference in references)


def _wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
