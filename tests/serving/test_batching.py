"""Requests are joined into batches, bounded, and never answered with another's rows."""

import threading
import time

import numpy as np
import pytest

from estimax.serving.batching import BatchQueue, BatchTask, Scheduler
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import NotCompiledError
from estimax.serving.status import Code, ServingError
from estimax.staging.trace import Origin

X = Origin("features", "x")


class Inbox:
    """Collects what tasks are told."""

    def __init__(self):
        self.found = {}
        self._changed = threading.Condition()

    def of(self, name):
        def deliver(answer):
            with self._changed:
                assert name not in self.found, "told twice"
                self.found[name] = answer
                self._changed.notify_all()

        return deliver

    def wait(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found) >= count, 20)
        return self.found


class Model:
    """Doubles x, remembers batch sizes, and can be held back."""

    def __init__(self):
        self.sizes = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, signature, batch, may_compile):
        self.go.wait(20)
        x = batch[X]
        self.sizes.append(len(x))
        if (x < 0).any():
            raise ValueError("negative")
        if signature == "new" and not may_compile:
            raise NotCompiledError
        return {"y": 2 * x}


@pytest.fixture
def scheduler():
    made = Scheduler(threads=1)
    yield made
    made.close()


def task(values, deliver, signature="predict", deadline=None):
    batch = {X: np.array(values, np.float32)}
    return BatchTask(batch, len(values), signature, deliver, deadline)


def held_queue(scheduler, model, inbox, **options) -> BatchQueue:
    """Return a queue whose only thread is busy with a first task."""
    queue = scheduler.queue(model, BatchingConfig(**options))
    model.go.clear()
    queue.submit(task([0.0], inbox.of("first")))
    while queue.waiting_rows:
        time.sleep(0.001)
    return queue


def test_tasks_that_wait_are_run_in_one_batch_and_get_their_own_rows(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox)
    queue.submit(task([1.0], inbox.of("a")))
    queue.submit(task([2.0, 3.0], inbox.of("b")))
    model.go.set()
    found = inbox.wait(3)
    assert model.sizes == [1, 3]
    assert found["a"]["y"].tolist() == [2.0]
    assert found["b"]["y"].tolist() == [4.0, 6.0]


def test_a_batch_has_at_most_the_largest_size(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox, batch_sizes=(1, 4))
    for name in range(5):
        queue.submit(task([1.0, 2.0, 3.0], inbox.of(name)))
    model.go.set()
    inbox.wait(6)
    assert model.sizes == [1, 3, 3, 3, 3, 3]


def test_without_batching_every_task_runs_alone(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox, is_enabled=False)
    for name in range(3):
        queue.submit(task([1.0], inbox.of(name)))
    model.go.set()
    inbox.wait(4)
    assert model.sizes == [1, 1, 1, 1]


def test_a_bad_task_does_not_fail_the_others_of_its_batch(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox)
    queue.submit(task([1.0], inbox.of("good")))
    queue.submit(task([-1.0], inbox.of("bad")))
    queue.submit(task([3.0], inbox.of("fine")))
    model.go.set()
    found = inbox.wait(4)
    assert found["good"]["y"].tolist() == [2.0]
    assert found["fine"]["y"].tolist() == [6.0]
    assert isinstance(found["bad"], ValueError)


def test_tasks_of_other_signatures_and_shapes_do_not_share_a_batch(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox)
    queue.submit(task([1.0], inbox.of("a")))
    queue.submit(task([2.0], inbox.of("b"), signature="other"))
    queue.submit(task([[1.0, 2.0]], inbox.of("wide")))
    queue.submit(task([3.0], inbox.of("c")))
    model.go.set()
    found = inbox.wait(5)
    assert model.sizes == [1, 2, 1, 1]
    assert found["wide"]["y"].tolist() == [[2.0, 4.0]]


def test_a_full_queue_refuses_at_once(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(
        scheduler, model, inbox, batch_sizes=(1, 2), max_enqueued_batches=2
    )
    queue.submit(task([1.0, 1.0], inbox.of("a")))
    queue.submit(task([1.0, 1.0], inbox.of("b")))
    with pytest.raises(ServingError, match="4 rows are waiting") as raised:
        queue.submit(task([1.0], inbox.of("c")))
    assert raised.value.code is Code.UNAVAILABLE
    model.go.set()
    assert inbox.wait(3).keys() == {"first", "a", "b"}


def test_a_task_whose_deadline_passed_is_not_run(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox)
    queue.submit(task([1.0], inbox.of("late"), deadline=time.monotonic() - 1))
    queue.submit(task([2.0], inbox.of("b")))
    model.go.set()
    found = inbox.wait(3)
    assert found["late"].code is Code.RESOURCE_EXHAUSTED
    assert model.sizes == [1, 1]


def test_a_batch_of_a_new_shape_is_compiled_apart(scheduler):
    model, inbox = Model(), Inbox()
    queue = scheduler.queue(model, BatchingConfig())
    queue.submit(task([4.0], inbox.of("new"), signature="new"))
    assert inbox.wait(1)["new"]["y"].tolist() == [8.0]


def test_a_timeout_waits_for_more_rows(scheduler):
    model, inbox = Model(), Inbox()
    queue = scheduler.queue(
        model, BatchingConfig(batch_sizes=(1, 2), timeout_micros=20_000_000)
    )
    queue.submit(task([1.0], inbox.of("a")))
    assert not inbox.found
    queue.submit(task([2.0], inbox.of("b")))  # fills the batch
    inbox.wait(2)
    assert model.sizes == [2]


def test_a_large_request_is_cut_and_takes_turns_with_others(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox, batch_sizes=(1, 4))
    queue.submit(task([*range(11)], inbox.of("large")))
    for name in "abc":
        queue.submit(task([1.0, 2.0, 3.0], inbox.of(name)))
    assert queue.waiting_rows == 20
    model.go.set()
    found = inbox.wait(5)
    assert model.sizes == [1, 4, 3, 4, 3, 3, 3]
    assert found["large"]["y"].tolist() == [2.0 * i for i in range(11)]
    assert queue.waiting_rows == 0


def test_a_large_request_keeps_no_other_out_but_another_large_one(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(
        scheduler, model, inbox, batch_sizes=(1, 2), max_enqueued_batches=2
    )
    queue.submit(task([1.0] * 99, inbox.of("large")))
    queue.submit(task([1.0], inbox.of("small")))
    with pytest.raises(ServingError, match="99 rows are waiting and at most 4 may"):
        queue.submit(task([1.0] * 99, inbox.of("other")))
    model.go.set()
    inbox.wait(3)


def test_the_rest_of_a_large_request_is_not_run_after_a_failure(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox, batch_sizes=(1, 2))
    queue.submit(task([1.0, 1.0, -1.0, 1.0, 1.0, 1.0], inbox.of("large")))
    queue.submit(task([3.0], inbox.of("small")))
    model.go.set()
    found = inbox.wait(3)
    assert isinstance(found["large"], ValueError)
    assert found["small"]["y"].tolist() == [6.0]
    assert sum(model.sizes) <= 6


def test_what_nobody_waits_for_is_not_run(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox, batch_sizes=(1, 2))
    for count in (1, 7):
        gone = task([1.0] * count, inbox.of("gone"))
        gone.is_wanted = lambda: False
        queue.submit(gone)
    queue.submit(task([3.0, 4.0], inbox.of("small")))
    model.go.set()
    assert inbox.wait(2).keys() == {"first", "small"}
    assert model.sizes == [1, 2]


def test_a_large_request_whose_answers_cannot_be_joined_fails_alone(scheduler):
    widths = iter((1, 2))

    def run(signature, batch, may_compile):
        return {"y": np.zeros((len(batch[X]), next(widths, 1)))}

    inbox = Inbox()
    queue = scheduler.queue(run, BatchingConfig(batch_sizes=(1, 2)))
    queue.submit(task([1.0] * 4, inbox.of("large")))
    assert isinstance(inbox.wait(1)["large"], ValueError)
    queue.submit(task([1.0], inbox.of("next")))
    assert inbox.wait(2)["next"]["y"].shape == (1, 1)


def test_a_thread_outlives_failures_after_a_batch():
    def fail(*_):
        raise MemoryError

    scheduler = Scheduler(threads=1, observe=fail)
    model, inbox = Model(), Inbox()
    queue = scheduler.queue(model, BatchingConfig(is_enabled=False))
    for signature in ("predict", "new"):
        queue.submit(task([1.0], fail, signature))
        queue.submit(task([2.0], inbox.of(signature), signature))
        assert inbox.wait(1).pop(signature)["y"].tolist() == [4.0]
    scheduler.close()


def test_a_batch_is_refused_if_there_is_no_thread_to_compile_for_it(
    scheduler, monkeypatch
):
    model, inbox = Model(), Inbox()
    queue = scheduler.queue(model, BatchingConfig())

    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        queue.submit(task([1.0], inbox.of("refused"), "new"))
        assert inbox.wait(1)["refused"].code is Code.UNAVAILABLE
    queue.submit(task([1.0], inbox.of("next"), "new"))
    assert inbox.wait(2)["next"]["y"].tolist() == [2.0]


def test_rows_that_wait_are_counted_while_nothing_changes(scheduler):
    model, inbox = Model(), Inbox()
    queue = held_queue(scheduler, model, inbox, batch_sizes=(1, 2))
    may_change = []

    def is_wanted():
        def change():
            if scheduler.changed.acquire(blocking=False):
                may_change.append(True)
                scheduler.changed.release()

        other = threading.Thread(target=change)
        other.start()
        other.join()
        return True

    large = task([1.0] * 4, inbox.of("large"))
    large.is_wanted = is_wanted
    queue.submit(large)
    assert queue.waiting_rows == 4
    assert not may_change
    large.is_wanted = lambda: True
    model.go.set()
    inbox.wait(2)


def test_only_the_task_of_a_new_shape_waits_for_the_compiler(scheduler):
    class LongModel(Model):
        compiler = threading.Event()

        def __call__(self, signature, batch, may_compile):
            answers = super().__call__(signature, batch, may_compile)
            if (batch[X] > 9).any():
                if not may_compile:
                    raise NotCompiledError
                assert self.compiler.wait(20)
            return answers

    model, inbox = LongModel(), Inbox()
    queue = held_queue(scheduler, model, inbox)
    for name, value in (("a", 1.0), ("long", 10.0), ("b", 2.0), ("longer", 11.0)):
        queue.submit(task([value], inbox.of(name)))
    model.go.set()
    assert inbox.wait(3).keys() == {"first", "a", "b"}
    model.compiler.set()
    assert inbox.wait(5)["longer"]["y"].tolist() == [22.0]
    assert model.sizes == [1, 4, 1, 1, 1, 1, 2]  # compiled once for both
