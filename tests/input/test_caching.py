import gc

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.input import Dataset


def counted(seen, n=5):
    def look(x):
        seen.append(int(x))
        return x

    return Dataset.range(n).map(look)


def test_the_second_pass_reads_nothing():
    seen = []
    data = counted(seen).cache()
    assert [int(x) for x in data] == [int(x) for x in data] == [0, 1, 2, 3, 4]
    assert seen == [0, 1, 2, 3, 4]


def test_an_incomplete_pass_fills_no_cache():
    seen = []
    data = counted(seen).cache().take(2)
    assert len(list(data)) == len(list(data)) == 2
    assert seen == [0, 1, 0, 1]


def test_what_lies_before_is_frozen_and_what_follows_is_not():
    data = Dataset.range(50).shuffle(50).cache()
    epochs = np.concatenate(list(data.repeat(2).batch(50))).reshape(2, 50)
    assert epochs[0].tolist() == epochs[1].tolist() != sorted(epochs[0].tolist())
    epochs = np.concatenate(list(data.shuffle(50).repeat(2).batch(50))).reshape(2, 50)
    assert epochs[0].tolist() != epochs[1].tolist()


def mixed():
    sparse = Sparse(np.array([[0, 0], [2, 1]]), np.array([1.5, 2.5]), (3, 2))
    columns = {"x": np.arange(3, dtype=np.int32), "s": ["a", "", "cc"], "many": sparse}
    return Dataset.from_tensor_slices((columns, None, np.ones((3, 2, 2))))


@pytest.mark.parametrize("batched", [False, True])
def test_a_file_gives_back_every_kind_of_column(tmp_path, batched):
    prefix = tmp_path / "new" / "cache"
    data = mixed().batch(2) if batched else mixed()
    list(data.cache(prefix))
    empty = Dataset.from_tensor_slices(np.zeros(0))  # what a later run need not read
    found = list(empty.cache(prefix).batch(3) if not batched else empty.cache(prefix))
    features, none, ones = found[0]
    assert features["x"].dtype == np.int32
    assert features["s"].tolist()[:2] == [b"a", b""]
    assert features["many"].values.tolist()[0] == 1.5
    assert none is None
    assert ones.shape[1:] == (2, 2)


def test_an_abandoned_pass_leaves_no_file(tmp_path):
    iterator = iter(Dataset.range(9).cache(tmp_path / "c"))
    next(iterator)
    iterator.close()
    assert list(tmp_path.iterdir()) == []
    forgotten = iter(Dataset.range(9).cache(tmp_path / "c"))
    next(forgotten)
    del forgotten
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_cut_cache_is_named(tmp_path):
    list(Dataset.range(9).cache(tmp_path / "c"))
    (tmp_path / "c.data").write_bytes(b"")
    with pytest.raises(InputError, match=r"c\.data: .* expected 72 bytes, found 0"):
        list(Dataset.range(9).cache(tmp_path / "c"))


def test_a_resumed_run_without_the_memory_goes_on_in_the_same_order():
    def make():
        return Dataset.range(30).shuffle(30).cache().repeat(3).batch(7)

    iterator = make().iterator(seed=3)
    batches = [next(iterator) for _ in range(7)]  # in the second epoch
    state = iterator.get_state()
    rest = [batch.tolist() for batch in iterator]
    resumed = iter(make())
    resumed.set_state(state)
    assert [batch.tolist() for batch in resumed] == rest
    assert len(batches) + len(rest) == 13
