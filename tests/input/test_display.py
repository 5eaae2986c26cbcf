"""The text of a dataset: verbs, spec of elements, cardinality."""

import numpy as np

from estimax.input import Dataset


def test_the_representation_lists_the_verbs():
    data = Dataset.range(5).shuffle(2).batch(2)
    assert repr(data).splitlines() == [
        "<Dataset range > shuffle(buffer_size=2) > batch(batch_size=2)",
        " elements: int64 [B]",
        " cardinality: 3>",
    ]


def test_the_representation_shows_the_structure_of_elements():
    rows = {"x": np.zeros((4, 3), np.float32), "city": list("abcd"), "y": np.arange(4)}
    data = Dataset.from_tensor_slices(rows).with_label("y").repeat()
    assert repr(data).splitlines() == [
        "<Dataset from_tensor_slices > with_label > repeat",
        " elements: ({'x': float32 [3], 'city': string}, int64)",
        " cardinality: infinite>",
    ]


def test_the_representation_calls_no_function():
    data = Dataset.range(5).map(lambda x: 1 // 0).filter(lambda x: 1 // 0)
    assert repr(data) == "<Dataset range > map > filter>"


def test_the_representation_of_a_wide_dataset_is_short():
    wide = Dataset.from_tensor_slices({f"column_{i}": np.arange(2) for i in range(99)})
    for _ in range(99):
        wide = wide.shuffle(100)
    assert len(repr(wide).splitlines()) == 3
    assert len(repr(wide)) < 700


def test_the_representation_hides_arguments_of_internal_nodes():
    data = Dataset.range(3).flat_map(Dataset.range).map(len, num_parallel_calls=2)
    assert repr(data) == "<Dataset range > flat_map > map(num_parallel_calls=2)>"


def test_the_representation_of_a_wrong_label_does_not_raise():
    data = Dataset.from_tensor_slices({"x": np.arange(2)}).with_label("y")
    assert repr(data).startswith("<Dataset from_tensor_slices > with_label")
