"""Classify sequences: does the order of the pages of a visit end in a purchase?

    python examples/rnn_classifier/visits.py

A visit is a list of page names, of any length. It ends in a purchase if the visitor
read reviews before the price, so a model must see the order. `ex.RNNClassifier` reads
the pages one after the other; a `DNNClassifier` over the same embeddings sees only
which pages there were. The program prints the AUC of both, and the purchase
probability of two visits with the same pages in opposite order.
"""

import sys
import tempfile

import numpy as np

import estimax as ex

fc = ex.feature_columns
PAGES = ["home", "search", "item", "price", "reviews", "help", "cart"]


def visits(count, seed):
    """Return visits, as lists of page names, and whether each ended in a purchase."""
    draw = np.random.default_rng(seed)
    pages = [list(draw.choice(PAGES, draw.integers(3, 13))) for _ in range(count)]
    chance = [0.9 if _reviews_first(visit) else 0.1 for visit in pages]
    bought = (draw.random(count) < chance).astype(np.int64)
    return {"pages": ex.Sparse.of_rows(pages)}, bought


def _reviews_first(visit):
    if "reviews" not in visit or "price" not in visit:
        return False
    return visit.index("reviews") < visit.index("price")


def models(folder):
    """Return the recurrent network, and one that ignores the order."""
    options = {
        "optimizer": ex.optimizers.Adam(0.01, global_clipnorm=1.0),
        "config": ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
    }
    in_order = fc.sequence_categorical_column_with_vocabulary_list("pages", PAGES)
    as_set = fc.categorical_column_with_vocabulary_list("pages", PAGES)
    return {
        "in order": ex.RNNClassifier(
            [fc.embedding_column(in_order, 8)],
            units=[16],
            cell_type="gru",
            model_dir=f"{folder}/rnn",
            **options,
        ),
        "as a set": ex.DNNClassifier(
            [16], [fc.embedding_column(as_set, 8)], f"{folder}/dnn", **options
        ),
    }


def main(steps=600):
    train, test = visits(8000, seed=1), visits(2000, seed=2)
    rows = ex.input.Dataset.from_tensor_slices(train).shuffle(8000, seed=1).repeat()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(folder).items():
            model.train(lambda: rows.batch(128), steps=steps)
            tested = ex.input.Dataset.from_tensor_slices(test).batch(1000)
            found[name] = model.evaluate(lambda tested=tested: tested)["auc"]
            print(f"pages {name}: AUC {found[name]:.3f}")
            bundle = ex.export.load(model.export_saved_model(f"{folder}/{name}"))
            for visit in (["reviews", "price"], ["price", "reviews"]):
                answer = bundle.predict([{"pages": ["home", *visit]}])
                print(f"  {', '.join(visit)}: {answer['logistic'][0, 0]:.2f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
