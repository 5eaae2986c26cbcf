import numpy as np
import pytest
from golden_files import load_golden

from estimax.core.errors import InputError
from estimax.input import Dataset, TensorSpec
from estimax.input.streams.structure import to_numpy

KINDS = {"int32": np.int32, "float32": np.float32, "string": object}


def elements_of(case):
    dtype = KINDS[case["dtype"]] if "dtype" in case else np.int32

    def encode(element):
        array = np.array(element, dtype)
        if dtype is object:
            array = np.char.encode(array.astype(str)).astype(object)
        return array

    return Dataset.from_generator(lambda: map(encode, case["elements"]))


def lists(dataset):
    batches = [to_numpy(batch) for batch in dataset]
    return [
        np.vectorize(bytes.decode)(b).tolist() if b.dtype == object else b.tolist()
        for b in batches
    ]


@pytest.mark.golden
def test_batches_are_padded_as_tensorflow_pads_them():
    cases = load_golden("data.json")["padded_batch"]
    for case in cases:
        data = elements_of(case).padded_batch(**case["args"])
        if "tf_exception" in case:
            with pytest.raises(InputError, match="has size 3 in dimension 0"):
                list(data)
        else:
            assert lists(data) == case["output"], case["name"]
    assert len(cases) == 9


@pytest.mark.golden
def test_buckets_give_tensorflows_batches():
    cases = load_golden("data.json")["bucket_by_sequence_length"]
    for case in cases:
        data = elements_of(case).bucket_by_sequence_length(
            len, case["bucket_boundaries"], case["bucket_batch_sizes"], **case["args"]
        )
        assert lists(data) == case["output"], case["name"]
    assert len(cases) == 3


def sequences():
    def make():
        for n in (1, 3, 2):
            yield {"ids": np.arange(n), "words": ["w"] * n}, np.float32(n)

    return Dataset.from_generator(make)


def test_structures_take_a_shape_and_a_value_in_each_place():
    data = sequences().padded_batch(
        3,
        padded_shapes=({"ids": [4], "words": [None]}, []),
        padding_values=({"ids": -1, "words": "?"}, None),
    )
    features, label = next(iter(data))
    assert features["ids"].tolist() == [[0, -1, -1, -1], [0, 1, 2, -1], [0, 1, -1, -1]]
    assert np.asarray(features["words"])[0].tolist() == [b"w", b"?", b"?"]
    assert label.tolist() == [1, 3, 2]


def test_a_padding_value_of_another_dtype_is_a_type_error():
    data = Dataset.from_tensor_slices(np.zeros((2, 3), np.int32))
    with pytest.raises(TypeError, match=r"values are int32, the padding value 0.5"):
        next(iter(data.padded_batch(2, [4], 0.5)))


def test_columns_are_padded_all_at_once():
    rows = {"x": np.ones((3, 2)), "s": [["a"], ["b"], ["c"]]}
    data = Dataset.from_tensor_slices(rows)
    batch = next(iter(data.padded_batch(2, {"x": [3], "s": [2]})))
    assert batch["x"].tolist() == [[1, 1, 0], [1, 1, 0]]
    assert np.asarray(batch["s"]).tolist() == [[b"a", b""], [b"b", b""]]


def test_different_ranks_cannot_be_padded():
    data = Dataset.from_generator(lambda: iter([np.zeros(2), np.zeros((2, 2))]))
    with pytest.raises(ValueError, match="expected one rank"):
        next(iter(data.padded_batch(2)))


def test_an_element_beyond_the_last_boundary_cannot_be_padded_to_it():
    data = sequences().bucket_by_sequence_length(
        lambda features, label: len(features["ids"]),
        [2],
        [1, 1],
        pad_to_bucket_boundary=True,
    )
    with pytest.raises(
        InputError, match=r"length 3 is not below the last boundary \(2\)"
    ):
        list(data)


def test_only_what_is_as_long_as_its_element_is_padded_to_the_boundary():
    data = sequences().bucket_by_sequence_length(
        lambda features, label: len(features["ids"]),
        [5],
        [3, 1],
        pad_to_bucket_boundary=True,
    )
    features, label = next(iter(data))
    assert features["ids"].shape == features["words"].shape == (3, 4)
    assert label.shape == (3,)


@pytest.mark.parametrize(
    ("spec", "element", "words"),
    [
        (TensorSpec((), "int32"), 1.5, "element 0: expected dtype int32, got float64"),
        (TensorSpec((2,), "int64"), [1], r"expected shape \(2,\), got \(1,\)"),
        ((TensorSpec(), TensorSpec()), 1.0, r"expected the structure .* got float"),
        (TensorSpec((), "string"), 3, "expected dtype string, got int64"),
    ],
)
def test_a_generator_is_held_to_its_signature(spec, element, words):
    data = Dataset.from_generator(lambda: [element], output_signature=spec)
    with pytest.raises(TypeError, match=words):
        next(iter(data))


def test_a_generator_gets_its_arguments_and_its_types():
    data = Dataset.from_generator(range, output_types="float32", args=(1, 4))
    assert next(iter(data.batch(3))).dtype == np.float32
    assert next(iter(data.batch(3))).tolist() == [1, 2, 3]
