"""Tell three species of penguins apart with boosted trees and a random forest.

    pip install "estimax[demo,trees]"
    python examples/trees/penguins.py

The rows have numbers, words and missing values of both, and go to the trees as they
are: nothing is scaled, encoded or filled. LightGBM trains; the bundle that is exported
does not need it.
"""

import importlib.metadata
import sys
import tempfile

import numpy as np

import estimax as ex

fc = ex.feature_columns
SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
WORDS = {"island": ["Biscoe", "Dream", "Torgersen"], "sex": ["female", "male"]}
COLUMNS = [fc.numeric_column(name) for name in NUMBERS]
COLUMNS += [
    fc.categorical_column_with_vocabulary_list(name, words)
    for name, words in WORDS.items()
]


def penguins():
    """Return the rows of the package palmerpenguins that are used: half and half."""
    files = importlib.metadata.files("palmerpenguins")
    path = next(f.locate() for f in files if f.name == "penguins.csv")
    rows = ex.input.csv_files(
        str(path),
        select=[*NUMBERS, *WORDS, "species"],
        dtypes=dict.fromkeys(NUMBERS, "float32"),
        defaults=dict.fromkeys(NUMBERS, np.nan),
        null_values=["NA"],
    ).with_label("species")
    rows = rows.shuffle(1000, seed=1, reshuffle_each_iteration=False)
    return rows.take(172), rows.skip(172)


def main(steps=60):
    train, test = penguins()
    shared = {"n_classes": 3, "label_vocabulary": SPECIES, "n_trees": steps}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "boosted trees": ex.BoostedTreesClassifier(
                COLUMNS, model_dir=f"{folder}/boosted", min_data_in_leaf=5, **shared
            ),
            "random forest": ex.RandomForestClassifier(
                COLUMNS, f"{folder}/forest", min_data_in_leaf=2, **shared
            ),
        }
        for name, model in models.items():
            model.train(lambda: train.batch(64))
            found[name] = model.evaluate(lambda: test.batch(64))["accuracy"]
            print(f"{name}: accuracy {found[name]:.3f} of {len(list(test))} penguins")
        boosted = models["boosted trees"]
        gains = boosted.experimental_feature_importances(normalize=True)
        for name, gain in gains.items():
            print(f"  {name:18} {gain:6.1%} of the gain of all splits")
        bundle = ex.export.load(boosted.export_saved_model(f"{folder}/export"))
        row = {"bill_length_mm": [50.0], "island": ["Biscoe"], "sex": [""]}
        row |= {name: [np.nan] for name in NUMBERS[1:]}  # missing, as in training
        answer = bundle.predict(row)
        species = SPECIES[int(answer["class_ids"][0, 0])]
        print(f"a long bill on Biscoe: {species}, {answer['probabilities'].max():.0%}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
