from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads


def test_a_loss_function_must_take_labels_and_logits():
    with pytest.raises(ValueError, match=r"it takes \(y, logits\)"):
        heads.BinaryClassHead(loss_fn=lambda y, logits: y - logits)


def test_a_loss_function_must_not_take_anything_unknown():
    with pytest.raises(ValueError, match=r"functools\.partial"):
        heads.RegressionHead(loss_fn=lambda labels, logits, name=None: labels)


def test_keyword_only_options_of_a_loss_function_are_its_own():
    head = heads.BinaryClassHead(loss_fn=heads.losses.focal_cross_entropy)
    bound = partial(heads.losses.focal_cross_entropy, gamma=0.0, alpha=None)
    plain = heads.BinaryClassHead(loss_fn=bound).loss([1], jnp.array([[0.3]]))
    expected = heads.BinaryClassHead().loss([1], jnp.array([[0.3]]))
    assert float(head.loss([1], jnp.array([[0.3]]))) < float(plain)
    np.testing.assert_allclose(plain, expected, rtol=1e-6)


def test_a_reduced_loss_function_is_refused():
    head = heads.BinaryClassHead(loss_fn=lambda labels, logits: jnp.mean(logits))
    with pytest.raises(ValueError, match=r"shape \[2, 1\], got \[\]"):
        head.loss([1, 0], jnp.zeros((2, 1)))


def test_a_word_twice_in_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match="'a' more than once"):
        heads.MultiClassHead(3, label_vocabulary=["a", "b", "a"])


def test_an_empty_vocabulary_is_none():
    assert heads.BinaryClassHead(label_vocabulary=[]).label_vocabulary is None


def test_an_unknown_prediction_key_names_its_neighbour():
    head = heads.BinaryClassHead()
    with pytest.raises(ValueError, match="did you mean 'probabilities'"):
        head.predictions(jnp.zeros((1, 1)), keys=["probability"])


def test_keys_restrict_predictions():
    found = heads.MultiClassHead(3).predictions(jnp.zeros((1, 3)), ["classes"])
    assert list(found) == ["classes"]


def test_logits_of_another_width_say_how_to_go_on():
    with pytest.raises(ValueError, match=r"\[B, 3\].*head\.logits_dimension"):
        heads.MultiClassHead(3).predictions(jnp.zeros((2, 4)))


def test_heads_are_values():
    assert heads.BinaryClassHead(thresholds=[0.5]) == heads.BinaryClassHead(
        thresholds=(0.5,)
    )
    assert hash(heads.MultiLabelHead(3)) == hash(heads.MultiLabelHead(3))


@pytest.mark.parametrize(
    "head",
    [
        heads.BinaryClassHead(name="a"),
        heads.MultiClassHead(3),
        heads.MultiLabelHead(3),
        heads.RegressionHead(),
        heads.PoissonRegressionHead(),
        heads.LogisticRegressionHead(),
        heads.MultiHead([heads.BinaryClassHead(name="a")]),
        heads.SequentialHeadWrapper(heads.BinaryClassHead()),
    ],
)
def test_every_head_has_the_members_of_the_protocol(head):
    assert isinstance(head, heads.Head)


def test_a_head_shows_the_options_that_are_not_defaults():
    assert repr(heads.BinaryClassHead()) == "BinaryClassHead()"
    head = heads.MultiClassHead(7, label_vocabulary=list("abcdefg"), name="letter")
    shown = "MultiClassHead(n_classes=7, label_vocabulary=('a', 'b', 'c', 'd', 'e', "
    assert repr(head) == shown + "...), name='letter')"
