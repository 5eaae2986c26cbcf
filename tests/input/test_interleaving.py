import numpy as np
import pytest
from golden_files import load_golden

from estimax.core.errors import InputError
from estimax.input import AUTOTUNE, Dataset


def interleaved(lengths, **kwargs):
    """Input i is a dataset of lengths[i] elements with values 100 * i + position."""
    inputs = Dataset.from_tensor_slices(np.array(lengths)).enumerate()

    def inner(i, length):
        return Dataset.range(100 * i, 100 * i + length)

    return inputs.interleave(inner, **kwargs)


@pytest.mark.golden
@pytest.mark.parametrize("threads", [None, 1, AUTOTUNE])
def test_elements_come_in_tensorflows_order(threads):
    cases = load_golden("data.json")["interleave"]["cases"]
    for case in cases:
        data = interleaved(
            case["lengths"],
            cycle_length=case["cycle_length"],
            block_length=case["block_length"],
            num_parallel_calls=threads,
        )
        with iter(data) as iterator:
            assert [int(x) for x in iterator] == case["output"], case["name"]
        with iter(data.batch(1000)) as iterator:  # many at once: the same order
            assert next(iterator).tolist() == case["output"], case["name"]
    assert len(cases) == 36


def test_whole_rounds_are_gathered_like_single_blocks():
    lengths = [2500, 3000, 1, 2700]
    for block in (1, 3, 700):
        data = interleaved(lengths, cycle_length=3, block_length=block)
        one_by_one = [int(x) for x in data]
        many = np.concatenate(list(data.batch(997))).tolist()
        assert many == one_by_one
        assert sorted(many) == sorted(
            100 * i + k for i, n in enumerate(lengths) for k in range(n)
        )


def test_shuffles_of_inner_datasets_differ_from_each_other():
    data = Dataset.range(2).flat_map(lambda i: Dataset.range(50).shuffle(50, seed=1))
    rows = np.concatenate(list(data.batch(50))).reshape(2, 50)
    assert rows[0].tolist() != rows[1].tolist()
    assert sorted(rows[0]) == sorted(rows[1])


def test_more_threads_than_slots_are_refused():
    with pytest.raises(InputError, match=r"num_parallel_calls \(3\) must not be"):
        interleaved([1], cycle_length=2, num_parallel_calls=3)


def test_a_function_that_makes_no_dataset_is_named():
    with pytest.raises(InputError, match="flat_map: the function must return a Data"):
        next(iter(Dataset.range(1).flat_map(lambda x: x)))


def test_another_number_of_slots_is_refused_when_resuming():
    iterator = iter(interleaved([2, 2], cycle_length=2))
    next(iterator)
    other = iter(interleaved([2, 2], cycle_length=3))
    with pytest.raises(InputError, match="had 2 slots when the position was saved"):
        other.set_state(iterator.get_state())
