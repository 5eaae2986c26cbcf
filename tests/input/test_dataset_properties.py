"""Chains of verbs do what a plain model of them does: lists of Python.

hypothesis makes the chains. The same ones are tried at every run; to search for more,
set HYPOTHESIS_EXAMPLES=5000.
"""

import os
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from estimax.core.errors import InputError
from estimax.input import Dataset

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 100,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class RaggedError(Exception):
    """Rows of different shapes cannot be batched."""


def stacked(rows):
    if len({np.shape(row) for row in rows}) > 1:
        raise RaggedError
    return list(rows)


def batched(rows, size, drop):
    found = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [stacked(b) for b in found if len(b) == size or not drop]


def windows(rows, size, shift, stride, drop):
    found = []
    for start in range(0, len(rows), shift):
        window = rows[start : start + size * stride : stride][:size]
        if len(window) == size or not drop:
            found.append(stacked(window))
    return found


def interleaved(lists, cycle, block):
    """As tf.data: `cycle` lists at a time, `block` elements of each in turn."""
    waiting = iter(lists)
    slots = [None] * cycle
    found, ended = [], False
    while True:
        progress = False
        for i in range(cycle):
            if slots[i] is None:
                following = next(waiting, None)
                ended = following is None
                slots[i] = None if ended else iter(following)
                progress |= not ended
            if slots[i] is not None:
                some = list(islice(slots[i], block))
                found += some
                progress |= bool(some)
                if len(some) < block:
                    slots[i] = None
        if ended and not progress and all(slot is None for slot in slots):
            return found


def total(x):
    return int(np.sum(x))


# Each verb: how to call it, and what it does to a list.
small = st.integers(1, 4)
VERBS = {
    "take": (
        st.tuples(st.integers(-1, 9)),
        lambda d, n: d.take(n),
        lambda r, n: r if n < 0 else r[:n],
    ),
    "skip": (
        st.tuples(st.integers(-1, 9)),
        lambda d, n: d.skip(n),
        lambda r, n: [] if n < 0 else r[n:],
    ),
    "repeat": (
        st.tuples(st.integers(0, 3)),
        lambda d, n: d.repeat(n),
        lambda r, n: r * n,
    ),
    "shard": (
        st.tuples(small, st.integers(0, 3)),
        lambda d, n, i: d.shard(n, i % n),
        lambda r, n, i: r[i % n :: n],
    ),
    "concatenate": (
        st.tuples(st.integers(0, 3)),
        lambda d, n: d.concatenate(d.take(n)),
        lambda r, n: r + r[:n],
    ),
    "batch": (
        st.tuples(small, st.booleans()),
        lambda d, n, drop: d.batch(n, drop_remainder=drop),
        batched,
    ),
    "window": (
        st.tuples(small, small, small, st.booleans()),
        lambda d, n, *how: d.window(n, *how).flat_map(lambda w: w.batch(n)),
        windows,
    ),
    "map": (
        st.tuples(st.integers(-2, 2)),
        lambda d, n: d.map(lambda x: x + n),
        lambda r, n: [(np.array(x) + n).tolist() for x in r],
    ),
    "filter": (
        st.tuples(st.integers(2, 4)),
        lambda d, n: d.filter(lambda x: total(x) % n != 0),
        lambda r, n: [x for x in r if total(x) % n],
    ),
    "take_while": (
        st.tuples(st.integers(0, 20)),
        lambda d, n: d.take_while(lambda x: total(x) < n),
        lambda r, n: r[: next((i for i, x in enumerate(r) if total(x) >= n), len(r))],
    ),
    "flat_map": (
        st.tuples(small),
        lambda d, n: d.flat_map(lambda x: Dataset.range(total(x) % n)),
        lambda r, n: [y for x in r for y in range(total(x) % n)],
    ),
    "interleave": (
        st.tuples(small, small, small),
        lambda d, n, cycle, block: d.interleave(
            lambda x: Dataset.range(total(x) % n), cycle, block
        ),
        lambda r, n, cycle, block: interleaved(
            [list(range(total(x) % n)) for x in r], cycle, block
        ),
    ),
    "cache": (st.just(()), lambda d: d.cache(), lambda r: r),
    "prefetch": (st.tuples(small), lambda d, n: d.prefetch(n), lambda r, n: r),
    "enumerate": (
        st.tuples(st.integers(0, 2)),
        lambda d, n: d.enumerate(n).map(lambda i, x: x + i),
        lambda r, n: [(np.array(x) + i).tolist() for i, x in enumerate(r, n)],
    ),
    "zip": (
        st.tuples(st.integers(0, 3)),
        lambda d, n: Dataset.zip((d, d.skip(n))).map(lambda x, y: x),
        lambda r, n: r[: max(0, len(r) - n)],
    ),
}
UNBATCH = (
    st.just(()),
    lambda d: d.unbatch(),
    lambda r: [row for batch in r for row in batch],
)
REBATCH = (
    st.tuples(small, st.booleans()),
    lambda d, n, drop: d.rebatch(n, drop_remainder=drop),
    lambda r, n, drop: batched([row for batch in r for row in batch], n, drop),
)
DEEPER, FLAT = {"batch", "window"}, {"flat_map", "interleave"}


@st.composite
def chains(draw):
    """A dataset, its elements, and the names of its verbs."""
    size = draw(st.integers(0, 12))
    numbers = list(range(size))
    source = draw(st.sampled_from(["range", "slices", "generator", "batches"]))
    dataset = {
        "range": lambda: Dataset.range(size),
        "slices": lambda: Dataset.from_tensor_slices(np.arange(size)),
        "generator": lambda: Dataset.from_generator(lambda: iter(numbers)),
        "batches": lambda: Dataset.from_batches(
            lambda: (np.arange(i, min(i + 5, size)) for i in range(0, size, 5))
        ),
    }[source]()
    rows, depth, names = numbers, 0, [f"{source} {size}"]
    if source == "batches":
        rows, depth = batched(numbers, 5, False), 1
    for _ in range(draw(st.integers(0, 5))):
        choices = [*VERBS, *(["unbatch", "rebatch"] if depth else [])]
        name = draw(st.sampled_from(choices))
        arguments, ours, model = {
            **VERBS,
            "unbatch": UNBATCH,
            "rebatch": REBATCH,
        }[name]
        given_ = draw(arguments)
        names.append(f"{name}{given_}")
        dataset = ours(dataset, *given_)
        try:
            rows = model(rows, *given_)
        except RaggedError:
            return dataset, None, names
        depth = 0 if name in FLAT else depth + (name in DEEPER) - (name == "unbatch")
        if len(rows) > 60:
            break
    return dataset, rows, names


def plain(dataset):
    return [np.asarray(x).tolist() for x in dataset]


@SETTINGS
@given(chains())
def test_a_chain_has_the_elements_of_the_model(chain):
    dataset, rows, names = chain
    note(" > ".join(names))
    if rows is None:
        with pytest.raises(InputError):
            plain(dataset)
        return
    assert plain(dataset) == rows
    assert plain(dataset) == rows, "in the second pass"
    assert dataset.cardinality() in (len(rows), -2)


@SETTINGS
@given(chains(), st.integers(0, 20), st.integers(0, 3))
def test_a_saved_position_continues_with_the_rest(chain, position, shuffled):
    dataset, rows, names = chain
    note(" > ".join([*names, f"shuffle {shuffled}", f"position {position}"]))
    if rows is None:
        return
    if shuffled:
        dataset = dataset.shuffle(shuffled).repeat(2)
    with dataset.iterator(seed=1) as first:
        begun = plain(islice(first, position))
        state = first.get_state()
        rest = plain(first)
    with dataset.iterator() as second:
        second.set_state(state)
        assert plain(second) == rest
    if not shuffled:
        assert begun + rest == rows
