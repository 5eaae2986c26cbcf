import weakref

import numpy as np

from estimax.native.buffers import Recycled


def test_an_array_is_used_again_once_it_is_forgotten():
    buffers = Recycled(np.uint8)
    first = buffers.take(100)
    place = first.ctypes.data
    del first
    again = buffers.take(100)
    assert again.ctypes.data == place
    assert (again.shape, again.dtype) == ((100,), np.uint8)


def test_an_array_that_is_in_use_is_never_handed_out():
    buffers = Recycled(np.int64)
    whole = buffers.take(10)
    view = buffers.take(10)[3:5].reshape(1, 2)
    exported = memoryview(buffers.take(10))
    kept = [whole, view, np.asarray(exported)]
    for array in kept:
        array[...] = 7
    for _ in range(20):
        other = buffers.take(10)
        assert not any(np.shares_memory(other, array) for array in kept)
        other[:] = 0
    assert all((array == 7).all() for array in kept)


def test_another_size_is_another_array():
    buffers = Recycled(np.uint8)
    assert [len(buffers.take(n)) for n in (5, 7, 5, 0)] == [5, 7, 5, 0]


def test_a_huge_array_is_not_kept():
    buffers = Recycled(np.uint8)
    found = weakref.ref(buffers.take(17 << 20))
    assert found() is None
