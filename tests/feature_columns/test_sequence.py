import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns import transforms
from estimax.feature_columns.transforms import (
    SequenceIds,
    SequenceLengths,
    SequenceNumbers,
)


def _sparse(rows):
    """Rows of different lengths."""
    places = [(r, t) for r, row in enumerate(rows) for t in range(len(row))]
    values = np.array([value for row in rows for value in row])
    width = max(map(len, rows))
    return Sparse(np.array(places).reshape(-1, 2), values, (len(rows), width))


def test_ids_stay_at_their_step():
    given = Sparse(np.array([[0, 2], [1, 0]]), np.array([5, 6]), (2, 3))
    made = SequenceIds(transforms.Identity("n", 9))({"n": given})
    assert made.ids[..., 0].tolist() == [[-1, -1, 5, -1], [6, -1, -1, -1]]
    assert made.ids.dtype == np.int32


def test_several_ids_of_a_step_stand_side_by_side():
    places = np.array([[0, 0, 2], [0, 0, 3], [0, 0, 7], [1, 1, 0]])
    given = Sparse(places, np.array([5, 6, 7, 8]), (2, 2, 8))
    made = SequenceIds(transforms.Identity("n", 9))({"n": given})
    assert made.ids.tolist() == [
        [[5, 6, 7, -1], [-1] * 4],
        [[-1] * 4, [8, -1, -1, -1]],
    ]


def test_an_id_out_of_range_is_refused_for_a_table():
    source = transforms.Identity("n", 3)
    with pytest.raises(ValueError, match="id 7"):
        SequenceIds(source, "error")({"n": np.array([[7]])})


def test_numbers_fill_steps_in_turn():
    given = _sparse([[1.0, 2.0, 3.0], [4.0]])
    made = SequenceNumbers("x", 2, default=-1.0)({"x": given})
    assert made.tolist() == [[[1, 2], [3, -1]], [[4, -1], [-1, -1]]]


def test_missing_numbers_can_be_told_from_the_default():
    made = SequenceNumbers("x", tells_missing=True)({"x": _sparse([[0.0], [1.0, 0.0]])})
    assert made["present"][..., 0].tolist() == [[True, False], [True, True]]


def test_a_step_of_another_size_is_refused():
    given = Sparse(np.array([[0, 0, 2]]), np.array([1.0]), (1, 1, 3))
    with pytest.raises(ValueError, match=r"2 numbers.*\[1, 1, 3\]"):
        SequenceNumbers("x", 2)({"x": given})


def test_text_is_no_sequence_of_numbers():
    given = Sparse(np.array([[0, 0]]), Strings.of(["a"]), (1, 1))
    with pytest.raises(ValueError, match="numbers"):
        SequenceNumbers("x")({"x": given})


def test_lengths_of_features_are_compared_row_by_row():
    lengths = SequenceLengths((("a", None), ("x", 2)))
    ids = np.array([[1, 2], [3, -1]])
    raw = {"a": ids, "x": _sparse([[1.0] * 4, [2.0]])}
    assert lengths(raw).tolist() == [2, 1]
    with pytest.raises(ValueError, match="row 1 has 1 steps of one and 2"):
        lengths(raw | {"x": _sparse([[1.0] * 4, [2.0] * 3])})
    with pytest.raises(ValueError, match="padded to different numbers"):
        lengths(raw | {"a": np.array([[1, 2, -1], [3, -1, -1]])})


@pytest.mark.parametrize(
    "transform",
    [
        SequenceIds(transforms.HashBucket("city", 9), "error", rounded=False),
        SequenceNumbers("x", 3, -1.5, tells_missing=True),
        SequenceLengths((("city", None), ("x", 3))),
    ],
)
def test_a_transform_survives_a_bundle(transform, tmp_path):
    record = transforms.to_json(transform, tmp_path)
    assert transforms.from_json(record, tmp_path) == transform
