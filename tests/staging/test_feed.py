import threading
import time

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import Dataset, as_batches
from estimax.staging import host_plan as plans
from estimax.staging.feed import Feed
from estimax.staging.trace import HostCall, Origin

X = Origin("features", "x")


class Prepared:
    """A host transform, which the thread of the feed calls for every batch."""

    name = "x"
    keys = ("x",)

    def __init__(self, function):
        self._function = function

    def __call__(self, raw):
        return self._function(raw["x"])


def plan_of(function):
    return plans.HostPlan((), (HostCall("x", Prepared(function), (X,)),))


def feed_of(*numbers):
    """Batches of one row each."""
    return Feed(lambda: iter([{"x": np.array([number])} for number in numbers]))


def values_of(batch):
    (buffer,) = batch.arrays.buffers.values()
    return np.asarray(buffer).ravel().tolist()


def test_each_batch_comes_with_the_position_behind_it():
    def numbers():
        return Dataset.range(20).shuffle(20).batch(3).map(lambda x: {"x": x})

    with Feed(numbers) as feed:
        plan = plans.HostPlan((X,), ())
        given = [(values_of(b), b.position) for b in feed.batches(plan, depth=4)]
    remaining = [values for values, _ in given]
    assert len(remaining) == 7
    for k, (_, state) in enumerate(given):
        resumed = as_batches(numbers())
        resumed.set_state(state)
        assert [x["x"].tolist() for x, _ in resumed] == remaining[k + 1 :]


def test_batches_are_prepared_in_another_thread():
    found = []
    plan = plan_of(lambda x: found.append(threading.get_ident()) or x)
    with feed_of(1) as feed:
        list(feed.batches(plan, depth=2))
    assert len(found) == 1
    assert found[0] != threading.get_ident()


def test_an_error_while_preparing_surfaces_at_its_batch():
    def prepare(x):
        return np.array([1 // int(x[0])])

    with feed_of(1, 0) as feed:
        batches = feed.batches(plan_of(prepare), depth=2)
        assert values_of(next(batches)) == [1]
        with pytest.raises(ZeroDivisionError):
            next(batches)


def test_waiting_is_measured():
    def slow(x):
        time.sleep(0.1)
        return x

    with feed_of(0, 1, 2) as feed:
        list(feed.batches(plan_of(slow), depth=2))
        assert feed.waited_seconds > 0.05


def test_a_ready_batch_costs_no_waiting():
    second_is_ready = threading.Event()

    def prepare(x):
        if x[0] == 2:
            second_is_ready.set()
        return x

    with feed_of(0, 1, 2) as feed:
        batches = feed.batches(plan_of(prepare), depth=2)
        next(batches)  # starts the thread, and waits for it
        waited = feed.waited_seconds
        assert second_is_ready.wait(60)
        next(batches)
        assert feed.waited_seconds - waited == 0


def test_depth_must_be_positive():
    with (
        feed_of(1) as feed,
        pytest.raises(InputError, match="depth must be at least 1, got 0"),
    ):
        next(feed.batches(plan_of(lambda x: x), depth=0))
