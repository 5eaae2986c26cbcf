import gc
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest

from estimax.input import Dataset
from estimax.input.streams.background import Background, Workers

# Of iterators that other tests have forgotten, and pytest still holds.
OTHERS = set()


@pytest.fixture(autouse=True)
def _look_at_own_threads():
    OTHERS.clear()
    OTHERS.update(threads())


def threads():
    """The input threads that this test has started."""
    every = {t for t in threading.enumerate() if t.name.startswith("estimax-input-")}
    return every - OTHERS


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_items_come_in_order_and_then_it_ends():
    ahead = Background(iter(range(100)), depth=3)
    assert [ahead.next() for _ in range(100)] == list(range(100))
    for _ in range(2):
        with pytest.raises(StopIteration):
            ahead.next()
    assert ahead.close()


def test_it_runs_no_further_ahead_than_its_depth():
    made = []
    ahead = Background((made.append(i) or i for i in range(100)), depth=2)
    wait_until(lambda: len(made) == 3)  # two waiting, one in hand
    time.sleep(0.02)
    assert len(made) == 3
    ahead.close()


def test_closing_ends_the_thread_in_the_middle():
    closed = []

    def numbers():
        try:
            while True:
                yield np.zeros(10)
        finally:
            closed.append(True)

    ahead = Background(numbers(), depth=2)
    ahead.next()
    assert ahead.close()
    assert closed == [True]
    assert not threads()


def test_an_error_arrives_at_its_place_with_its_traceback_every_time():
    def broken_source():
        yield 1
        raise OSError("disk on fire")

    ahead = Background(broken_source(), depth=5)
    assert ahead.next() == 1
    for _ in range(2):
        with pytest.raises(OSError, match="disk on fire") as caught:
            ahead.next()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "broken_source" in frames
    ahead.close()


def test_a_forgotten_prefetch_stops_its_thread():
    iterator = iter(Dataset.range(1000).repeat().batch(10).prefetch(2))
    next(iterator)
    assert threads()
    del iterator
    gc.collect()
    wait_until(lambda: not threads())


def test_a_closed_prefetch_has_no_thread_left():
    with iter(Dataset.range(1000).repeat().batch(10).prefetch(2)) as iterator:
        next(iterator)
    assert not threads()


def test_prefetch_raises_what_its_source_raised():
    def broken(batch):
        raise ZeroDivisionError("in the thread")

    iterator = iter(Dataset.range(5).batch(2).map(broken).prefetch(2))
    with pytest.raises(ZeroDivisionError, match="in the thread"):
        next(iterator)
    iterator.close()


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda data: data.prefetch(64).batch(7),
        lambda data: data.batch(7).prefetch(3),
        lambda data: data.batch(7).prefetch(0),
        lambda data: data.prefetch(5000).batch(7).prefetch(),
    ],
)
def test_prefetch_changes_no_content(pipeline):
    def data():
        return Dataset.range(3000).shuffle(500, seed=1)

    with iter(pipeline(data())) as iterator:
        found = [batch.tolist() for batch in iterator]
    assert found == [batch.tolist() for batch in data().batch(7)]


def test_nothing_starts_before_the_first_element_is_wanted():
    iterator = iter(Dataset.range(1000).batch(10).prefetch(2))
    iterator.get_state()
    assert not threads()


def test_a_program_that_forgets_its_iterator_still_ends():
    program = (
        "from estimax.input import Dataset\n"
        "kept = iter(Dataset.range(10).repeat().batch(2).prefetch(2))\n"
        "next(kept)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_workers_give_results_and_errors():
    workers = Workers(2, "test")
    assert not threads()
    found = [workers.submit(divmod, 7, i) for i in (2, 0, 3)]
    assert found[0].result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        found[1].result()
    assert found[2].result() == (2, 1)
    assert len(threads()) == 2
    assert workers.close()
    assert not threads()


def test_closed_workers_finish_what_was_submitted():
    done = []
    workers = Workers(1, "test")
    for i in range(5):
        workers.submit(done.append, i)
    assert workers.close()
    assert done == [0, 1, 2, 3, 4]


def test_a_forgotten_parallel_map_stops_its_threads():
    iterator = iter(Dataset.range(1000).repeat().batch(10).map(abs, 2))
    next(iterator)
    assert threads()
    del iterator
    gc.collect()
    wait_until(lambda: not threads())


@pytest.mark.parametrize("verb", ["map(abs, 2)", "prefetch(2)"])
def test_a_source_that_is_stuck_does_not_keep_the_program_alive(verb):
    program = (
        "import time\n"
        "import numpy as np\n"
        "from estimax.input import Dataset\n"
        "from estimax.input.streams import background\n"
        "background.JOIN_SECONDS = 0.2\n"
        "def source():\n"
        "    yield np.array([1])\n"
        "    time.sleep(3600)\n"
        f"kept = iter(Dataset.from_generator(source).{verb})\n"
        "print(next(kept))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "[1]\n")
    assert "is stuck in a read" in done.stderr
