"""Receivers: which raw features a request carries."""

import numpy as np
import pytest

from estimax import export
from estimax.core.errors import SpecError
from estimax.core.strings import Strings
from estimax.staging.trace import Origin


def test_raw_features_keep_their_names_dtypes_and_rows():
    features = {"age": np.array([31.0], np.float32), "city": ["Oslo"]}
    receiver = export.build_raw_serving_input_receiver_fn(features)()
    example = receiver.example()
    assert example[Origin("features", "age")].dtype == np.float32
    assert isinstance(example[Origin("features", "city")], Strings)


def test_a_lone_array_is_called_feature():
    receiver = export.ServingInputReceiver(np.zeros((1, 3)))
    assert list(receiver.example()) == [Origin("features", "feature")]


def test_a_tensor_receiver_hands_the_array_over_unwrapped():
    receiver = export.TensorServingInputReceiver(np.zeros((1, 3)))
    assert list(receiver.example()) == [Origin("features", None)]
    with pytest.raises(SpecError, match="must be one array"):
        export.TensorServingInputReceiver({"x": np.zeros(1)})


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({}, "at least one feature"),
        ({"age": None}, "feature 'age' .* found None"),
        ({"age": 3.0}, "feature 'age' .* a single value or no row"),
        ({"age": np.zeros(0)}, "a single value or no row"),
        ({"age": np.zeros(1), "size": np.zeros(2)}, "first dimensions of a batch"),
    ],
)
def test_features_without_rows_are_refused_when_the_receiver_is_built(features, words):
    with pytest.raises(SpecError, match=words):
        export.build_raw_serving_input_receiver_fn(features)


def test_receiver_tensors_must_be_the_features_or_one_vector_of_text():
    features = {"age": np.zeros(1)}
    export.ServingInputReceiver(features, {"age": np.zeros(1)})
    with pytest.raises(SpecError, match="must name the features themselves"):
        export.ServingInputReceiver(features, {"years": np.zeros(1)})


def test_a_fixed_batch_size_is_refused():
    with pytest.raises(SpecError, match="default_batch_size is not supported"):
        export.build_raw_serving_input_receiver_fn({"age": np.zeros(1)}, 32)
