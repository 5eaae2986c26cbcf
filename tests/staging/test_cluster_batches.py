"""Batches of several processes, with threads in place of processes."""

import itertools
import logging

import numpy as np
import pytest
from process_threads import in_threads, processes_of

from estimax.core.errors import ClusterError, InputError
from estimax.parallel.requests import SAVE, STOP, Requests, interruption
from estimax.staging.batches import PlacedBatch
from estimax.staging.cluster_batches import ClusterBatches


def batches_of(peer, arrays, requests=None, limit=None, checksum=None):
    """Batches of ids [rows, width], padded to the width that the processes agree on."""

    def prepare(array, agree):
        widths = agree([len(array)], {"ids": array.shape[1]}, array.sum(axis=1))
        padded = np.pad(array, ((0, 0), (0, widths["ids"] - array.shape[1])))
        return PlacedBatch(padded, len(array), None)

    return ClusterBatches(
        zip(arrays, itertools.count(1)),  # the position: how many were read
        peer,
        requests or Requests(),
        prepare=prepare,
        misfit=lambda array: "" if len(array) % 2 == 0 else f"odd {len(array)}",
        checksum=checksum,
        limit=limit,
    )


def ones(*shapes):
    return [np.ones(shape, np.int32) for shape in shapes]


def shapes_of(arrays_of_each, **options):
    def read(peer):
        found = batches_of(peer, arrays_of_each[peer.index], **options)
        return [batch.arrays.shape for batch in found]

    return in_threads(processes_of(len(arrays_of_each)), read)


def test_ids_are_padded_to_the_widest_of_all_processes():
    found = shapes_of([ones((4, 1), (4, 8)), ones((4, 2), (4, 2))])
    assert found == [[(4, 2), (4, 8)]] * 2


def test_all_processes_end_when_the_first_has_no_batch():
    found = shapes_of([ones((4, 1), (4, 1), (4, 1)), ones((4, 1))])
    assert found == [[(4, 1)]] * 2


def test_all_processes_end_before_batches_of_different_sizes():
    found = shapes_of([ones((4, 1), (4, 1)), ones((4, 1), (2, 1), (4, 1))])
    assert found == [[(4, 1)]] * 2


def test_a_limit_is_the_same_for_all():
    assert shapes_of([ones((4, 1), (4, 1))] * 2, limit=1) == [[(4, 1)]] * 2


def test_a_batch_that_does_not_divide_is_left_out(caplog):
    with caplog.at_level(logging.WARNING, "estimax"):
        found = shapes_of([ones((4, 1), (3, 1), (4, 2))] * 2)
    assert found == [[(4, 1), (4, 2)]] * 2
    assert "odd 3, and is left out" in caplog.text


def test_a_first_batch_that_does_not_divide_is_an_error():
    with pytest.raises(InputError, match=r"odd 3\. In a cluster every batch must"):
        next(batches_of(processes_of(2)[0], ones((3, 1))))


def test_other_arrays_must_have_the_same_shapes():
    def read(peer):
        values = np.ones((2, 1), np.float32 if peer.index else np.int64)
        with pytest.raises(ClusterError, match="different shapes"):
            list(batches_of(peer, [values]))

    in_threads(processes_of(2), read)


def test_rows_that_differ_between_processes_are_an_error():
    def read(peer):
        rows = [np.zeros((2, 1)), np.full((2, 1), peer.index)]
        batches = batches_of(peer, rows, checksum=lambda rows: int(rows.sum()))
        next(batches)
        with pytest.raises(ClusterError, match=r"checksum 0 in chief .*; checksum 2"):
            next(batches)

    in_threads(processes_of(2), read)


def test_examples_are_counted_over_all_processes_and_positions_kept():
    def read(peer):
        batches = batches_of(peer, ones((4, 1), (4, 1)))
        return [(batch.examples, batch.position) for batch in batches]

    assert in_threads(processes_of(3), read) == [[(12, 1), (12, 2)]] * 3


def test_a_request_of_one_process_is_agreed_by_all():
    def read(peer):
        requests = Requests()
        batches = batches_of(peer, ones(*[(4, 1)] * 4), requests)
        seen = []
        for batch in batches:
            seen.append(set(batch.agreed))
            if peer.index == 1 and len(seen) == 1:
                requests.ask(SAVE)
            if peer.index == 0 and len(seen) == 3:
                requests.ask(STOP)
        return seen, requests.interrupted_by

    assert in_threads(processes_of(2), read) == [([set(), {SAVE}, set()], None)] * 2


def test_a_signal_in_one_process_is_told_to_all():
    def read(peer):
        requests = Requests()
        if peer.index == 1:
            requests.ask(interruption("SIGTERM"))
        found = list(batches_of(peer, ones((4, 1)), requests))
        return found, requests.interrupted_by

    expected = ([], "SIGTERM in worker 0 (process 1 of 2)")
    assert in_threads(processes_of(2), read) == [expected] * 2


def test_a_closed_iterator_waits_no_longer():
    batches = batches_of(processes_of(2)[0], ones((4, 1)))
    batches.close()
    with pytest.raises(ClusterError, match="no longer waits"):
        next(batches)
