"""A buffer is lent again only when nothing can reach its memory any more."""

import gc
import threading
import weakref

import numpy as np

from estimax.native.buffers import BufferPool, Scratch


def test_a_buffer_is_lent_again_once_nothing_refers_to_it():
    pool = BufferPool(np.uint8)
    first = pool.take(100)
    place = first.ctypes.data
    del first
    gc.collect()
    again = pool.take(100)
    assert again.ctypes.data == place
    assert (again.shape, again.dtype) == ((100,), np.uint8)
    assert again.flags.writeable


def test_a_buffer_in_use_is_never_lent():
    pool = BufferPool(np.int64)
    whole = pool.take(10)
    view = pool.take(10)[3:5].reshape(1, 2)
    exported = memoryview(pool.take(10))
    other_dtype = pool.take(10).view(np.uint8)[8:16]
    kept = [whole, view, np.asarray(exported), other_dtype, pool.take(10).T[::-1]]
    for array in kept:
        array[...] = 7
    for _ in range(20):
        other = pool.take(10)
        assert not any(np.shares_memory(other, array) for array in kept)
        other[:] = 0
    assert all((array == 7).all() for array in kept)


def test_a_local_variable_of_a_caller_keeps_its_buffer():
    # What an interpreter counts for a borrowed local differs by version (CPython 3.14).
    pool = BufferPool(np.uint8)

    def borrow(array):
        return not np.shares_memory(array, pool.take(len(array)))

    assert all(borrow(pool.take(50)) for _ in range(20))


def test_the_pool_may_go_before_its_buffers():
    pool = BufferPool(np.uint8)
    lent = pool.take(1000)
    lent[:] = 3
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert (lent == 3).all()


def test_another_size_is_another_buffer():
    pool = BufferPool(np.uint8)
    assert [len(pool.take(n)) for n in (5, 7, 5, 0)] == [5, 7, 5, 0]


def test_a_huge_buffer_is_not_kept():
    pool = BufferPool(np.uint8)
    found = weakref.ref(pool.take(17 << 20))
    gc.collect()
    assert found() is None


def test_threads_never_share_a_lent_buffer():
    pool = BufferPool(np.int64)
    wrong = []

    def work(number):
        for _ in range(500):
            mine = pool.take(64)
            mine[:] = number
            if (mine != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_scratch_is_kept_by_name_and_thread():
    scratch = Scratch()
    first = scratch.take("a", 10)
    assert np.shares_memory(first, scratch.take("a", 5))
    assert not np.shares_memory(first, scratch.take("b", 10))
    found = []
    thread = threading.Thread(target=lambda: found.append(scratch.take("a", 10)))
    thread.start()
    thread.join()
    assert not np.shares_memory(first, found[0])
