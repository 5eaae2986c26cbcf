import json
import zlib
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input import Dataset, csv_files


def plain(value):
    """A structure as nested lists, to compare with ==."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, Sparse):
        return [value.indices.tolist(), plain(value.values), list(value.dense_shape)]
    if isinstance(value, Strings):
        return np.asarray(value).tolist()
    return np.asarray(value).tolist()


def sparse_column():
    indices = np.array([[0, 0], [1, 0], [1, 1], [3, 0], [6, 0], [6, 2]])
    return Sparse(indices, np.array([1, 2, 3, 4, 5, 6]), (7, 3))


def mixed():
    """Seven rows of every kind of column."""
    return Dataset.from_tensor_slices(
        (
            {
                "number": np.arange(7, dtype=np.float32),
                "matrix": np.arange(14).reshape(7, 2),
                "text": ["a", "bb", "", "dddd", "é", "f", "g"],
                "many": sparse_column(),
            },
            np.arange(7) * 10,
        )
    )


def generated():
    return Dataset.from_generator(lambda: ({"x": i, "s": str(i)} for i in range(7)))


def from_csv(folder):
    for part in range(3):
        rows = "".join(f"{i},c{i}\n" for i in range(part * 5, part * 5 + 5))
        (folder / f"part-{part}.csv").write_text(f"id,name\n{rows}")
    return csv_files(folder / "part-*.csv", block_bytes=10)


def _keeps(*row):
    return zlib.crc32(str(row).encode()) % 3


PIPELINES = {
    "rows": lambda data: data,
    "batch": lambda data: data.batch(3),
    "repeat batch": lambda data: data.repeat(3).batch(4),
    "batch repeat": lambda data: data.batch(4).repeat(3),
    "shuffle": lambda data: data.shuffle(3, seed=5),
    "train": lambda data: data.shuffle(3).repeat(3).batch(4, drop_remainder=True),
    "full shuffle": lambda data: data.shuffle(100, seed=1).repeat(2).batch(2),
    "two shuffles": lambda data: data.shuffle(4).batch(2).shuffle(2).repeat(2),
    "one order": lambda data: data.shuffle(4, None, False).repeat(2).batch(2),
    "nested repeats": lambda data: data.shuffle(4).repeat(2).take(9).repeat(2),
    "take skip": lambda data: data.skip(1).take(5).repeat(2).batch(2),
    "shard": lambda data: data.shard(3, 1).repeat(2).batch(2),
    "filter": lambda data: data.filter(
        lambda *row: zlib.crc32(str(row).encode()) % 3
    ).repeat(2),
    "prefetch rows": lambda data: data.prefetch(3).repeat(2).batch(2),
    "prefetch": lambda data: data.shuffle(4).repeat(2).batch(2).prefetch(3),
    "map": lambda data: data.batch(2).map(lambda *parts: parts[-1]).prefetch(1),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("source", ["mixed", "generated", "from_csv"])
def test_every_position_resumes_with_the_exact_remainder(source, pipeline, tmp_path):
    make = {
        "mixed": mixed,
        "generated": generated,
        "from_csv": lambda: from_csv(tmp_path),
    }[source]
    dataset = PIPELINES[pipeline](make())
    iterator = dataset.iterator(seed=11)
    states, elements = [iterator.get_state()], []
    for element in iterator:
        elements.append(plain(element))
        states.append(iterator.get_state())
    assert len(elements) > 1
    for k, state in enumerate(states):
        resumed = iter(PIPELINES[pipeline](make()))
        resumed.set_state(json.loads(json.dumps(state)))
        if k % 2:  # a position asked for before anything is read is as good
            resumed.set_state(resumed.get_state())
        assert [plain(element) for element in resumed] == elements[k:]
        resumed.close()


def test_a_position_is_small():
    data = mixed().shuffle(5).repeat().batch(2).prefetch(2)
    with iter(data) as iterator:
        for _ in range(50):
            next(iterator)
        assert len(json.dumps(iterator.get_state())) < 600


def test_an_iterator_can_go_back_to_an_earlier_position():
    iterator = iter(Dataset.range(20).shuffle(7).batch(3).prefetch(2))
    next(iterator)
    state = iterator.get_state()
    after = [plain(batch) for batch in iterator]
    iterator.set_state(state)
    assert [plain(batch) for batch in iterator] == after


def test_the_batch_size_may_change_when_resuming():
    iterator = iter(Dataset.range(10).batch(4))
    next(iterator)
    resumed = iter(Dataset.range(10).batch(3))
    resumed.set_state(iterator.get_state())
    assert [plain(batch) for batch in resumed] == [[4, 5, 6], [7, 8, 9]]


def test_a_position_of_another_pipeline_is_refused():
    state = iter(Dataset.range(10).batch(4)).get_state()
    words = "range > batch and this dataset is .* > repeat > batch"
    with pytest.raises(InputError, match=words):
        iter(Dataset.range(10).repeat().batch(4)).set_state(state)


def test_a_position_of_data_with_another_number_of_rows_is_refused():
    state = iter(Dataset.range(10)).get_state()
    with pytest.raises(InputError, match=r"rows in memory was 10 .* and is 11 now"):
        iter(Dataset.range(11)).set_state(state)


def test_resuming_in_memory_reads_no_row_twice():
    seen = []
    data = Dataset.range(1000).map_blocks(lambda x: seen.append(len(x)) or x).batch(10)
    iterator = iter(data)
    for _ in range(90):
        next(iterator)
    state = iterator.get_state()
    seen.clear()
    resumed = iter(data)
    resumed.set_state(state)
    next(resumed)
    assert sum(seen) == 10


def test_a_dataset_can_be_gone_through_again():
    data = Dataset.range(4).batch(3)
    assert [plain(b) for b in data] == [plain(b) for b in data] == [[0, 1, 2], [3]]


def test_two_iterators_of_one_dataset_do_not_disturb_each_other():
    data = Dataset.range(6).batch(2)
    one, two = iter(data), iter(data)
    assert plain(next(one)) == plain(next(two)) == [0, 1]
    assert plain(next(one)) == [2, 3]


def test_unbatched_elements_have_no_row_dimension():
    features, label = next(iter(mixed()))
    assert features["text"] == b"a"
    assert features["matrix"].shape == (2,)
    assert features["many"].dense_shape == (3,)
    assert label == 0


def test_sparse_rows_batch_back_to_rank_two():
    batches = [features["many"] for features, _ in mixed().skip(1).batch(3)]
    assert plain(batches[0]) == [[[0, 0], [0, 1], [2, 0]], [2, 3, 4], [3, 3]]
    assert plain(batches[1]) == [[[2, 0], [2, 2]], [5, 6], [3, 3]]


def test_a_tuple_is_structure_and_a_list_an_array():
    assert plain(next(iter(Dataset.from_tensor_slices(([1, 2], [3, 4]))))) == [1, 3]
    assert plain(next(iter(Dataset.from_tensor_slices([[1, 2], [3, 4]])))) == [1, 2]


def test_named_tuples_and_none_survive():
    pair = namedtuple("pair", "x y")
    batch = next(iter(Dataset.from_tensor_slices(pair([1, 2], None)).batch(2)))
    assert type(batch).__name__ == "pair"
    assert plain(batch.x) == [1, 2]
    assert batch.y is None


def test_pandas_frames_become_dicts_of_columns():
    frame = pd.DataFrame({"n": [1, 2, 3], "s": ["a", "b", "c"]})
    batch = next(iter(Dataset.from_tensor_slices((frame, frame["n"])).batch(2)))
    assert plain(batch) == [{"n": [1, 2], "s": [b"a", b"b"]}, [1, 2]]


def test_columns_of_different_lengths_are_named():
    with pytest.raises(InputError, match=r"\['x'\]: 2, \['y'\]: 3"):
        Dataset.from_tensor_slices({"x": [1, 2], "y": [1, 2, 3]})


def test_a_scalar_cannot_be_sliced():
    with pytest.raises(InputError, match=r"\['y'\]: a scalar has no rows"):
        Dataset.from_tensor_slices({"x": [1], "y": 3.0})


def test_objects_that_are_not_text_are_refused_by_name():
    frame = pd.DataFrame({"s": np.array(["a", 1.5], dtype=object)})
    with pytest.raises(InputError, match=r"\['s'\]: dtype object may hold only text"):
        Dataset.from_tensor_slices(frame)


def test_batches_cannot_write_into_the_callers_arrays():
    batch = next(iter(Dataset.from_tensor_slices(np.zeros(3)).batch(2)))
    with pytest.raises(ValueError, match="read-only"):
        batch += 1


def test_the_label_is_split_off_before_and_after_batch():
    data = Dataset.from_tensor_slices({"x": [1, 2], "y": [3, 4]})
    expected = [{"x": [1, 2]}, [3, 4]]
    assert plain(next(iter(data.with_label("y").batch(2)))) == expected
    assert plain(next(iter(data.batch(2).with_label("y")))) == expected


def test_a_missing_label_names_its_neighbour():
    data = Dataset.from_tensor_slices({"income": [1]}).with_label("incom")
    with pytest.raises(InputError, match="no column 'incom'; did you mean 'income'"):
        next(iter(data))


def test_with_label_twice_says_that_elements_are_pairs():
    data = Dataset.from_tensor_slices({"x": [1], "y": [1]}).with_label("y")
    with pytest.raises(InputError, match=r"needs dict elements, got \(\{'x'\}"):
        next(iter(data.with_label("x")))


def test_a_closed_iterator_ends():
    iterator = iter(Dataset.range(5))
    next(iterator)
    iterator.close()
    assert list(iterator) == []


def test_records_that_end_with_zeros_are_elements():
    records = [b"\n\0", b"x", b"\0"]
    assert list(Dataset.from_tensor_slices(records)) == records
    assert list(Dataset.from_tensor_slices({"x": records}))[2] == {"x": b"\0"}
    assert next(iter(Dataset.from_tensors(records))).tolist() == records
    (batch,) = Dataset.from_generator(lambda: iter(records)).batch(3)
    assert batch.tolist() == records
