"""A tagger whose words do not say the tag: only its neighbours do."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex

STEPS, WORDS, TAGS = 6, 3, 3


def model_fn(features, labels, mode):
    """Score each word alone, so that all context is in the transitions."""
    words, lengths = features["words"], features["length"]
    with ex.variable_scope("tagger"):
        logits = nn.Embed(WORDS, TAGS, name="scores")(words)
        if mode == ex.ModeKeys.PREDICT:
            transitions = ex.get_variable("transitions", (TAGS, TAGS))
        else:
            likelihood, transitions = ex.crf.crf_log_likelihood(logits, labels, lengths)
    tags, score = ex.crf.crf_decode(logits, transitions, lengths)
    if mode == ex.ModeKeys.PREDICT:
        predictions = {"tags": tags, "score": score}
        return ex.EstimatorSpec(mode, predictions=predictions)
    inside = jnp.arange(STEPS) < lengths[:, None]
    return ex.EstimatorSpec(
        mode,
        loss=-jnp.mean(likelihood),
        train_op=ex.optimizers.Adam(0.2),
        eval_metric_ops={"accuracy": ex.metrics.v1.accuracy(labels, tags, inside)},
    )


def sentences(count=64, seed=0):
    """Word 0 starts an entity (tag 1), which word 2 continues (tag 2) or not (tag 0).

    Word 2 is inside of an entity only right after word 0 or another word 2 inside.
    """
    rng = np.random.default_rng(seed)
    words = rng.integers(0, WORDS, (count, STEPS))
    lengths = rng.integers(0, STEPS + 1, count)
    tags = np.zeros_like(words)
    before = np.zeros(count, int)
    for step in range(STEPS):
        continues = (words[:, step] == 2) & (before > 0)
        tags[:, step] = np.where(words[:, step] == 0, 1, np.where(continues, 2, 0))
        before = tags[:, step]
    return {"words": words, "length": lengths}, tags


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    model = ex.Estimator(model_fn, str(tmp_path_factory.mktemp("tagger")))
    return model.train(lambda: [sentences()] * 60)


def test_a_tagger_learns_which_tags_follow_each_other(tagger):
    found = tagger.evaluate(lambda: [sentences(seed=1)])
    assert found["accuracy"] == 1.0
    transitions = tagger.get_variable_value("tagger/transitions")
    assert transitions[0, 2] < transitions[1, 2] - 1.0


def test_predictions_are_the_tags_and_zero_in_padding(tagger):
    features, tags = sentences(count=8, seed=2)
    found = list(tagger.predict(lambda: [(features, None)]))
    inside = np.arange(STEPS) < features["length"][:, None]
    decoded = np.stack([row["tags"] for row in found])
    assert (decoded == np.where(inside, tags, 0)).all()


def test_a_bundle_decodes_batches_of_any_size(tagger, tmp_path):
    bundle = ex.export.load(tagger.export_saved_model(str(tmp_path)))
    for count in (1, 5):
        features, _ = sentences(count=count, seed=3)
        expected = list(tagger.predict(lambda given=features: [(given, None)]))
        found = bundle.predict(features)
        assert found["tags"].tolist() == [row["tags"].tolist() for row in expected]
