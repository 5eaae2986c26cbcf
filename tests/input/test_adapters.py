import json

import numpy as np
import pandas as pd
import pytest

from estimax.core.errors import InputError, SpecError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input import Dataset, as_batches
from estimax.input.streams.columns import Ragged

X = {"x": np.arange(3.0)}
Y = np.arange(3)


class Tensor:
    """What a tensor of another framework offers."""

    def __init__(self, values):
        self._values = np.asarray(values)

    def numpy(self):
        return self._values

    def __array__(self, dtype=None, copy=None):
        return self._values


def test_examples_without_a_batch_are_told_to_be_batched():
    examples = Dataset.from_tensor_slices(({"x": [1.0, 2.0], "v": [[1], [2]]}, [1, 2]))
    with pytest.raises(InputError, match=r"features\['x'\], labels\..*\.batch\(size\)"):
        next(as_batches(examples))


def test_a_dataset_of_pairs_gives_features_and_labels():
    features, labels = next(as_batches(Dataset.from_tensor_slices((X, Y)).batch(2)))
    assert features["x"].tolist() == [0, 1]
    assert labels.tolist() == [0, 1]


def test_a_dataset_of_dicts_has_no_labels():
    _, labels = next(as_batches(Dataset.from_tensor_slices(X).batch(2)))
    assert labels is None


@pytest.mark.parametrize("returned", [(X, Y), [X, Y], (X, None), X, X["x"]])
def test_arrays_are_the_same_batch_for_ever(returned):
    batches = as_batches(returned)
    first, second = next(batches), next(batches)
    assert first == second
    batches.set_state(json.loads(json.dumps(batches.get_state())))
    assert next(batches) == first


@pytest.mark.parametrize("returned", [(X, Y, Y), [X], (X,)])
def test_a_tuple_of_another_length_is_refused(returned):
    with pytest.raises(SpecError, match=r"tuple of|list of"):
        as_batches(returned)


def test_an_element_of_another_length_is_refused():
    with pytest.raises(SpecError, match="got a tuple of 3"):
        next(as_batches(iter([(X, Y, Y)])))


def test_a_generator_of_batches_is_taken():
    batches = as_batches((X, Y) for _ in range(2))
    assert len(list(batches)) == 2


def test_tensors_of_other_frameworks_become_columns():
    loader = [[{"x": Tensor([1, 2]), "s": Tensor([b"a", b"b"])}, Tensor([0, 1])]]
    features, labels = next(as_batches(iter(loader)))
    assert features["x"].tolist() == [1, 2]
    assert isinstance(features["s"], Strings)
    assert labels.tolist() == [0, 1]


class TorchTensor:
    """A tensor that wants a gradient: no array before it is detached."""

    def __init__(self, values, is_detached=False):
        self._values = np.asarray(values)
        self._is_detached = is_detached

    def detach(self):
        return TorchTensor(self._values, is_detached=True)

    def cpu(self):
        return self

    def numpy(self):
        assert self._is_detached, "call detach() first"
        return self._values


class DataLoader:
    """Gives lists of tensors, and text as lists of str, as torch's collating does."""

    def __len__(self):
        return 2

    def __iter__(self):
        for i in range(2):
            yield [{"x": TorchTensor([i, 1.5]), "s": ["a", "b"]}, TorchTensor([0, 1])]


def test_a_torch_loader_gives_batches_of_columns():
    batches = list(as_batches(DataLoader()))
    features, labels = batches[1]
    assert features["x"].tolist() == [1, 1.5]
    assert features["s"].tolist() == [b"a", b"b"]
    assert labels.tolist() == [0, 1]


def test_a_torch_loader_resumes_by_count():
    batches = as_batches(DataLoader())
    next(batches)
    resumed = as_batches(DataLoader())
    resumed.set_state(json.loads(json.dumps(batches.get_state())))
    assert [features["x"][0] for features, _ in resumed] == [1]


class HuggingFaceDataset:
    """Rows by number, a dict of lists for a range, as `datasets.Dataset` gives them."""

    def __init__(self):
        self.columns = {
            "n": list(range(10)),
            "text": [f"row {i}" for i in range(10)],
            "tags": [["t"] * (i % 3) for i in range(10)],
            "pair": [[i, -i] for i in range(10)],
        }

    def __len__(self):
        return 10

    def __getitem__(self, rows):
        return {name: values[rows] for name, values in self.columns.items()}


def test_a_hugging_face_dataset_is_read_by_ranges_of_rows():
    data = Dataset.from_table(HuggingFaceDataset()).shuffle(10, seed=1).batch(4)
    features, _ = next(as_batches(data))
    n = features["n"]
    assert features["text"].tolist() == [b"row %d" % i for i in n]
    assert features["pair"].tolist() == [[i, -i] for i in n]
    assert np.bincount(features["tags"].indices[:, 0], minlength=4).tolist() == list(
        n % 3
    )
    assert len(Dataset.from_table(HuggingFaceDataset())) == 10


def test_what_is_no_table_is_told_where_to_go():
    with pytest.raises(
        InputError, match=r"iterable of batches to Dataset.from_batches"
    ):
        Dataset.from_table(iter([]))


def test_a_numpy_iterator_of_tensorflow_gives_text_as_objects():
    batches = as_batches(
        iter([({"s": np.array([b"a", b"b"], object)}, np.array([1, 0]))])
    )
    features, _ = next(batches)
    assert features["s"].tolist() == [b"a", b"b"]


def test_sparse_tensors_of_other_frameworks_become_sparse():
    class SparseTensor:
        indices, values = Tensor([[0, 1]]), Tensor([7])
        dense_shape = Tensor([2, 3])

    features, _ = next(as_batches(iter([{"s": SparseTensor()}])))
    assert isinstance(features["s"], Sparse)
    assert features["s"].dense_shape == (2, 3)


def test_a_frame_is_features():
    features, _ = next(as_batches(pd.DataFrame({"n": [1, 2], "s": ["a", "b"]})))
    assert features["s"].tolist() == [b"a", b"b"]


def test_rows_that_do_not_agree_are_named_with_their_sizes():
    batches = as_batches(iter([({"x": np.zeros(3), "z": np.zeros(2)}, np.zeros(3))]))
    words = r"features\['x'\]: 3, features\['z'\]: 2, labels: 3"
    with pytest.raises(InputError, match=words):
        next(batches)


@pytest.mark.parametrize("returned", [None, 3, "train.csv", lambda: X])
def test_what_cannot_be_input_is_refused(returned):
    with pytest.raises(SpecError, match="input_fn"):
        as_batches(returned)


def numbered(read):
    for i in range(10):
        read.append(i)
        yield {"x": np.full(2, i)}


def test_a_plain_iterator_resumes_by_skipping():
    batches = as_batches(numbered([]))
    next(batches)
    next(batches)
    assert batches.get_state() == {"batches": 2}
    read = []
    resumed = as_batches(numbered(read))
    resumed.set_state({"batches": 2})
    assert next(resumed)[0]["x"].tolist() == [2, 2]
    assert read == [0, 1, 2]


def test_a_plain_iterator_can_refuse_to_resume():
    resumed = as_batches(numbered([]), resume="refuse")
    with pytest.raises(InputError, match=r"plain iterator.*Use an estimax Dataset"):
        resumed.set_state({"batches": 2})


def test_an_iterator_that_became_too_short_says_so():
    resumed = as_batches(numbered([]))
    with pytest.raises(InputError, match=r"ended after 10 batches.*position is 12"):
        resumed.set_state({"batches": 12})


class WithState:
    """An iterator that can seek, as Grain's."""

    def __init__(self, encode=lambda n: {"next_index": n}, decode=None):
        self.next, self._encode = 0, encode
        self._decode = decode or (lambda state: state["next_index"])

    def __iter__(self):
        return self

    def __next__(self):
        self.next += 1
        return {"x": np.full(1, self.next)}

    def get_state(self):
        return self._encode(self.next)

    def set_state(self, state):
        self.next = self._decode(state)


@pytest.mark.parametrize(
    "make",
    [WithState, lambda: WithState(lambda n: bytes([n]), lambda state: state[0])],
)
def test_an_iterator_with_its_own_state_is_asked_for_it(make):
    batches = as_batches(make())
    next(batches)
    next(batches)
    state = json.loads(json.dumps(batches.get_state()))
    resumed = as_batches(make(), resume="refuse")
    resumed.set_state(state)
    assert next(resumed)[0]["x"].tolist() == [3]


def test_a_loader_with_a_state_dict_is_asked_for_it():
    class Loader:
        at = 0

        def __iter__(self):
            while self.at < 9:
                self.at += 1
                yield {"x": np.full(1, self.at)}

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    batches = as_batches(Loader())
    next(batches)
    state = batches.get_state()
    resumed = as_batches(Loader(), resume="refuse")
    resumed.set_state(state)
    assert next(resumed)[0]["x"].tolist() == [2]


def test_a_seed_reaches_the_shuffles_of_a_dataset():
    def first():
        data = Dataset.range(100).shuffle(100).batch(100)
        return next(as_batches(data, seed=3))[0].tolist()

    assert first() == first()


def test_nested_rows_are_sparse_to_a_model():
    # [[[7], [8, 9]], []]
    rows = Ragged(np.array([7, 8, 9]), (np.array([0, 2, 2]), np.array([0, 1, 3])))
    features, _ = next(as_batches({"x": rows}))
    assert features["x"].indices.tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert features["x"].values.tolist() == [7, 8, 9]
    assert features["x"].dense_shape == (2, 2, 2)


def test_the_uniform_axes_of_nested_rows_stay_innermost():
    rows = Ragged(np.array([[1, 2], [3, 4]]), (np.array([0, 0, 2]),))
    features, _ = next(as_batches({"x": rows}))
    wanted = [[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    assert features["x"].indices.tolist() == wanted
    assert features["x"].dense_shape == (2, 2, 2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_list_of_pairs_is_a_list_of_batches(count):
    pairs = [({"x": np.array([float(i)])}, np.array([i])) for i in range(count)]
    found = [labels.tolist() for _, labels in as_batches(pairs)]
    assert found == [[i] for i in range(count)]
