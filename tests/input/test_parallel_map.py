"""map in threads: the order, the errors and the positions of a map without any."""

import threading
import time

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import Dataset


def slow_square(x):
    time.sleep(0.001 * (int(x) * 7 % 5))
    return x * x


def numbers(n, *, bad=()):
    """A source that fails at some places and goes on behind them."""

    def make(batch):
        if int(batch[0]) in bad:
            raise OSError(f"no number {int(batch[0])}")
        return batch[0]

    return Dataset.range(n).batch(1).map(make)


def test_results_come_in_the_order_of_the_source():
    found = [int(x) for x in numbers(60).map(slow_square, num_parallel_calls=4)]
    assert found == [i * i for i in range(60)]


def test_the_source_is_read_by_one_thread_at_a_time():
    inside, readers = [], set()

    def source():
        for i in range(200):
            inside.append(threading.get_ident())
            assert len(inside) == 1
            readers.add(threading.get_ident())
            time.sleep(0.0002)
            inside.pop()
            yield np.array([i])

    data = Dataset.from_generator(source).map(lambda x: x + 1, num_parallel_calls=3)
    assert [int(x[0]) for x in data] == list(range(1, 201))
    assert threading.get_ident() not in readers


def test_it_reads_no_further_than_three_times_its_threads():
    read = []

    def source():
        for i in range(100):
            read.append(i)
            yield np.array([i])

    with iter(Dataset.from_generator(source).map(abs, num_parallel_calls=2)) as data:
        next(data)
        time.sleep(0.05)
        assert len(read) <= 6


def outcomes(iterator):
    found = []
    while True:
        try:
            found.append(int(next(iterator)))
        except StopIteration:
            return found
        except (OSError, ZeroDivisionError) as error:
            found.append(str(error))


def divide(x):
    if int(x) % 10 == 3:
        raise ZeroDivisionError(f"by {int(x)}")
    return x


@pytest.mark.parametrize("bad", [(), (0,), (7, 8), (11,)])
def test_errors_come_at_their_place_and_nothing_else_is_lost(bad):
    with iter(numbers(30, bad=bad).map(divide, num_parallel_calls=3)) as iterator:
        found = outcomes(iterator)
    expected = [f"by {i}" if i % 10 == 3 else i for i in range(30)]
    for i in bad:
        expected[i] = f"no number {i}"
    assert found == expected


def test_before_batch_one_bad_element_takes_no_other_with_it():
    with iter(Dataset.range(50).map(divide, num_parallel_calls=2)) as iterator:
        found = outcomes(iterator)
    assert found == [f"by {i}" if i % 10 == 3 else i for i in range(50)]


@pytest.mark.parametrize("rows", [False, True])
def test_a_position_is_that_of_the_element_last_given_out(rows):
    def data():
        source = Dataset.range(40).shuffle(9, seed=1)
        source = source if rows else source.batch(1).map(lambda batch: batch[0])
        return source.map(slow_square, num_parallel_calls=3)

    whole = [int(x) for x in data()]
    for place in (0, 1, 17, 39, 40):
        with iter(data()) as iterator:
            for _ in range(place):
                next(iterator)
            state = iterator.get_state()
        with iter(data()) as resumed:
            resumed.set_state(state)
            assert [int(x) for x in resumed] == whole[place:]


def test_going_back_while_threads_are_at_work():
    with iter(numbers(300).map(slow_square, num_parallel_calls=3)) as iterator:
        start = iterator.get_state()
        for _ in range(5):
            assert [int(next(iterator)) for _ in range(4)] == [0, 1, 4, 9]
            iterator.set_state(start)


def test_a_profile_counts_the_work_of_all_threads():
    def work(x):
        time.sleep(0.01)
        return x

    data = Dataset.range(40).batch(1).map(work, num_parallel_calls=2)
    profile = data.prefetch(1).profile(30)
    assert profile.slowest == "map"
    assert profile.stages[2].seconds >= 0.3


def test_a_position_is_known_while_the_next_element_is_still_being_read():
    reading, go_on = threading.Event(), threading.Event()

    def source():
        yield np.array([0])
        reading.set()
        go_on.wait(60)
        yield np.array([1])

    data = Dataset.from_generator(source).map(abs, num_parallel_calls=2)
    with iter(data) as iterator:
        assert next(iterator).tolist() == [0]
        assert reading.wait(60)
        state = iterator.get_state()
        go_on.set()
        assert next(iterator).tolist() == [1]
        iterator.set_state(state)
        assert next(iterator).tolist() == [1]


def test_closing_does_not_wait_for_ever_for_a_stuck_source(monkeypatch):
    monkeypatch.setattr("estimax.input.ops.parallel_map.JOIN_SECONDS", 0.1)
    reading, go_on, returned = (threading.Event() for _ in range(3))

    def source():
        yield np.array([0])
        reading.set()
        go_on.wait(60)
        returned.set()

    iterator = iter(Dataset.from_generator(source).map(abs, num_parallel_calls=1))
    next(iterator)
    assert reading.wait(60)
    with pytest.raises(InputError, match="has not returned"):
        iterator._stream.set_state(iterator._stream.get_state())
    iterator.close()
    assert not returned.is_set()
    go_on.set()
