"""What processes exchange, with threads in place of processes."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from process_threads import MemoryStore, in_threads, processes_of

from estimax.core.errors import ClusterError, InputError
from estimax.parallel import processes
from estimax.parallel.requests import STOP, Requests
from estimax.parallel.watching import Place, Watcher, is_deadlock


def test_all_processes_gather_the_same_values_in_order():
    peers = processes_of(3)
    results = in_threads(peers, lambda one: one.gather("a", {"rank": one.index}))
    assert results == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3


def test_rounds_and_topics_do_not_mix_and_old_rounds_are_deleted():
    store = MemoryStore()

    def several(one):
        return [one.gather(topic, n + one.index) for topic in "ab" for n in range(5)]

    results = in_threads(processes_of(2, store), several)
    assert results[0] == results[1] == [[n, n + 1] for _ in "ab" for n in range(5)]
    assert len(store.values) == 4  # the last round of each topic


def test_the_value_of_the_chief_is_broadcast():
    results = in_threads(processes_of(3), lambda one: one.broadcast("s", one.index + 7))
    assert results == [7, 7, 7]


def test_a_wait_can_be_given_up():
    chief, _ = processes_of(2)
    with pytest.raises(ClusterError, match="no longer waits"):
        chief.gather("a", 1, lambda: True)


def test_a_wait_has_a_limit_and_a_name(monkeypatch):
    monkeypatch.setattr(processes, "_WAIT_LIMIT_SECS", 0.0)
    monkeypatch.setattr(processes, "_WAIT_MS", 10)
    chief, worker = processes_of(2)
    with pytest.raises(ClusterError, match=r"worker 0 .* did not take part in 'a'"):
        chief.wait("a")
    with pytest.raises(ClusterError, match=r"chief .* did not take part in 'b'"):
        worker.wait("b")


def test_sigterm_in_the_joint_part_is_told_to_the_others():
    store = MemoryStore()
    peers = processes_of(2, store)
    watchers = watchers_of(peers, store, time.monotonic)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, peers[1].together():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    assert watchers[0].look() == (
        "worker 0 (process 1 of 2) ended: it was stopped by SIGTERM"
    )


def watchers_of(peers, store, clock):
    return [Watcher(store, one, 30.0, print, clock) for one in peers]


def test_a_process_without_a_sign_of_life_is_named():
    store, now = MemoryStore(), [0.0]
    watchers = watchers_of(processes_of(3, store), store, lambda: now[0])
    assert [one.look() for one in watchers] == [None, None, None]
    assert [one.look() for one in watchers] == [None, None, None]
    now[0] = 20.0
    assert [one.look() for one in watchers[:2]] == [None, None]
    now[0] = 60.0
    problem = watchers[0].look()
    assert "worker 1 (process 2 of 3) was lost: no sign of life for 40" in problem
    assert "run different programs" in problem
    assert "GIL" in problem


def test_an_error_of_a_process_is_told_to_the_others():
    store = MemoryStore()
    peers = processes_of(2, store)
    watchers = watchers_of(peers, store, time.monotonic)
    for one in peers:
        one.tell()
    with pytest.raises(InputError), peers[1].together():
        raise InputError("row 7")
    assert watchers[0].look() == "worker 0 (process 1 of 2) ended: InputError: row 7"


def test_a_process_that_has_ended_its_training_may_leave():
    store, now = MemoryStore(), [0.0]
    peers = processes_of(2, store)
    watchers = watchers_of(peers, store, lambda: now[0])

    def train(one):
        with one.together():
            pass

    in_threads(peers, train)
    peers[1].leave()
    now[0] = 100.0
    assert watchers[0].look() is None


def test_processes_that_wait_in_different_places_are_named():
    store, now = MemoryStore(), [0.0]
    peers = processes_of(2, store)
    watchers = watchers_of(peers, store, lambda: now[0])

    def train(one):
        with one.together():
            one.begin_step(3)
            one.wait("here" if one.is_chief else "there")

    with ThreadPoolExecutor(4) as pool:
        training = [pool.submit(train, one) for one in peers]
        wanted = [Place(3, "here"), Place(3, "there")]
        while [one.place() for one in peers] != wanted:
            time.sleep(0.01)
        for at in (0.0, 0.0, 20.0):
            now[0] = at
            assert [one.look() for one in watchers] == [None, None]
        now[0] = 31.0
        problems = [one.look() for one in watchers]
        # Each takes part in the other's exchange, so that both go on to the end.
        pool.submit(peers[1].wait, "here").result()
        pool.submit(peers[0].wait, "there").result()
        for one in training:
            one.result()
    for problem in problems:
        assert "wait for each other in different places, for 31 seconds" in problem
        assert "chief (process 0 of 2) waits in 'here' after step 3" in problem
        assert "worker 0 (process 1 of 2) waits in 'there' after step 3" in problem
    assert [one.place() for one in peers] == [None, None]


@pytest.mark.parametrize(
    "places",
    [
        [Place(3, "end"), Place(3, "end")],  # one of them is about to see the other
        [Place(3, "saved"), Place(3)],  # the chief evaluates what was saved
        [Place(3), Place(4)],  # a slow step, or a hook in one process
        [Place(3, "saved"), Place(4), Place(3)],  # the third may still come
        [Place(3, "saved"), None],  # one does not train with the others
    ],
)
def test_processes_of_which_one_can_go_on_are_not_deadlocked(places):
    assert not is_deadlock(places)


def test_a_process_waits_for_its_input_where_its_input_thread_waits():
    chief, worker = processes_of(2)
    with ThreadPoolExecutor(2) as pool, chief.together():
        waiting = pool.submit(chief.wait, "batch")
        while not chief._waits:
            time.sleep(0.01)
        assert chief.place() == Place(0)  # the batch is prepared ahead of time
        with chief.awaiting_input():
            assert chief.place() == Place(0, "batch", 0)
        worker.wait("batch")
        waiting.result()
        pool.submit(worker.wait, "end")


def test_a_request_is_taken_once():
    requests = Requests()
    requests.ask(STOP)
    requests.ask(STOP)
    assert (requests.take(), requests.take()) == ([STOP], [])
