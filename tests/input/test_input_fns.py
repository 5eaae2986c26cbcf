import numpy as np
import pandas as pd
import pytest
from golden_files import load_golden

from estimax.core.strings import Strings
from estimax.input import as_batches, numpy_input_fn, pandas_input_fn

FRAME = pd.DataFrame({"a": [1, 2, 3], "s": ["x", "y", "z"]}, index=[5, 6, 7])


def test_shuffle_must_be_given():
    with pytest.raises(ValueError, match="shuffle must be True"):
        numpy_input_fn(np.arange(3))
    with pytest.raises(ValueError, match="shuffle must be True"):
        pandas_input_fn(FRAME)


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        ({}, None, ValueError),
        (np.zeros(0), None, ValueError),
        ([1, 2], None, TypeError),
        ({"x": np.zeros(2)}, {}, ValueError),
        ({"x": np.zeros(2)}, {"x": np.zeros(2)}, ValueError),
        ({"x": np.zeros(2)}, np.zeros(3), ValueError),
    ],
)
def test_bad_arrays_are_refused_when_the_input_fn_is_called(x, y, error):
    input_fn = numpy_input_fn(x, y, shuffle=False)
    with pytest.raises(error):
        input_fn()


def test_shuffled_rows_appear_once_an_epoch_with_their_labels():
    x, y = np.arange(10), np.arange(10) * 10
    batches = list(numpy_input_fn(x, y, batch_size=4, num_epochs=3, shuffle=True)())
    assert [len(labels) for _, labels in batches] == [4] * 7 + [2]
    rows = np.concatenate([features for features, _ in batches])
    assert np.bincount(rows).tolist() == [3] * 10
    assert all((labels == features * 10).all() for features, labels in batches)


def test_a_frame_of_labels_becomes_a_dict():
    y = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}, index=FRAME.index)
    features, labels = next(iter(pandas_input_fn(FRAME, y, shuffle=False)()))
    assert labels["a"].tolist() == [1, 2, 3]
    assert list(features) == ["a", "s"]


def test_pandas_checks_run_at_construction():
    y = pd.Series([1, 2, 3])
    with pytest.raises(ValueError, match="must have the same index"):
        pandas_input_fn(FRAME, y, shuffle=False)
    y.index = FRAME.index
    with pytest.raises(ValueError, match="already has a column 's'"):
        pandas_input_fn(FRAME, y, shuffle=False, target_column="s")


def test_a_frame_changed_later_does_not_change_the_input():
    frame = FRAME.copy()
    input_fn = pandas_input_fn(frame, shuffle=False)
    frame["a"] = 0
    assert next(iter(input_fn()))["a"].tolist() == [1, 2, 3]


def array_of(golden):
    if "kind" not in golden:
        return {key: array_of(value) for key, value in golden.items()}
    dtype = object if golden["dtype"] == "string" else golden["dtype"]
    return np.array(golden["values"], dtype)


def assert_same(found, golden):
    if golden is None:
        assert found is None
    elif "kind" not in golden:
        assert set(found) == set(golden)
        for key in golden:
            assert_same(found[key], golden[key])
    else:
        is_text = isinstance(found, Strings)
        assert ("string" if is_text else str(found.dtype)) == golden["dtype"]
        assert list(found.shape) == golden["shape"]
        values = [v.decode() for v in found.tolist()] if is_text else found.tolist()
        assert values == golden["values"]


def assert_same_batches(input_fn, case):
    batches = as_batches(input_fn())
    for expected in case["batches"]:
        features, labels = next(batches)
        assert_same(features, expected["features"])
        assert_same(labels, expected["labels"])
    if case["ended"]:
        assert next(batches, None) is None


@pytest.mark.golden
def test_numpy_input_fn_gives_the_batches_of_tensorflow():
    cases = load_golden("data.json")["numpy_input_fn"]
    compared = 0
    for case in cases:
        y = None if case["y"] is None else array_of(case["y"])
        input_fn = numpy_input_fn(array_of(case["x"]), y, **case["args"])
        assert_same_batches(input_fn, case)
        compared += 1
    assert compared == len(cases) == 7


@pytest.mark.golden
def test_pandas_input_fn_gives_the_batches_of_tensorflow():
    cases = load_golden("data.json")["pandas_input_fn"]
    compared = 0
    for case in cases:
        x = pd.DataFrame(case["x"], index=case["index"])
        y = pd.Series(case["y"], index=case["index"])
        assert_same_batches(pandas_input_fn(x, y, **case["args"]), case)
        compared += 1
    assert compared == len(cases) == 2
