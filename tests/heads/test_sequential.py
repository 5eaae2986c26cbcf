import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads, staging
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

MASK = np.array([[True, True, False], [True, False, False]])
TAGS = ["noun", "verb", "other"]
LOGITS = np.arange(18.0, dtype=np.float32).reshape(2, 3, 3) % 5
HEAD = heads.SequentialHeadWrapper(heads.MultiClassHead(3), "mask")


def flat_loss(ids):
    """The loss of the static head on the unmasked steps alone."""
    return heads.MultiClassHead(3).loss(np.array(ids), jnp.asarray(LOGITS[MASK]))


def test_only_unmasked_steps_count():
    labels = np.array([[0, 2, 1], [1, 0, 0]])
    found = HEAD.loss(LOGITS, labels, {"mask": MASK})
    np.testing.assert_allclose(found, flat_loss([0, 2, 1]), rtol=1e-6)


def test_padding_of_labels_may_hold_anything():
    labels = np.array([[0, 2, -1], [1, 99, -1]])
    found = HEAD.loss(LOGITS, labels, {"mask": MASK})
    np.testing.assert_allclose(found, flat_loss([0, 2, 1]), rtol=1e-6)


def test_a_bad_label_at_an_unmasked_step_is_named_with_its_row():
    labels = np.array([[0, 2, -1], [7, 0, 0]])
    with pytest.raises(ValueError, match="found 7 in row 1"):
        HEAD.loss(LOGITS, labels, {"mask": MASK})


def test_what_padding_of_logits_holds_reaches_no_gradient():
    logits = np.where(MASK[..., None], LOGITS, np.nan)
    labels = np.zeros((2, 3), int)

    def loss(x):
        return HEAD.loss(x, labels, {"mask": MASK})

    gradient = np.asarray(jax.grad(loss)(jnp.asarray(logits)))
    assert np.isfinite(gradient).all()
    assert not gradient[~MASK].any()


def test_words_are_looked_up():
    static = heads.MultiClassHead(3, label_vocabulary=TAGS)
    head = heads.SequentialHeadWrapper(static, "mask")
    labels = np.array([["noun", "other", ""], ["verb", "", ""]])
    found = head.loss(LOGITS, labels, {"mask": MASK})
    np.testing.assert_allclose(found, flat_loss([0, 2, 1]), rtol=1e-6)


def test_sparse_labels_fill_the_unmasked_steps_in_order():
    static = heads.MultiClassHead(3, label_vocabulary=TAGS)
    head = heads.SequentialHeadWrapper(static, "mask")
    places = np.array([[0, 0], [0, 1], [1, 0]])
    labels = Sparse(places, Strings.of(["noun", "other", "verb"]), (2, 2))
    found = head.loss(LOGITS, labels, {"mask": MASK})
    np.testing.assert_allclose(found, flat_loss([0, 2, 1]), rtol=1e-6)


def test_too_few_sparse_labels_are_refused():
    labels = Sparse(np.array([[0, 0]]), np.array([1]), (2, 2))
    with pytest.raises(ValueError, match="1 sparse labels for 3 unmasked steps"):
        HEAD.loss(LOGITS, labels, {"mask": MASK})


def test_a_mask_computed_on_the_device_is_enough():
    origin = staging.Origin("labels", None)
    places = np.array([[0, 0], [0, 1], [1, 0]])
    sparse = Sparse(places, np.array([0, 2, 1]), (2, 2))

    def run(lengths):
        trace = staging.Trace("train", lambda call: call.run({origin: sparse}))
        with staging.tracing(trace):
            labels = trace.register_feature(staging.HostOnly(origin, "sparse"), origin)
            mask = jnp.arange(3)[None, :] < lengths[:, None]
            return HEAD.loss(LOGITS, labels, {"mask": mask})

    found = jax.jit(run)(jnp.array([2, 1]))
    np.testing.assert_allclose(found, flat_loss([0, 2, 1]), rtol=1e-6)


def test_everything_on_the_device_works_inside_jit():
    labels = np.array([[0, 2, 1], [1, 0, 0]])

    def run(logits, labels, mask):
        seen = HEAD.update_metrics(HEAD.metrics(), {"mask": mask}, logits, labels)
        return HEAD.loss(logits, labels, {"mask": mask}), seen["accuracy"].compute()

    loss, accuracy = jax.jit(run)(LOGITS, labels, MASK)
    np.testing.assert_allclose(loss, flat_loss([0, 2, 1]), rtol=1e-6)
    right = LOGITS[MASK].argmax(-1) == np.array([0, 2, 1])
    np.testing.assert_allclose(accuracy, right.mean(), rtol=1e-6)


def test_nothing_unmasked_has_no_loss():
    nothing = {"mask": np.zeros((2, 3), bool)}
    assert float(HEAD.loss(LOGITS, np.zeros((2, 3), int), nothing)) == 0.0


def test_a_sum_is_not_divided():
    static = heads.MultiClassHead(3, loss_reduction="sum")
    head = heads.SequentialHeadWrapper(static, "mask")
    found = head.loss(LOGITS, np.array([[0, 2, 1], [1, 0, 0]]), {"mask": MASK})
    np.testing.assert_allclose(found, 3 * flat_loss([0, 2, 1]), rtol=1e-6)


def test_predictions_hold_the_mask():
    spec = HEAD.create_estimator_spec({"mask": MASK}, "infer", LOGITS)
    np.testing.assert_array_equal(spec.predictions["mask"], MASK)
    assert "mask" not in spec.export_outputs["predict"].as_outputs()


def test_a_wrapped_head_says_so_in_its_name():
    head = heads.SequentialHeadWrapper(heads.MultiClassHead(3, name="tag"), "mask")
    assert head.name == "tag_sequential"
    assert head.input_sequence_mask_key == "mask"
    assert list(head.metrics()) == ["average_loss/tag", "accuracy/tag"]


def test_feature_columns_are_keys():
    with pytest.raises(TypeError, match="feature_columns must be keys"):
        heads.SequentialHeadWrapper(heads.RegressionHead(), "mask", [3])


def test_a_missing_mask_is_named():
    with pytest.raises(ValueError, match="the mask 'mask' is not among"):
        HEAD.loss(LOGITS, np.zeros((2, 3), int), {})


def test_a_mask_of_another_rank_is_refused():
    with pytest.raises(ValueError, match=r"shape \[B, T\], got \[2\]"):
        HEAD.loss(LOGITS, np.zeros((2, 3), int), {"mask": np.ones(2)})


def test_a_feature_without_steps_is_refused():
    static = heads.MultiClassHead(3, weight_column="w")
    head = heads.SequentialHeadWrapper(static, "mask", "w")
    features = {"mask": MASK, "w": np.ones(2)}
    with pytest.raises(ValueError, match="'w' must have a value for every step"):
        head.loss(LOGITS, np.zeros((2, 3), int), features)
