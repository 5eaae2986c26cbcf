import threading
import time

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input import AUTOTUNE, Dataset, Options, experimental
from estimax.input.streams.columns import take_rows


def numbers(dataset):
    return [int(x) for x in dataset]


def test_a_zip_ends_with_the_shortest_and_keeps_its_structure():
    data = Dataset.zip({"a": Dataset.range(3), "b": (Dataset.range(9).batch(2),)})
    found = [(int(e["a"]), e["b"][0].tolist()) for e in data]
    assert found == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])]


def test_concatenated_datasets_must_be_alike():
    data = Dataset.range(2).concatenate(Dataset.from_tensor_slices([0.5]))
    with pytest.raises(
        TypeError, match=r"first has int of int64, the second .* float64"
    ):
        list(data)


def test_weights_decide_how_often_a_dataset_is_drawn():
    parts = [Dataset.from_tensors(np.int64(i)).repeat() for i in range(3)]
    data = Dataset.sample_from_datasets(parts, [0.6, 0.0, 0.4], seed=1)
    counts = np.bincount(next(iter(data.batch(5000))), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] / 5000 - 0.6) < 0.03


def test_sampling_may_stop_with_the_first_empty_dataset():
    parts = [Dataset.range(3), Dataset.range(1000)]
    stopped = Dataset.sample_from_datasets(parts, seed=1, stop_on_empty_dataset=True)
    whole = Dataset.sample_from_datasets(parts, seed=1)
    assert len(numbers(stopped)) < 100
    assert len(numbers(whole)) == 1003


def test_a_choice_of_no_dataset_is_refused():
    choice = Dataset.from_tensor_slices([0, 2])
    data = Dataset.choose_from_datasets([Dataset.range(3)] * 2, choice)
    with pytest.raises(InputError, match="numbers from 0 to 1"):
        list(data)


def test_choosing_skips_ended_datasets_unless_told_to_stop():
    parts, choice = [Dataset.range(1), Dataset.range(10, 19)], [0, 0, 1, 0, 1]
    chosen = Dataset.from_tensor_slices(choice)
    assert numbers(Dataset.choose_from_datasets(parts, chosen)) == [0]
    going_on = Dataset.choose_from_datasets(parts, chosen, stop_on_empty_dataset=False)
    assert numbers(going_on) == [0, 10, 11]


def test_windows_of_dicts_are_dicts_of_datasets():
    data = Dataset.from_tensor_slices({"x": np.arange(4), "s": list("abcd")})
    first = next(iter(data.window(3)))
    assert numbers(first["x"]) == [0, 1, 2]
    assert list(first["s"]) == [b"a", b"b", b"c"]


def test_windows_may_leave_gaps_and_have_strides():
    data = Dataset.range(12).window(2, shift=5, stride=2, drop_remainder=True)
    assert [numbers(window) for window in data] == [[0, 2], [5, 7]]


def test_map_in_threads_keeps_the_order_and_overlaps():
    pairs = threading.Barrier(2, timeout=60)  # one call alone would wait for ever

    def meet(x):
        pairs.wait()
        time.sleep(0.002 * (3 - int(x[0]) % 4))  # later ones may be done earlier
        return x

    data = Dataset.range(16).batch(1).map(meet, num_parallel_calls=8)
    assert [int(x[0]) for x in data] == list(range(16))


def test_autotune_is_taken_for_every_number_of_threads():
    data = Dataset.range(4).map(lambda x: x + 1, AUTOTUNE, deterministic=False)
    data = data.interleave(
        lambda x: Dataset.from_tensors(x), AUTOTUNE, AUTOTUNE, AUTOTUNE, False
    )
    assert sorted(numbers(data.prefetch(AUTOTUNE))) == [1, 2, 3, 4]


def test_an_error_in_a_thread_names_what_failed():
    data = Dataset.range(4).batch(1).map(lambda x: 1 // int(x[0]), 2)
    with pytest.raises(ZeroDivisionError):
        list(data)


@pytest.mark.parametrize("initial", [None, [0.5, 0.5]])
def test_resampling_gives_the_target_shares(initial):
    data = Dataset.range(20_000).rejection_resample(
        lambda x: int(x) % 2, [0.8, 0.2], initial, seed=1
    )
    classes = [int(c) for c, _ in data]
    assert abs(np.mean(classes) - 0.2) < 0.02


def test_unique_wants_single_values():
    with pytest.raises(InputError, match="single numbers or strings"):
        list(Dataset.range(4).batch(2).unique())


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (Dataset.range(10).shuffle(3).map(abs).prefetch(1), 10),
        (Dataset.range(10).repeat(), experimental.INFINITE_CARDINALITY),
        (Dataset.range(0).repeat(), 0),
        (Dataset.range(10).repeat().take(7), 7),
        (Dataset.range(10).skip(3).shard(3, 1), 2),
        (Dataset.range(10).batch(3, drop_remainder=True), 3),
        (Dataset.range(10).window(4, shift=3), 4),
        (Dataset.range(10).window(4, shift=3, drop_remainder=True), 3),
        (Dataset.range(10).filter(bool), experimental.UNKNOWN_CARDINALITY),
        (Dataset.zip(Dataset.range(3), Dataset.range(9).repeat()), 3),
        (Dataset.range(3).concatenate(Dataset.range(4)), 7),
        (Dataset.from_tensors(1), 1),
    ],
)
def test_the_number_of_elements_is_known_where_it_can_be(data, count):
    assert data.cardinality() == count
    if count >= 0:
        assert len(data) == len(list(data)) == count


def test_a_dataset_without_a_length_is_still_true():
    data = Dataset.range(3).filter(bool)
    assert data
    with pytest.raises(TypeError, match="is unknown"):
        len(data)


def test_options_stay_with_the_dataset_and_change_nothing():
    options = Options()
    options.deterministic = False
    options.experimental_optimization.map_fusion = True
    data = Dataset.range(4).with_options(options).batch(2)
    assert data.options().experimental_optimization.map_fusion
    assert data.options().experimental_optimization.noop_elimination is None
    assert repr(data).startswith("<Dataset range > batch(batch_size=2)")


def test_a_profile_names_the_slowest_stage():
    data = Dataset.range(1000).batch(10).map(lambda x: time.sleep(0.002) or x)
    profile = data.prefetch(2).profile(20)
    assert profile.slowest == "map"
    assert "slowest: map; 20 elements" in str(profile)
    assert str(profile).splitlines()[1].startswith("range")
    assert "(wait)" in str(profile)


def test_a_profile_may_end_before_the_elements_do():
    data = Dataset.range(100).map(lambda x: time.sleep(0.01) or x)
    assert data.profile(100, seconds=0.05).stages[-1].elements < 20


def test_many_strings_are_gathered_like_few():
    draw = np.random.default_rng(1)
    values = [
        bytes(draw.integers(0, 256, n, np.uint8)) for n in draw.integers(0, 30, 6000)
    ]
    column = Strings.of(values)[100:5900]
    index = draw.permutation(5800)
    expected = [values[100 + i] for i in index.tolist()]
    assert take_rows(column, index).tolist() == expected


def test_rows_out_of_range_are_never_gathered():
    column = Strings.of([b"a"] * 10)
    with pytest.raises(IndexError):
        take_rows(column, np.full(5000, 10))


def test_map_and_batch_and_shuffle_and_repeat_are_applied():
    data = Dataset.range(4).apply(experimental.shuffle_and_repeat(4, 2, seed=1))
    data = data.apply(experimental.map_and_batch(lambda x: x * 2, 4))
    epochs = [sorted(batch.tolist()) for batch in data]
    assert epochs == [[0, 2, 4, 6], [0, 2, 4, 6]]


def test_reducing_folds_all_elements():
    data = Dataset.from_tensor_slices(np.arange(5.0))
    assert data.reduce(0.0, lambda total, x: total + x) == 10
