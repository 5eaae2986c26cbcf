"""Make the golden files of trees with LightGBM alone: `python make_golden.py`.

Each case has the model in LightGBM's text format, rows, and its raw scores for them.
"""

import json
from pathlib import Path

import lightgbm
import numpy as np

HERE = Path(__file__).parent
ROWS = 600
SHARED = {
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "seed": 1,
    "min_data_in_leaf": 5,
    "min_data_per_group": 5,
    "cat_smooth": 1.0,
}
CASES = {
    "binary": {"objective": "binary", "num_leaves": 8, "num_iterations": 6},
    "multiclass": {
        "objective": "multiclass",
        "num_class": 3,
        "num_leaves": 5,
        "num_iterations": 4,
    },
    "regression": {"objective": "regression", "num_leaves": 8, "num_iterations": 6},
    "no_missing": {"objective": "regression", "num_leaves": 6, "num_iterations": 4},
    "zero_missing": {
        "objective": "regression",
        "num_leaves": 6,
        "num_iterations": 4,
        "zero_as_missing": True,
    },
    "deep_forest": {
        "objective": "regression",
        "boosting": "rf",
        "num_leaves": 90,
        "min_data_in_leaf": 1,
        "bagging_fraction": 0.6,
        "bagging_freq": 1,
        "num_iterations": 3,
    },
    "constant": {"objective": "regression", "num_iterations": 2},
}


def table(rng, missing):
    numbers = rng.normal(size=(ROWS, 3)).astype(np.float32)
    numbers[:, 2] = np.where(rng.random(ROWS) < 0.4, 0, numbers[:, 2])
    ids = np.stack([rng.integers(0, 6, ROWS), rng.integers(0, 70, ROWS)], axis=1)
    target = np.sin(2 * numbers[:, 0]) + numbers[:, 1] * (ids[:, 0] % 2)
    target += (numbers[:, 2] == 0) + (ids[:, 1] % 3 == 0)
    matrix = np.concatenate([numbers, ids.astype(np.float32)], axis=1)
    if missing:
        matrix[rng.random(matrix.shape) < 0.1] = np.nan
    return matrix, target + rng.normal(0, 0.1, ROWS)


def rows_to_predict(rng, booster, matrix):
    """Return rows of the data, and rows with values that are special."""
    rows = [matrix[:30]]
    every = []
    for tree in booster.dump_model()["tree_info"]:
        waiting = [tree["tree_structure"]]
        while waiting:
            node = waiting.pop()
            if "split_feature" not in node:
                continue
            waiting += [node["left_child"], node["right_child"]]
            if node["decision_type"] == "<=":
                every.append((node["split_feature"], node["threshold"]))
    for feature, threshold in every[:40]:
        near = np.float32(threshold)
        for value in (near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf)):
            row = matrix[rng.integers(ROWS)].copy()
            row[feature] = value
            rows.append(row[None])
    for value in (0.0, -0.0, 1e-36, np.nan, np.inf, -np.inf, 3e38):
        row = matrix[1].copy()
        row[:3] = value
        rows.append(row[None])
    for first, second in ((np.nan, np.nan), (5, 69), (99, 99), (0, 33)):
        row = matrix[2].copy()
        row[3:] = first, second
        rows.append(row[None])
    return np.concatenate(rows).astype(np.float32)


def main():
    for number, (name, parameters) in enumerate(CASES.items()):
        rng = np.random.default_rng(number)
        matrix, target = table(rng, missing=name != "no_missing")
        weight = rng.random(ROWS) if name == "regression" else None
        if name == "binary":
            target = target > 0.5
        if name == "multiclass":
            target = np.digitize(target, [0.0, 1.0])
        if name == "constant":
            target = np.full(ROWS, 2.5)
        data = lightgbm.Dataset(
            matrix,
            np.asarray(target, np.float32),
            weight=weight,
            categorical_feature=[3, 4],
        )
        booster = lightgbm.train({**SHARED, **parameters}, data)
        rows = rows_to_predict(rng, booster, matrix)
        # A forest's raw score is the sum of its trees, and its prediction the mean.
        is_forest = parameters.get("boosting") == "rf"
        scores = booster.predict(rows, raw_score=not is_forest)
        (HERE / f"{name}.txt").write_text(booster.model_to_string())
        text = {
            "rows": [[repr(float(value)) for value in row] for row in rows],
            "scores": scores.reshape(len(rows), -1).tolist(),
        }
        (HERE / f"{name}.json").write_text(json.dumps(text) + "\n")


if __name__ == "__main__":
    main()
