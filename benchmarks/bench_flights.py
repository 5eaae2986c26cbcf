"""Is it as good? Flights, by estimax, by tf.estimator and by scikit-learn.

    python examples/flights/prepare.py        # once: writes data/flights/*.csv
    python benchmarks/bench_flights.py

A wide-and-deep model with the same columns, optimizers, order of examples and steps in
estimax and in tf.estimator 2.15.1, started from several seeds; scikit-learn's logistic
regression and gradient boosting on the same features. The test months chose nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import machine
import numpy as np
from environments import tf_python
from flights_task import NUMBERS, Setup, flights
from race import HERE, tell


def main() -> None:
    options = _options()
    setup = Setup(folder=options.data, steps=options.steps)
    *_, late = flights(setup)
    racers = {"estimax": (sys.executable, "flights_estimax.py")}
    if not options.without_tf:
        racers["tf.estimator"] = (tf_python(options.tf_python), "flights_tf.py")
    found = {
        name: _several(name, command, setup, late, options.seeds)
        for name, command in racers.items()
    }
    found |= _scikit_learn(setup, late)
    machine.write_result(
        "flights",
        {
            "setup": asdict(replace(setup, folder="", answers="")),
            "test_examples": len(late),
            "auc": found,
            "ratios": [],
        },
    )


def _several(
    name: str, command: tuple[str, str], setup: Setup, late: np.ndarray, seeds: int
) -> dict[str, Any]:
    python, script = command
    scores, seconds = [], []
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            answers = str(Path(folder) / "answers.npy")
            mine = replace(setup, seed=seed, answers=answers)
            start = time.perf_counter()
            done = subprocess.run(
                [python, str(HERE / script), mine.to_json()],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
            seconds.append(round(time.perf_counter() - start, 1))
            scores.append(_auc(late, np.load(answers)))
        tell(f"{name}, seed {seed}: AUC {scores[-1]:.4f}, {seconds[-1]} s in all")
    return {
        "seeds": [round(score, 5) for score in scores],
        "mean": round(float(np.mean(scores)), 5),
        "seconds_in_all": seconds,
    }


def _scikit_learn(setup: Setup, late: np.ndarray) -> dict[str, Any]:
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    train, labels, test, _ = flights(setup)
    table, questions = (
        pd.DataFrame(
            {k: v.astype(str) if v.dtype == object else v for k, v in t.items()}
        )
        for t in (train, test)
    )
    others = [name for name in table if name not in NUMBERS]
    one_hot = OneHotEncoder(handle_unknown="ignore", min_frequency=5)
    regression = make_pipeline(
        make_column_transformer((one_hot, others), remainder="passthrough"),
        LogisticRegression(C=0.1, max_iter=300),
    )
    small = [name for name in others if table[name].nunique() <= 255]
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    boosting = make_pipeline(
        make_column_transformer((ordinal, small), ("passthrough", NUMBERS)),
        HistGradientBoostingClassifier(
            categorical_features=range(len(small)), random_state=0
        ),
    )
    found = {}
    models = {"logistic regression": regression, "gradient boosting": boosting}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(table, labels)
        score = _auc(late, model.predict_proba(questions)[:, 1])
        seconds = round(time.perf_counter() - start, 1)
        found[name] = {"mean": round(score, 5), "seconds_in_all": [seconds]}
        tell(f"{name}: AUC {score:.4f}, {seconds} s")
    return found


def _auc(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data/flights", help="train.csv, test.csv")
    parser.add_argument("--steps", type=int, default=2100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
