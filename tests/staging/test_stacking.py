import itertools

import numpy as np
import pytest

import estimax as ex
from estimax.core.sparse import Sparse
from estimax.feature_columns.transforms import HashBucket, PadIds
from estimax.input.streams.background import Background
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack
from estimax.staging.stacking import stack_batches, stack_group
from estimax.staging.trace import HostCall, Origin

X = Origin("features", "x")
PLAN = plans.HostPlan(raw=(X,), calls=())
CITY = Origin("features", "city")
CITIES = plans.HostPlan(
    (), (HostCall("city", PadIds(HashBucket("city", 10)), (CITY,)),)
)


class Numbered:
    """Batches 0, 1, 2 … of `rows` rows, each after a pause; may fail in the end.

    The pause passes on a clock of its own, `now`, so that load changes nothing.
    """

    def __init__(self, count, *, pause=0.0, error=None):
        self._numbers = iter(range(count))
        self._pause = pause
        self._error = error
        self.now = 0.0

    def __iter__(self):
        return self

    def __next__(self):
        self.now += self._pause
        number = next(self._numbers, None)
        if number is None:
            raise self._error or StopIteration
        return batch_of(number), {"at": number}


def batch_of(number, rows=2):
    return {X: np.full((rows, 3), number, np.float32)}


def stacks_of(batches, length=8):
    """Stacks that are long enough for a whole group of batches."""
    return stack_batches(batches, PLAN, length=length, clock=lambda: batches.now)


def test_groups_grow_from_one_batch_to_their_full_length():
    sizes = [len(stack) for stack in stacks_of(Numbered(30))]
    assert sizes == [1, 2, 4, 8, 8, 7]


def test_a_slow_input_is_given_on_batch_by_batch():
    sizes = [len(stack) for stack in stacks_of(Numbered(4, pause=0.06))]
    assert sizes == [1, 1, 1, 1]


def test_groups_hold_no_more_than_the_input_gives_in_a_moment():
    sizes = [len(stack) for stack in stacks_of(Numbered(9, pause=0.02))]
    assert max(sizes) <= 2
    assert sum(sizes) == 9


def test_each_batch_keeps_its_own_position():
    stack = next(itertools.islice(stacks_of(Numbered(9)), 2, None))
    assert [position["at"] for position in stack.positions] == [3, 4, 5, 6]


def test_an_error_comes_after_the_batches_before_it():
    stacks = stacks_of(Numbered(2, error=OSError("the disk is gone")))
    ahead = Background(stacks, depth=1)  # as in a Feed
    assert [len(next(ahead)), len(next(ahead))] == [1, 1]
    for _ in range(2):  # every time: an error must not look like the end
        with pytest.raises(OSError, match="the disk is gone"):
            next(ahead)
    ahead.close()


def test_a_stack_holds_each_batch_as_it_would_be_alone():
    group = [(batch_of(number), number) for number in range(3)]
    (loop,) = stack_group(group, PLAN, length=8)
    assert (len(loop), list(loop.examples)) == (3, [2, 2, 2])
    for number, row in enumerate(loop.arrays.buffers["float32"][:3]):
        alone = pack(PLAN.prepare(batch_of(number)))
        assert np.array_equal(row, alone.buffers["float32"])
        assert loop.arrays.layout is alone.layout
    assert loop.arrays.buffers["float32"].shape == (8, 6)


def test_batches_of_other_sizes_do_not_share_a_stack():
    group = [(batch_of(n, rows), n) for n, rows in enumerate([2, 2, 1])]
    loops = list(stack_group(group, PLAN, length=4))
    assert [list(loop.examples) for loop in loops] == [[2, 2], [1]]
    assert [list(loop.positions) for loop in loops] == [[0, 1], [2]]


def test_ragged_batches_are_padded_to_their_own_longest_row():
    rows = [[["a"], ["b"]], [["a", "b", "c"], []]]
    group = [({CITY: Sparse.of_rows(r)}, n) for n, r in enumerate(rows)]
    widths = [
        loop.arrays.layout.places[0][2] for loop in stack_group(group, CITIES, length=4)
    ]
    assert widths == [(2, 1), (2, 4)]


def test_ids_are_made_unique_batch_by_batch():
    rows = plans.RowGroup("g", ("x",), 100)
    plan = plans.HostPlan((), (HostCall("x", Echo(), (X,)),), (rows,))
    batches = [{X: np.array(ids, np.int32)} for ids in ([[7], [3]], [[5], [5]])]
    joined = {X: np.concatenate([batch[X] for batch in batches])}
    together = plan.prepare(joined, count=2)
    apart = [plan.prepare(batch) for batch in batches]
    for part in ("unique", "inverse"):
        found = getattr(together, part)["g"]
        wanted = [getattr(one, part)["g"] for one in apart]
        if part == "inverse":
            found, wanted = found["x"], [one["x"] for one in wanted]
        assert np.array_equal(found, np.concatenate(wanted))


class Echo:
    """A host transform that hands on its feature."""

    name = "x"
    keys = ("x",)

    def __call__(self, raw):
        return raw["x"]


def test_as_many_batches_share_a_stack_as_pay():
    rows = {"small": 8, "medium": 120_000, "large": 240_000}
    shapes = {}
    for name, count in rows.items():
        group = [(batch_of(n, count), n) for n in range(9)]
        loops = list(stack_group(group, PLAN, length=None))
        (buffer,) = loops[0].arrays.buffers.values()
        shapes[name] = ([len(loop) for loop in loops], buffer.shape)
    assert shapes == {
        "small": ([9], (32, 24)),
        "medium": ([4, 4, 1], (4, 360_000)),
        "large": ([1] * 9, (720_000,)),  # no stack at all
    }


def test_a_stack_that_was_cut_holds_the_batches_in_their_order():
    group = [(batch_of(n), n) for n in range(3)]
    loops = list(stack_group(group, PLAN, length=2))
    found = [loop.arrays.buffers["float32"][: len(loop), 0].tolist() for loop in loops]
    assert found == [[0.0, 1.0], [2.0]]
    assert [list(loop.positions) for loop in loops] == [[0, 1], [2]]


def lengths(rows, length, extra=None):
    """How many batches each of the loops has that 16 batches are run by."""
    batches = ((batch_of(n, rows) | (extra or {}), n) for n in range(16))
    # A clock that stands still: the input is as fast as can be.
    loops = stack_batches(batches, PLAN, length=length, clock=lambda: 0.0)
    return [(len(loop), loop.capacity) for loop in loops]


def test_as_many_batches_are_read_together_as_a_stack_holds():
    assert lengths(300_000, None) == [(1, 1)] * 16  # too large for a stack
    assert lengths(300_000, 8) == [(1, 8), (2, 8), (4, 8), (8, 8), (1, 8)]
    assert lengths(120_000, None)[2:] == [(4, 4)] * 3 + [(1, 4)]


def test_what_no_model_asks_for_does_not_leave_stacks_half_empty():
    unused = {Origin("features", "unused"): np.zeros((120_000, 6))}
    assert lengths(120_000, None, unused) == lengths(120_000, None)


def test_raw_batches_that_are_read_together_have_a_limit():
    unused = {Origin("features", "unused"): np.zeros((120_000, 42))}  # 40 MB
    assert max(lengths(120_000, None, unused)) == (2, 4)


def test_ragged_batches_that_are_padded_alike_share_a_stack():
    rows = [[["a"], ["b"]], [["c"], []], [["a", "b"], ["b"]], [["d"], ["e"]]]
    group = [({CITY: Sparse.of_rows(r)}, n) for n, r in enumerate(rows)]
    loops = list(stack_group(group, CITIES, length=4))
    assert [list(loop.positions) for loop in loops] == [[0, 1], [2], [3]]
    for loop in loops:
        for place, at in enumerate(loop.positions):
            alone = pack(CITIES.prepare(group[at][0]))
            assert loop.arrays.layout is alone.layout
            for name, buffer in alone.buffers.items():
                assert np.array_equal(loop.arrays.buffers[name][place], buffer)


def test_an_error_in_a_ragged_batch_comes_after_those_before_it():
    plan = plans.HostPlan((X,), CITIES.calls)
    cities = Sparse.of_rows([["a"], ["b"]])
    numbers = [1, 2, 2**40]
    group = [({X: np.full(2, n), CITY: cities}, at) for at, n in enumerate(numbers)]
    loops = stack_group(group, plan, length=4)
    assert list(next(loops).positions) == [0, 1]
    with pytest.raises(ValueError, match="devices compute with 32-bit integers"):
        next(loops)


def test_a_bad_label_is_told_by_its_row_in_its_own_batch(tmp_path):
    labels = np.zeros(64, np.int64)
    labels[41] = 7
    rows = ex.input.Dataset.from_tensor_slices(({"x": np.zeros(64)}, labels))
    model = ex.DNNClassifier(
        [2], [ex.feature_columns.numeric_column("x")], model_dir=tmp_path
    )
    with pytest.raises(ValueError, match=r"row 1\b.*7|7.*row 1\b"):
        model.train(lambda: rows.batch(4))
