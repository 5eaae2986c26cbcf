"""Every operation gives the same numbers in every order of calls, for every setting.

A reference is trained by itself; another Estimator evaluates and predicts at each of
its checkpoints. Then one Estimator is called in an order that contains every pair
(slow: every three) of train, evaluate, predict, export and load. What it gives must be
what the reference gave at the same step: no call may leave anything in the Estimator.
"""

import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from models import MODELS, OPERATIONS, STEPS, Calls, order_of, train_input

import estimax as ex
from estimax.core.errors import InUseError

SETTINGS = {
    "default": {},
    "debug": {"debug": True},
    "bfloat16": {"precision": "bfloat16"},
    "accumulation": {"accumulate_steps": 2},
    "averages": {"average_decay": 0.9},
    "eight devices": {"devices": "all"},
    "one step a loop": {"iterations_per_loop": 1},
    "no native code": {},
    "warm start": {},
}
# Settings under which numbers differ in the last bits: an export is compiled for one
# device, and with all optimizations.
TOLERANCE = {
    "bfloat16": {"rtol": 2e-2, "atol": 2e-2},
    "debug": {"rtol": 1e-4, "atol": 1e-5},
}


def config_of(setting, folder):
    options = {"save_summary_steps": 2, "keep_checkpoint_max": 0, **SETTINGS[setting]}
    return ex.RunConfig(str(folder), tf_random_seed=4, **options)


class Reference:
    """A model that was only trained, and what new Estimators gave at its steps."""

    def __init__(self, model, setting, folder):
        self._make, self._setting, self.folder = MODELS[model], setting, folder
        self._options = {}
        if setting == "warm start":
            first = self._make(ex.RunConfig(str(folder / "first"), tf_random_seed=9))
            first.train(train_input, steps=1)
            self._options = {"warm_start_from": str(folder / "first")}
        self._trainer = Calls(self.new(folder / "reference"))
        self._reader = Calls(self.new(folder / "reference"))
        self._found = {}

    def new(self, folder):
        return self._make(config_of(self._setting, folder), **self._options)

    def at(self, step):
        """Return what evaluate and predict give at a step."""
        while self._trained() < step:
            self._trainer.train()
            self._found[self._reader.step()] = {
                "evaluate": self._reader.evaluate(),
                "predict": self._reader.predict(),
            }
        return self._found[step]

    def _trained(self):
        return max(self._found, default=0)

    def started(self, name):
        """Return a folder with a checkpoint and a bundle."""
        folder = self.folder / "started"
        if not folder.exists():
            calls = Calls(self.new(folder))
            calls.train()
            calls.export()
        return Path(shutil.copytree(folder, self.folder / name))

    def check(self, calls, operation):
        """Call an operation and compare its numbers."""
        found = getattr(calls, operation)()
        if operation == "load":
            expected = self.at(found.pop("step"))["predict"]
        elif found is not None:
            expected = self.at(calls.step())[operation]
        else:
            return
        limits = TOLERANCE.get(self._setting, {"rtol": 1e-5, "atol": 1e-6})
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, **limits, err_msg=name)


def _cases(fast):
    """All models and settings; those that `fast` does not name are slow."""
    return [
        pytest.param(
            (model, setting),
            id=f"{model}-{setting}",
            marks=() if fast(model, setting) else pytest.mark.slow,
        )
        for model in MODELS
        for setting in SETTINGS
    ]


# The canned model differs from the other by its heads and columns, not by its settings.
FAST = _cases(lambda model, setting: model == "by_hand" or setting == "default")


@pytest.fixture(scope="module")
def reference(request, tmp_path_factory):
    model, setting = request.param
    with pytest.MonkeyPatch.context() as patch:
        if setting == "no native code":
            patch.setattr("estimax.native.loading.setting", "off")
        yield Reference(model, setting, tmp_path_factory.mktemp("orders"))


@pytest.mark.parametrize("reference", FAST, indirect=True)
@pytest.mark.parametrize("length", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_one_estimator_in_every_order(reference, length):
    calls = Calls(reference.new(reference.started(f"orders-{length}")))
    for operation in order_of(OPERATIONS, length):
        reference.check(calls, operation)


@pytest.mark.slow
@pytest.mark.parametrize("reference", _cases(lambda *_: True), indirect=True)
def test_a_new_estimator_begins_with_any_two(reference):
    for first in OPERATIONS:
        for second in OPERATIONS:
            folder = reference.started(f"{first}-{second}")
            calls = Calls(reference.new(folder))
            reference.check(calls, first)
            reference.check(calls, second)
            shutil.rmtree(folder)


DEFAULT = [case for case in FAST if case.id.endswith("-default")]


@pytest.mark.parametrize("reference", DEFAULT, indirect=True)
def test_two_estimators_of_one_folder_take_turns(reference):
    folder = reference.started("turns")
    one, other = (Calls(reference.new(folder)) for _ in range(2))
    for operation in OPERATIONS:
        reference.check(one, operation)
        reference.check(other, operation)


@pytest.mark.parametrize("reference", DEFAULT, indirect=True)
def test_threads_share_an_estimator_or_are_refused(reference):
    calls = Calls(reference.new(reference.started("threads")))
    barrier = threading.Barrier(4)
    problems = []

    def run(operation):
        barrier.wait()
        for _ in range(3):
            try:
                reference.check(calls, operation)
            except ex.EstimaxError as error:
                if "thread" not in str(error):
                    problems.append(error)
            except BaseException as error:
                problems.append(error)

    names = ("evaluate", "predict", "export", "load")
    reference.at(calls.step())  # computed before, and read by all
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


class WaitsInStep(ex.hooks.Hook):
    """Holds a training after its first step, until it is told to go on."""

    def __init__(self):
        self.is_inside, self.go_on = threading.Event(), threading.Event()

    def after_run(self, context, values):
        self.is_inside.set()
        assert self.go_on.wait(60)


@pytest.mark.parametrize("reference", DEFAULT, indirect=True)
def test_of_two_trainings_in_threads_the_second_is_refused(reference):
    calls = Calls(reference.new(reference.started("two trainings")))
    estimator, hook = calls.estimator, WaitsInStep()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(estimator.train, train_input, [hook], steps=STEPS)
        try:
            assert hook.is_inside.wait(60)
            with pytest.raises(InUseError, match="is training here already"):
                estimator.train(train_input, steps=STEPS)
            for operation in ("evaluate", "predict"):
                reference.check(calls, operation)
        finally:
            hook.go_on.set()
        first.result()
    for operation in OPERATIONS:  # the refused call has left nothing behind
        reference.check(calls, operation)
