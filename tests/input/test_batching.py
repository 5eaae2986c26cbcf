import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input import Dataset, TensorSpec


def test_map_before_batch_gets_one_example():
    data = Dataset.from_tensor_slices({"x": [1, 2, 3]})
    mapped = data.map(lambda row: row["x"] + 1).batch(3)
    assert next(iter(mapped)).tolist() == [2, 3, 4]


def test_map_after_batch_gets_a_batch_with_tuples_spread():
    data = Dataset.from_tensor_slices(([1, 2], [3, 4])).batch(2)
    assert next(iter(data.map(lambda x, y: x + y))).tolist() == [4, 6]


def test_a_list_returned_from_map_counts_as_a_tuple():
    batch = next(iter(Dataset.range(2).batch(2).map(lambda x: [x, x])))
    assert isinstance(batch, tuple)


def test_text_returned_from_map_becomes_strings():
    mapped = Dataset.range(2).batch(2).map(lambda x: {"s": x.astype(str)})
    assert isinstance(next(iter(mapped))["s"], Strings)


def test_map_blocks_must_keep_the_number_of_rows():
    data = Dataset.range(10).map_blocks(lambda x: x[:3]).batch(5)
    with pytest.raises(InputError, match="got 5 rows and returned 3"):
        next(iter(data))


def test_generated_text_and_numbers_batch_to_columns():
    rows = [{"s": "a", "n": 1}, {"s": b"b", "n": 2}]
    batch = next(iter(Dataset.from_generator(lambda: rows).batch(2)))
    assert batch["s"].tolist() == [b"a", b"b"]
    assert batch["n"].tolist() == [1, 2]


def test_elements_of_different_shapes_do_not_batch():
    data = Dataset.from_generator(lambda: [np.zeros(2), np.zeros(3)]).batch(2)
    with pytest.raises(InputError, match=r"different shapes \[\(2,\), \(3,\)\]"):
        next(iter(data))


def test_elements_of_different_structures_do_not_batch():
    data = Dataset.from_generator(lambda: [{"a": 1}, {"b": 1}]).batch(2)
    with pytest.raises(InputError, match=r"{'a'} and {'b'}"):
        next(iter(data))


def test_batches_of_batches_stack():
    batch = next(iter(Dataset.range(6).batch(3).batch(2)))
    assert batch.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_filter_may_drop_whole_blocks():
    data = Dataset.range(10_000).filter_blocks(lambda x: x == 9_999).batch(2)
    assert [batch.tolist() for batch in data] == [[9_999]]


def test_filter_blocks_needs_a_mask_of_bools():
    data = Dataset.range(10).filter_blocks(lambda x: x[:2]).batch(5)
    with pytest.raises(InputError, match=r"bool array \[5\], got int64 \[2\]"):
        next(iter(data))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda data: data.batch(0), "batch size must be at least 1"),
        (lambda data: data.shard(2, 2), r"index must be in \[0, 2\)"),
        (lambda data: data.shard(0, 0), "num_shards must be at least 1"),
        (lambda data: data.take(-2), "count must be at least -1"),
        (lambda data: data.repeat(-2), "count must be at least -1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_at_once(make, words):
    with pytest.raises(InputError, match=words):
        make(Dataset.range(3))


def test_from_generator_wants_the_function_itself():
    with pytest.raises(InputError, match="pass `f`, not"):
        Dataset.from_generator(iter([1, 2]))


def test_a_generator_is_made_anew_for_every_pass():
    data = Dataset.from_generator(lambda: iter([1, 2])).repeat(2).batch(4)
    assert next(iter(data)).tolist() == [1, 2, 1, 2]


def test_a_one_shot_iterator_of_batches_is_refused_the_second_time():
    data = Dataset.from_batches(iter([np.zeros(2)]))
    assert len(list(data)) == 1
    with pytest.raises(InputError, match=r"only once.*Pass a function"):
        next(iter(data))


def test_a_list_of_batches_resumes_by_index():
    class Batches:
        read = 0

        def __len__(self):
            return 100

        def __getitem__(self, i):
            Batches.read += 1
            return np.full(2, i)

        def __iter__(self):
            raise AssertionError("not needed")

    iterator = iter(Dataset.from_batches(Batches()))
    iterator.set_state({**iterator.get_state(), "position": {"batches": 90}})
    assert next(iterator).tolist() == [90, 90]
    assert Batches.read == 1


def test_take_does_not_touch_its_source_beyond_what_it_gives():
    def numbers():
        yield from range(3)
        raise AssertionError("too far")

    assert len(list(Dataset.from_generator(numbers).take(3))) == 3


def test_an_empty_list_of_a_generator_has_the_dtype_of_its_signature():
    signature = {"n": TensorSpec([None], "int64"), "s": TensorSpec([None], "string")}
    data = Dataset.from_generator(
        lambda: [{"n": [], "s": []}, {"n": [1], "s": ["a"]}], output_signature=signature
    )
    (batch,) = data.padded_batch(2)
    assert batch["n"].dtype == np.int64
    assert batch["s"].tolist() == [b"", b"a"]
