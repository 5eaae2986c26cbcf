import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads, staging
from estimax.core.errors import LabelError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

COLORS = ["red", "green", "blue"]


def loss(head, labels, logits, **features):
    return head.loss(labels, jnp.asarray(logits), features)


def traced_loss(head, raw_labels, logits):
    """The loss as a traced model_fn sees it: numbers as tracers, text nowhere."""
    origin = staging.Origin("labels", None)

    def run(array):
        trace = staging.Trace("train", lambda call: call.run({origin: raw_labels}))
        with staging.tracing(trace):
            if array is None:
                kind = "text" if isinstance(raw_labels, Strings) else "sparse"
                labels = staging.HostOnly(origin, kind)
            else:
                labels = array
            return head.loss(
                trace.register_feature(labels, origin), jnp.asarray(logits)
            )

    is_array = isinstance(raw_labels, np.ndarray)
    return jax.jit(run)(raw_labels if is_array else None)


def test_labels_out_of_range_are_named_with_their_rows():
    labels = np.array([0, 1, 7, 1, -3])
    message = re.escape(
        "BinaryClassHead 'click': labels must be within [0, 1]; found 7 in row 2, "
        "-3 in row 4 (5 labels in the batch)."
    )
    with pytest.raises(LabelError, match=message):
        loss(heads.BinaryClassHead(name="click"), labels, np.zeros((5, 1)))


def test_only_the_first_offenders_are_shown():
    with pytest.raises(LabelError, match=r"9 in row 4 and 95 more \(100 labels"):
        loss(heads.MultiClassHead(3), np.full(100, 9), np.zeros((100, 3)))


def test_rows_are_rows_of_the_batch_for_labels_with_several_columns():
    labels = np.array([[0, 1, 0], [0, 0, 5]])
    with pytest.raises(LabelError, match="found 5 in row 1"):
        loss(heads.MultiLabelHead(3), labels, np.zeros((2, 3)))


def test_a_word_outside_the_vocabulary_is_named():
    head = heads.MultiClassHead(3, label_vocabulary=COLORS)
    with pytest.raises(LabelError, match=r"one of \['red'.*found 'pink' in row 1"):
        loss(head, np.array(["red", "pink"]), np.zeros((2, 3)))


def test_a_sparse_word_outside_the_vocabulary_is_named_with_its_row():
    labels = Sparse(
        np.array([[0, 0], [2, 0], [2, 1]]), Strings.of(["red", "blue", "pink"]), (3, 2)
    )
    head = heads.MultiLabelHead(3, label_vocabulary=COLORS)
    with pytest.raises(LabelError, match="found 'pink' in row 2"):
        loss(head, labels, np.zeros((3, 3)))


def test_nan_is_no_label_between_0_and_1():
    with pytest.raises(LabelError, match="found nan in row 1"):
        loss(heads.BinaryClassHead(), np.array([0.0, np.nan]), np.zeros((2, 1)))


def test_a_label_beyond_int32_is_not_wrapped_into_range():
    with pytest.raises(LabelError, match="found 4294967297 in row 0"):
        loss(heads.MultiClassHead(3), np.array([2**32 + 1]), np.zeros((1, 3)))


def test_text_without_a_vocabulary_says_how_to_go_on():
    with pytest.raises(LabelError, match=r"'yes'.*label_vocabulary"):
        loss(heads.BinaryClassHead(), np.array(["yes"]), np.zeros((1, 1)))


def test_a_dict_of_labels_says_how_to_go_on():
    with pytest.raises(LabelError, match="MultiHead"):
        loss(heads.BinaryClassHead(), {"y": np.array([1])}, np.zeros((1, 1)))


def test_one_hot_labels_say_how_to_go_on():
    with pytest.raises(LabelError, match="argmax"):
        loss(heads.MultiClassHead(3), np.eye(3, dtype=int), np.zeros((3, 3)))


def test_labels_never_broadcast():
    with pytest.raises(LabelError, match=r"\[4\] or \[4, 1\].*got \[1, 1\]"):
        loss(heads.BinaryClassHead(), np.array([[1]]), np.zeros((4, 1)))


def test_text_labels_are_looked_up_while_a_model_is_traced():
    head = heads.MultiClassHead(3, label_vocabulary=COLORS)
    logits = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 0.0]])
    words = Strings.of(["blue", "red"])
    expected = loss(heads.MultiClassHead(3), np.array([2, 0]), logits)
    np.testing.assert_allclose(traced_loss(head, words, logits), expected)


def test_sparse_labels_are_spread_while_a_model_is_traced():
    labels = Sparse(np.array([[0, 0], [0, 1]]), np.array([2, 0]), (2, 2))
    logits = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 0.0]])
    dense = np.array([[1, 0, 1], [0, 0, 0]])
    head = heads.MultiLabelHead(3)
    np.testing.assert_allclose(
        traced_loss(head, labels, logits), loss(head, dense, logits)
    )


def test_label_values_are_checked_while_a_model_is_traced():
    with pytest.raises(LabelError, match="found 2 in row 1"):
        traced_loss(heads.BinaryClassHead(), np.array([0, 2]), np.zeros((2, 1)))


def test_labels_computed_on_the_device_pass_unchecked():
    head = heads.BinaryClassHead()
    found = jax.jit(lambda z, x: head.loss(z * 5, x))(jnp.array([1]), jnp.ones((1, 1)))
    np.testing.assert_allclose(found, np.log1p(np.e) - 5.0, rtol=1e-6)


def test_labels_computed_on_the_device_still_have_their_dtype_checked():
    head = heads.MultiClassHead(3)
    with pytest.raises(LabelError, match="must be integers, got dtype float32"):
        jax.jit(head.loss)(jnp.ones((2, 1)), jnp.ones((2, 3)))


def test_words_are_found_in_labels_of_any_shape():
    rule = heads.MultiClassHead(3, label_vocabulary=["b", "", "long"]).label_rule
    words = [["b", ""], ["long", "longer"], ["c", "b\0"]]
    given = Strings.of(np.array(words, dtype=object))
    assert rule.convert(given).tolist() == [[0, 1], [2, -1], [-1, -1]]


def test_an_empty_batch_of_words_has_no_loss():
    head = heads.MultiClassHead(3, label_vocabulary=COLORS)
    assert float(loss(head, np.array([], dtype=str), np.zeros((0, 3)))) == 0.0


def test_equal_heads_share_one_host_transform():
    first, second = heads.MultiClassHead(3), heads.MultiClassHead(3)
    assert first.label_rule == second.label_rule
    assert hash(first.label_rule) == hash(second.label_rule)
