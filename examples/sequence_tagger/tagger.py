"""Find names in sentences with an LSTM and a CRF, as a custom `model_fn`.

    python examples/sequence_tagger/tagger.py --model-dir runs/tagger

The LSTM scores the tags of each word from the words around it. The CRF adds scores of
tags that follow each other, and picks the best sequence as a whole: it never continues
a name that did not begin. Sentences are padded word ids [B, T] and their lengths.
`tensorflow_version.py` is the same program for tf.estimator.
"""

import argparse
import logging

import jax.numpy as jnp
from corpus import LONGEST, TAGS, as_arrays, entities, sentences, vocabulary
from flax import linen as nn

import estimax as ex

PARAMS = {
    "words": None,
    "width": 32,
    "units": 32,
    "dropout": 0.2,
    "learning_rate": 0.01,
}


def model_fn(features, labels, mode, params):
    """Define a bidirectional LSTM with a CRF on top."""
    training = mode == ex.ModeKeys.TRAIN
    words, lengths = features["words"], features["length"]
    table = ex.get_variable("embeddings", (params["words"], params["width"]))
    net = ex.embedding_lookup(table, words)  # [B, T, width]
    net = nn.Dropout(params["dropout"], deterministic=not training)(net)
    net = nn.Bidirectional(
        nn.RNN(nn.OptimizedLSTMCell(params["units"])),
        nn.RNN(nn.OptimizedLSTMCell(params["units"])),
        name="lstm",
    )(net, seq_lengths=lengths)
    logits = nn.Dense(len(TAGS), name="logits")(net)  # [B, T, K]
    transitions = ex.get_variable("transitions", (len(TAGS), len(TAGS)))
    decoded, score = ex.crf.crf_decode(logits, transitions, lengths)
    if mode == ex.ModeKeys.PREDICT:
        predictions = {"tags": decoded, "score": score}
        return ex.EstimatorSpec(mode, predictions=predictions)

    likelihood, _ = ex.crf.crf_log_likelihood(logits, labels, lengths, transitions)
    inside = jnp.arange(LONGEST) < lengths[:, None]
    return ex.EstimatorSpec(
        mode,
        loss=-jnp.mean(likelihood),
        train_op=ex.optimizers.Adam(params["learning_rate"]),
        eval_metric_ops={
            "accuracy": ex.metrics.v1.accuracy(labels, decoded, inside),
            "likelihood": ex.metrics.mean(jnp.exp(likelihood)),
        },
    )


def f1_of(predictions, tagged):
    """Return the F1 score of whole names: right if kind, start and end are."""
    found = [
        entities([TAGS[tag] for tag in row["tags"][: len(words)]])
        for row, (words, _) in zip(predictions, tagged, strict=True)
    ]
    truth = [entities(tags) for _, tags in tagged]
    hits = sum(len(a & b) for a, b in zip(found, truth, strict=True))
    return 2 * hits / (sum(map(len, found)) + sum(map(len, truth)))


def train_input_fn(data):
    """Return shuffled batches without end."""
    rows = ex.input.Dataset.from_tensor_slices(data)
    return rows.shuffle(2000).repeat().batch(64)


def test_input_fn(data):
    """Return all sentences once."""
    return ex.input.Dataset.from_tensor_slices(data).batch(250)


def build_estimator(model_dir, words):
    """Return the tagger for a vocabulary of so many words."""
    return ex.Estimator(
        model_fn,
        model_dir=model_dir,
        config=ex.RunConfig(tf_random_seed=1),
        params={**PARAMS, "words": words},
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-dir", default="runs/tagger")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    train, test = sentences(2000, seed=1), sentences(500, seed=2)
    words_by_id = vocabulary(train)
    train_data, test_data = as_arrays(train, words_by_id), as_arrays(test, words_by_id)

    estimator = build_estimator(arguments.model_dir, len(words_by_id))
    estimator.train(lambda: train_input_fn(train_data), max_steps=arguments.steps)
    results = estimator.evaluate(lambda: test_input_fn(test_data))
    print(f"accuracy {results['accuracy']:.3f}, likelihood {results['likelihood']:.3f}")
    predictions = list(estimator.predict(lambda: test_input_fn(test_data)))
    print(f"F1 of names {f1_of(predictions, test):.3f}")

    path = estimator.export_saved_model(f"{arguments.model_dir}/export")
    print("bundle in", path)
    words, _ = test[0]
    features, _ = as_arrays(test[:1], words_by_id)
    tags = ex.export.load(path).predict(features)["tags"][0]
    print(" ".join(f"{w}/{TAGS[t]}" for w, t in zip(words, tags, strict=False)))


if __name__ == "__main__":
    main()
