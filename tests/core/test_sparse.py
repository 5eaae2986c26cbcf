import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import FeatureError
from estimax.core.raw_values import as_raw


def test_rows_of_text_keep_their_bytes():
    made = ex.Sparse.of_rows([["a", b"b\0"], [], ["ä"]])
    assert made.values.tolist() == [b"a", b"b\0", "ä".encode()]
    assert made.indices.tolist() == [[0, 0], [0, 1], [2, 0]]
    assert made.dense_shape == (3, 2)


def test_rows_may_be_arrays():
    made = ex.Sparse.of_rows([np.array([1, 2]), np.array([3])])
    assert made.values.tolist() == [1, 2, 3]


def test_rows_without_any_value_have_a_shape():
    assert ex.Sparse.of_rows([[], []]).dense_shape == (2, 0)


def test_values_at_different_depths_are_refused():
    with pytest.raises(ValueError, match="one depth"):
        ex.Sparse.of_rows([[1, [2]]])
    with pytest.raises(ValueError, match="list of rows"):
        ex.Sparse.of_rows([1, 2])


def test_ragged_lists_as_a_feature_are_told_how_to_be_given():
    with pytest.raises(ValueError, match="of_rows"):
        as_raw([[1, 2], [3]])


def test_lists_have_the_indices_of_their_rows():
    rows = [[7, 8], [], [9]]
    lists = ex.Sparse.of_lists(np.array([7, 8, 9]), np.array([4, 6, 6, 7], np.int32))
    same = ex.Sparse.of_rows(rows)
    assert lists.indices.tolist() == same.indices.tolist()
    assert lists.starts.tolist() == same.starts.tolist() == [0, 2, 2, 3]
    assert lists.dense_shape == same.dense_shape
    assert repr(lists) == repr(same)


@pytest.mark.parametrize("is_lists", [False, True])
def test_other_values_take_the_same_places(is_lists):
    given = ex.Sparse.of_rows([["a"], ["b", "c"]])
    if is_lists:
        given = ex.Sparse.of_lists(given.values, given.starts)
    other = given.with_values(np.array([1, 2, 3]))
    assert other.indices.tolist() == given.indices.tolist()
    assert other.values.tolist() == [1, 2, 3]
    assert other.is_lists == is_lists


def test_many_values_are_shown_by_the_first_four():
    many = ex.Sparse.of_rows([list(range(1000)), []])
    assert repr(many).splitlines() == [
        "Sparse(values=[0, 1, 2, 3, … 996 more], "
        "indices=[[0, 0], [0, 1], [0, 2], [0, 3], …],",
        "  dense_shape=(2, 1000))",
    ]


class TestDense:
    def test_numbers_fill_their_places(self):
        sparse = ex.Sparse.of_rows([[7, 8], [], [9]])
        assert ex.sparse_tensor_to_dense(sparse).tolist() == [[7, 8], [0, 0], [9, 0]]
        assert ex.sparse_tensor_to_dense(sparse, -1).tolist()[1] == [-1, -1]
        assert ex.sparse_tensor_to_dense(sparse).dtype == sparse.values.dtype

    def test_text_fills_its_places(self):
        sparse = ex.Sparse.of_rows([["a", "b"], [], ["c"]])
        dense = ex.sparse_tensor_to_dense(sparse)
        assert dense.shape == (3, 2)
        assert np.asarray(dense).tolist() == [[b"a", b"b"], [b"", b""], [b"c", b""]]
        named = ex.sparse_tensor_to_dense(sparse, default_value="?")
        assert np.asarray(named).tolist()[1] == [b"?", b"?"]

    @pytest.mark.parametrize(
        "rows", [[[1.5], [2.5, 3.5]], [["a"], ["b", "c"]]], ids=["numbers", "text"]
    )
    def test_np_asarray_is_dense(self, rows):
        sparse = ex.Sparse.of_rows(rows)
        fill = b"" if isinstance(rows[0][0], str) else 0.0
        expected = [[v.encode() if isinstance(v, str) else v for v in r] for r in rows]
        expected[0].append(fill)
        assert np.asarray(sparse).tolist() == expected

    def test_lists_and_higher_ranks(self):
        lists = ex.Sparse.of_lists(np.array([7, 8, 9]), np.array([0, 2, 3]), 3)
        assert ex.sparse_tensor_to_dense(lists).tolist() == [[7, 8, 0], [9, 0, 0]]
        deep = ex.Sparse.of_rows([[[1, 2], [3]], [[4]]])
        assert ex.sparse_tensor_to_dense(deep).tolist() == [
            [[1, 2], [3, 0]],
            [[4, 0], [0, 0]],
        ]

    def test_a_default_of_another_kind_is_refused(self):
        sparse = ex.Sparse.of_rows([[7], [8]])
        with pytest.raises(FeatureError, match=r"default_value.*text.*numbers"):
            ex.sparse_tensor_to_dense(sparse, "none")

    def test_a_dense_array_is_refused(self):
        with pytest.raises(FeatureError, match=r"expected ex\.Sparse, got ndarray"):
            ex.sparse_tensor_to_dense(np.zeros(3))

    def test_in_an_input_fn_and_not_in_a_model_fn(self, tmp_path):
        tags = ex.Sparse.of_rows([[1.0, 2.0], [], [3.0]])

        def model_fn(features, labels, mode):
            x = features["tags"]
            if labels is None:
                x = ex.sparse_tensor_to_dense(x)
            w = ex.get_variable("w", (), initializer=1.0)
            loss = x.sum() * w
            sgd = ex.optimizers.SGD(0.1)
            return ex.EstimatorSpec(mode, loss=loss, train_op=sgd)

        def dense_input():
            dataset = ex.input.Dataset.from_tensor_slices(({"tags": tags}, [0, 0, 0]))
            return dataset.batch(3).map(
                lambda f, y: ({"tags": ex.sparse_tensor_to_dense(f["tags"])}, y)
            )

        model = ex.Estimator(model_fn, tmp_path / "model").train(dense_input)
        assert model.get_variable_value("w") == pytest.approx(1 - 0.6)
        model = ex.Estimator(model_fn, tmp_path / "other")
        with pytest.raises(FeatureError, match=r"'tags'.*input_fn"):
            model.train(lambda: [({"tags": tags}, None)])
