"""What processes exchange, with threads in place of processes."""

import time

import pytest
from process_threads import MemoryStore, in_threads, processes_of

from estimax.core.errors import ClusterError, InputError
from estimax.parallel.processes import Watcher
from estimax.parallel.requests import STOP, Requests


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
    assert "worker 1 (process 2 of 3) was lost: no sign of life for 40" in (
        watchers[0].look()
    )


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


def test_a_request_is_taken_once():
    requests = Requests()
    requests.ask(STOP)
    requests.ask(STOP)
    assert (requests.take(), requests.take()) == ([STOP], [])
