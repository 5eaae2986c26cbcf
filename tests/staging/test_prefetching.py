import threading
import time

import pytest

from estimax.core.errors import InputError
from estimax.input import Dataset, as_batches
from estimax.staging.prefetching import prefetch_batches


def test_each_batch_comes_with_the_position_behind_it():
    batches = as_batches(Dataset.range(20).shuffle(20).batch(3))
    with prefetch_batches(batches, lambda batch: batch[0].tolist(), depth=4) as ahead:
        given = list(ahead)
    remaining = [values for values, _ in given]
    for k, (_, state) in enumerate(given):
        resumed = as_batches(Dataset.range(20).shuffle(20).batch(3))
        resumed.set_state(state)
        assert [x.tolist() for x, _ in resumed] == remaining[k + 1 :]


def test_batches_are_prepared_in_another_thread():
    here = threading.get_ident()
    with prefetch_batches(iter([1]), lambda _: threading.get_ident()) as ahead:
        ((there, state),) = ahead
    assert there != here
    assert state is None


def test_an_error_while_preparing_surfaces_at_its_batch():
    with prefetch_batches(iter([1, 0]), lambda n: 1 / n) as ahead:
        assert next(ahead)[0] == 1
        with pytest.raises(ZeroDivisionError):
            next(ahead)


def test_waiting_is_measured():
    def slow(batch):
        time.sleep(0.1)
        return batch

    with prefetch_batches(iter(range(3)), slow) as ahead:
        list(ahead)
        assert ahead.waited_seconds > 0.05


def test_a_ready_batch_costs_no_waiting():
    first_is_ready = threading.Event()

    def prepare(batch):
        if batch == 1:
            first_is_ready.set()
        return batch

    with prefetch_batches(iter(range(2)), prepare) as ahead:
        assert first_is_ready.wait(60)
        next(ahead)
        assert ahead.waited_seconds == 0


def test_depth_must_be_positive():
    with pytest.raises(InputError, match="depth must be at least 1, got 0"):
        prefetch_batches(iter([]), lambda batch: batch, depth=0)
