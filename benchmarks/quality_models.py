"""The models of `quality.py`: what `estimax init` chooses, and others beside it.

    found = train_defaults(given, 0, folder, others={})
    found.answers["both"]                     # predictions for the test rows

The defaults are trained by the command line, on files, with nothing changed but the
seed. A part of the training rows is held out by the run file, for the best checkpoints
and the weights of the average. The other models have all rows.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from quality_tables import Table

from estimax import config
from estimax.config.build import build
from estimax.config.verdict import loss_curves, verdict_of


def score(answer: np.ndarray[Any, Any], labels: Any, classes: int) -> dict[str, float]:
    """Return log loss (and AUC, of two classes) or the root mean squared error."""
    if not classes:
        return {"rmse": float(np.sqrt(np.mean((answer - labels) ** 2)))}
    from sklearn.metrics import log_loss, roc_auc_score

    found = {"log_loss": float(log_loss(labels, answer, labels=range(classes)))}
    if classes == 2:
        found["auc"] = float(roc_auc_score(labels, answer[:, 1]))
    return found


def constant(given: Table, seed: int) -> np.ndarray[Any, Any]:
    """Predict the shares of the classes, or the mean."""
    rows = len(given.test)
    if not given.classes:
        return np.full(rows, given.train_label.mean())
    counts = np.bincount(given.train_label, minlength=given.classes)
    return np.tile(counts / counts.sum(), (rows, 1))


def linear(given: Table, seed: int) -> np.ndarray[Any, Any]:
    """Predict with logistic or ridge regression on scaled numbers and one-hot words."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = list(given.train.select_dtypes(exclude="number").columns)
    numbers = [name for name in given.train.columns if name not in words]
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), words),
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
    )
    model = LogisticRegression(max_iter=1000) if given.classes else Ridge()
    train, test = (
        rows.assign(**{name: rows[name].fillna("").astype(str) for name in words})
        for rows in (given.train, given.test)
    )
    pipeline = make_pipeline(columns, model).fit(train, given.train_label)
    if given.classes:
        return np.asarray(pipeline.predict_proba(test))
    return np.asarray(pipeline.predict(test))


def lightgbm(given: Table, seed: int) -> np.ndarray[Any, Any]:
    """Predict with LightGBM's defaults."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    train, test = given.train.copy(), given.test.copy()
    for name in train.select_dtypes(exclude="number").columns:
        kind = pd.CategoricalDtype(sorted(train[name].dropna().unique()))
        train[name], test[name] = train[name].astype(kind), test[name].astype(kind)
    names = {name: f"c{i}" for i, name in enumerate(train.columns)}
    train, test = train.rename(columns=names), test.rename(columns=names)
    options = {"random_state": seed, "verbose": -1, "n_jobs": 1}
    if given.classes:
        model = LGBMClassifier(**options).fit(train, given.train_label)
        return np.asarray(model.predict_proba(test))
    return np.asarray(
        LGBMRegressor(**options).fit(train, given.train_label).predict(test)
    )


REFERENCES = {"constant": constant, "linear": linear, "LightGBM": lightgbm}


class Trained(NamedTuple):
    """What a default model answers for the test rows, and what its training said."""

    answers: dict[str, np.ndarray[Any, Any]]  # of the model, and of each member
    cpu_seconds: float  # of `estimax train`, without the comparison and the report
    remarks: list[str]
    curve: list[tuple[int, float]]  # losses of the network on the held-out rows


def train_defaults(
    given: Table,
    seed: int,
    folder: Path,
    others: dict[str, dict[str, float]],
    changes: tuple[str, ...] = (),
) -> Trained:
    """Train what `estimax init` writes for a table: both members, and their average.

    `others` are the scores of the references, for the verdict; `changes` are values for
    `--set`, to try something.
    """
    write(given.train, given.train_label, folder / "train.csv")
    write(given.test, given.test_label, folder / "test.csv")
    files = ["train.csv", "--test", "test.csv", "--label", LABEL, "--model", "both"]
    estimax(folder, "init", *files, "--output", "run.yaml")
    # Nothing is exported: it takes a third of the time of a small table.
    fixed = [
        "run.compare=false",
        "export=[]",
        f"seed={seed}",
        f"data.sources.all.split.seed={seed}",
    ]
    changed = [f"--set={change}" for change in (*fixed, *changes)]
    seconds = estimax(folder, "train", "run.yaml", "--no-report", *changed)
    overrides = [*fixed, *changes, f"run.model_dir={folder}/runs/run"]
    overrides += [f"data.sources.all.files={folder}/train.csv"]
    overrides += [f"data.sources.test.files={folder}/test.csv"]
    built = build(config.load(folder / "run.yaml", overrides))
    test = built.input_fn("test")
    key = "probabilities" if given.classes else "predictions"
    average = built.estimator
    answers = {
        name: stacked(one.predict(test, checkpoint_path=best), key)
        for name, one in average.members.items()
        for best in [average.member_checkpoint(name)]
    }
    answers["both"] = stacked(average.predict(test), key)
    _, losses = loss_curves(built.run)["network"]
    curve = [(step, float(f"{loss:.5g}")) for step, loss in losses]
    return Trained(answers, seconds, remarks_of(built.run, others), curve)


LABEL = "label"


def write(rows: pd.DataFrame, labels: np.ndarray[Any, Any], path: Path) -> None:
    """Write a CSV file as a user has it: a missing value is an empty cell."""
    rows.assign(**{LABEL: labels}).to_csv(path, index=False)


def estimax(folder: Path, *arguments: str) -> float:
    """Run a command of estimax in a folder; return the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "estimax", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stacked(answers: Any, key: str) -> np.ndarray[Any, Any]:
    """Return the answers for all rows as one array."""
    found = np.stack([one[key] for one in answers])
    return found[:, 0] if key == "predictions" else found


def remarks_of(run: Any, others: dict[str, dict[str, float]]) -> list[str]:
    """Return what `estimax train` says at the end, with these scores beside it."""
    path = Path(run.run.model_dir) / "config" / "results.json"
    saved = json.loads(path.read_text())
    beside = {
        name.lower(): {
            "average_loss": scores.get("log_loss", scores.get("rmse", 0) ** 2)
        }
        for name, scores in others.items()
    }
    found = verdict_of(run, saved["metrics"], saved["baseline"], beside)
    return [f"{remark.title}: {remark.text}" for remark in found]
