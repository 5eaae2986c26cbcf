import json
import logging

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import ChangedInputError, Dataset
from estimax.staging.resume import ResumableBatches


def numbers(count=10, *, batch=1):
    return lambda: Dataset.from_tensor_slices(np.arange(count)).batch(batch)


def read(batches, most=100):
    """Read up to `most` batches; return their first values and the position."""
    seen = []
    while len(seen) < most and (batch := next(batches, None)) is not None:
        seen.append(int(batch[0][0]))
    position = json.loads(json.dumps(batches.get_state()))
    batches.close()
    return seen, position


def test_a_call_after_a_normal_end_goes_round_and_stops_where_it_started():
    _, position = read(ResumableBatches(numbers()), 7)
    seen, position = read(ResumableBatches(numbers(), position, has_ended=True))
    assert seen == [7, 8, 9, 0, 1, 2, 3, 4, 5, 6]
    seen, _ = read(ResumableBatches(numbers(), position, has_ended=True))
    assert seen == [7, 8, 9, 0, 1, 2, 3, 4, 5, 6]


def test_a_call_after_all_data_was_read_makes_a_full_pass():
    _, position = read(ResumableBatches(numbers(3)))
    assert read(ResumableBatches(numbers(3), position, has_ended=True))[0] == [0, 1, 2]


def test_batches_of_several_rows_go_round_as_they_are():
    _, position = read(ResumableBatches(numbers(batch=4)), 1)
    seen, _ = read(ResumableBatches(numbers(batch=4), position, has_ended=True))
    assert seen == [4, 8, 0]


@pytest.mark.parametrize("at", range(1, 10))
def test_an_interrupted_round_resumes_to_its_own_end(at):
    _, began = read(ResumableBatches(numbers()), 7)
    before, position = read(ResumableBatches(numbers(), began, has_ended=True), at)
    after, _ = read(ResumableBatches(numbers(), position))
    assert before + after == [7, 8, 9, 0, 1, 2, 3, 4, 5, 6]


def test_the_second_time_round_is_shuffled_otherwise():
    def shuffled():
        return Dataset.from_tensor_slices(np.arange(50)).shuffle(50).batch(1)

    first, position = read(ResumableBatches(shuffled, seed=3))
    second, _ = read(ResumableBatches(shuffled, position, seed=3, has_ended=True))
    assert sorted(second) == sorted(first)
    assert second != first


def test_endless_data_continues_and_never_goes_round():
    def endless():
        return Dataset.from_tensor_slices(np.arange(3)).repeat().batch(1)

    _, position = read(ResumableBatches(endless), 4)
    seen, _ = read(ResumableBatches(endless, position, has_ended=True), 5)
    assert seen == [1, 2, 0, 1, 2]


def test_other_arrays_are_read_from_their_beginning(caplog):
    _, position = read(ResumableBatches(numbers(10)), 7)
    with caplog.at_level(logging.INFO, "estimax"):
        seen, _ = read(ResumableBatches(numbers(4), position, has_ended=True))
    assert seen == [0, 1, 2, 3]
    (record,) = caplog.records
    assert "the data starts from its beginning" in record.message
    assert "had 10 rows" in record.message
    assert "cannot resume" not in record.message  # nothing is wrong


def test_the_same_arrays_through_another_function_are_other_data(caplog):
    def kept(day):
        return lambda: numbers()().filter(lambda x: x[0] % 2 == day)

    _, position = read(ResumableBatches(kept(0)), 2)
    with caplog.at_level(logging.INFO, "estimax"):
        seen, _ = read(ResumableBatches(kept(1), position, has_ended=True))
    assert seen == [1, 3, 5, 7, 9]
    assert "the verbs of the dataset, or their arguments" in caplog.text


def test_a_changed_function_does_not_stop_an_interrupted_call():
    _, position = read(ResumableBatches(numbers(batch=2)), 2)
    assert read(ResumableBatches(numbers(batch=3), position))[0] == [4, 7]


def test_a_dataset_of_a_generator_starts_anew_after_a_normal_end():
    def generated():
        return Dataset.from_generator(lambda: iter(range(4))).batch(1)

    _, position = read(ResumableBatches(generated), 3)
    assert read(ResumableBatches(generated, position))[0] == [3]
    seen, _ = read(ResumableBatches(generated, position, has_ended=True))
    assert seen == [0, 1, 2, 3]


def test_what_happened_is_logged_in_one_line(caplog):
    _, position = read(ResumableBatches(numbers()), 7)
    with caplog.at_level(logging.INFO, "estimax"):
        ResumableBatches(numbers(), position, has_ended=True).close()
        ResumableBatches(numbers(), position).close()
    assert [record.message for record in caplog.records] == [
        "the data continues where the last call of train stopped",
        "the data continues where training was interrupted",
    ]


def test_refuse_raises_for_other_arguments_of_verbs():
    _, position = read(ResumableBatches(numbers(batch=2)), 2)
    with pytest.raises(InputError, match="arguments, have changed"):
        ResumableBatches(
            numbers(batch=5), position, has_ended=True, may_start_over=False
        )


def test_unchecked_continues_in_changed_data_after_a_normal_end():
    def changed():
        return Dataset.from_tensor_slices(np.arange(10) * 10).batch(1)

    _, position = read(ResumableBatches(numbers(10)), 7)
    with pytest.raises(ChangedInputError):
        ResumableBatches(changed, position)
    batches = ResumableBatches(changed, position, has_ended=True, is_checked=False)
    assert read(batches, 4)[0] == [70, 80, 90, 0]


def test_a_position_of_an_earlier_version_has_no_count_and_starts_anew():
    _, position = read(ResumableBatches(numbers()), 7)
    del position["call"]
    seen, later = read(ResumableBatches(numbers(), position))
    assert seen == [7, 8, 9]
    assert "call" not in later
    seen, _ = read(ResumableBatches(numbers(), position, has_ended=True))
    assert seen == list(range(10))
