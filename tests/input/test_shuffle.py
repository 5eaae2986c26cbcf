import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import Dataset, csv_files
from estimax.input.ops.shuffle import permutation


def order(data, **kwargs):
    return [int(x) for x in data.iterator(**kwargs)]


@pytest.mark.parametrize("size", [1, 2, 7, 20, 100])
def test_position_p_only_holds_elements_below_p_plus_buffer_size(size):
    output = order(Dataset.range(50).shuffle(size, seed=3))
    assert sorted(output) == list(range(50))
    assert all(x < p + size for p, x in enumerate(output))


def test_a_seed_fixes_the_sequence_of_orders():
    def orders():
        data = Dataset.range(30).shuffle(30, seed=4)
        return [order(data), order(data)]

    first, second = orders()
    assert first != second
    assert orders() == [first, second]


def test_every_epoch_of_a_repeat_has_its_own_order():
    output = order(Dataset.range(30).shuffle(30, seed=4).repeat(2))
    assert sorted(output[:30]) == sorted(output[30:]) == list(range(30))
    assert output[:30] != output[30:]


def test_repeat_before_shuffle_mixes_epochs():
    output = order(Dataset.range(10).repeat(3).shuffle(30, seed=4))
    assert sorted(output[:10]) != list(range(10))


def test_without_reshuffling_all_passes_are_alike():
    data = Dataset.range(30).shuffle(30, seed=4, reshuffle_each_iteration=False)
    output = order(data.repeat(2))
    assert output[:30] == output[30:] == order(data) != list(range(30))


def test_one_order_splits_data_without_overlap_even_without_a_seed():
    data = Dataset.range(30).shuffle(30, reshuffle_each_iteration=False)
    train, held_out = order(data.skip(10)), order(data.take(10))
    assert sorted(train + held_out) == list(range(30))


def test_without_a_seed_iterators_differ_unless_they_are_given_one():
    def fresh():
        return Dataset.range(50).shuffle(50)

    assert order(fresh()) != order(fresh())
    assert order(fresh(), seed=9) == order(fresh(), seed=9)


def test_two_unseeded_shuffles_of_one_run_do_not_share_an_order():
    twice = order(Dataset.range(50).shuffle(50).shuffle(50), seed=9)
    once = permutation(50, "run", 9, 0, (0,), 0)
    assert twice != once[once].tolist()


def test_a_permutation_never_changes():
    # Written down once: a checkpoint must resume under any later version.
    frozen = [7, 2, 1, 5, 0, 4, 6, 3]
    assert permutation(8, "seed", 7, (0,), 0).tolist() == frozen


def test_permutations_are_uniform():
    counts = np.zeros((4, 4), int)
    for key in range(4000):
        for place, value in enumerate(permutation(4, key)):
            counts[place, value] += 1
    assert abs(counts - 1000).max() < 150


def test_large_windows_are_permuted_whatever_the_batch_size_and_position():
    expected = permutation(50_000, "seed", 3, (0,), 0).tolist()
    iterator = iter(Dataset.range(50_000).shuffle(50_000, seed=3).batch(7_001))
    found = [next(iterator) for _ in range(4)]
    resumed = iter(Dataset.range(50_000).shuffle(50_000, seed=3).batch(20_000))
    resumed.set_state(iterator.get_state())
    assert np.concatenate([*found, *resumed]).tolist() == expected


def test_batches_can_be_shuffled_too():
    data = Dataset.range(10).batch(3).shuffle(10, seed=1)
    batches = sorted(batch.tolist() for batch in data)
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_another_buffer_size_or_seed_is_refused_on_resume():
    state = iter(Dataset.range(9).shuffle(3, seed=1)).get_state()
    with pytest.raises(InputError, match=r"buffer_size was 3 .* and is 4 now"):
        iter(Dataset.range(9).shuffle(4, seed=1)).set_state(state)
    with pytest.raises(InputError, match=r"seed was 1 .* and is 2 now"):
        iter(Dataset.range(9).shuffle(3, seed=2)).set_state(state)


def test_a_buffer_holds_at_least_one_element():
    with pytest.raises(InputError, match="buffer_size must be at least 1, got 0"):
        Dataset.range(9).shuffle(0)


def test_data_mended_after_an_error_goes_on_as_if_it_had_never_been_broken(tmp_path):
    path = tmp_path / "a.csv"
    lines = ["x", *map(str, range(40))]

    def rows(broken):
        text = [*lines[:30], "many", *lines[31:]] if broken else lines
        path.write_text("\n".join(text) + "\n")
        data = csv_files(path, dtypes={"x": "int64"}).shuffle(16, seed=1).batch(3)
        return iter(data)

    wanted = [batch["x"].tolist() for batch in rows(broken=False)]
    reader, given, states = rows(broken=True), [], []

    def read_all():
        for batch in reader:
            given.append(batch["x"].tolist())
            states.append(reader.get_state())

    with pytest.raises(InputError, match="line 31"):
        read_all()
    assert 0 < len(given) < len(wanted)
    assert given == wanted[: len(given)]
    again = rows(broken=False)
    del states[-1]["data"]  # it has changed, and is meant to have
    again.set_state(states[-1])
    assert [batch["x"].tolist() for batch in again] == wanted[len(given) :]
