"""`estimax run`: rows of every format through a bundle."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xla_flags

import estimax as ex
from estimax import export
from tests.cli.conftest import PLAIN
from tests.export import servables

ROWS = [
    {"id": f"r{n}", "age": 20 + n, "city": city, "tags": "red", "note": "x"}
    for n, city in enumerate(["Oslo", "Rome", "", "Bonn", "Oslo"])
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    base = tmp_path_factory.mktemp("bundle")
    export.write_bundle(servables.wide_servable(), base, platforms=("cpu",))
    return base


@pytest.fixture(scope="module")
def expected(bundle):
    found = export.load(bundle).predict(ROWS, ignore_extra=True)
    return [f"{p:.6f}" for p in found["probabilities"][:, 0]]


def write_csv(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)


def write_json_lines(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in ROWS))


def write_tfrecord(path):
    examples = [
        ex.input.Example.of({**row, "age": float(row["age"])}).serialize()
        for row in ROWS
    ]
    with ex.input.TFRecordWriter(path) as writer:
        for example in examples:
            writer.write(example)


WRITERS = {
    "in.csv": write_csv,
    "in.csv.gz": write_csv,
    "in.jsonl": write_json_lines,
    "in.jsonl.gz": write_json_lines,
    "in.parquet": lambda path: pq.write_table(pa.table(COLUMNS), path),
    "in.tfrecord": write_tfrecord,
    "in.npz": lambda path: np.savez(
        path, **{k: np.array(v) for k, v in COLUMNS.items()}
    ),
}


def written(name, folder):
    WRITERS[name](folder / name)
    return folder / name


def probabilities(rows):
    return [f"{float(row['probabilities_0']):.6f}" for row in rows]


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_read_and_columns_are_kept(
    cli, bundle, expected, tmp_path, name
):
    given = written(name, tmp_path)
    answer = cli("run", bundle, "--input", given, "--keep", "id,note")
    assert answer.code == 0, answer.err
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert probabilities(rows) == expected
    assert [(row["id"], row["note"]) for row in rows] == [
        (row["id"], "x") for row in ROWS
    ]


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet", "in.tfrecord"])
def test_the_format_of_a_file_without_a_suffix_follows_from_its_content(
    cli, bundle, expected, tmp_path, name
):
    bare = written(name, tmp_path).rename(tmp_path / "bare")
    answer = cli("run", bundle, "--input", bare)
    assert answer.code == 0, answer.err
    assert probabilities(csv.DictReader(io.StringIO(answer.out))) == expected


def piped(bundle, given, *arguments):
    environment = {**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE}
    return subprocess.run(
        [sys.executable, "-m", "estimax", "run", bundle, "--input", "-", *arguments],
        input=given,
        capture_output=True,
        check=False,
        env=environment | PLAIN,
        timeout=300,
    )


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet"])
def test_standard_input_is_read(bundle, expected, tmp_path, name):
    done = piped(bundle, written(name, tmp_path).read_bytes(), "--output-format=jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f"{row['probabilities'][0]:.6f}" for row in rows] == expected


def test_an_error_in_standard_input_names_its_line(bundle):
    good = json.dumps(ROWS[0])
    done = piped(bundle, f"{good}\n\n{{'age'\n".encode())
    assert done.returncode == 1
    assert b"standard input, line 3: expected a JSON object" in done.stderr
    done = piped(bundle, b"age,city,tags\n31,Oslo,red\nold,Rome,red\n")
    assert b"standard input, line 3" in done.stderr
    assert b"tmp" not in done.stderr


def test_a_reader_that_stops_ends_the_run_quietly(bundle, tmp_path):
    row = json.dumps(ROWS[0]) + "\n"
    (tmp_path / "in.jsonl").write_text(row * 20_000)
    command = [sys.executable, "-m", "estimax", "run", bundle, "--input"]
    with subprocess.Popen(
        [*command, tmp_path / "in.jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | PLAIN,
    ) as run:
        assert run.stdout.readline()
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait(60) == 1


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet", "tfrecord"])
def test_the_suffix_is_the_format_of_the_output(
    cli, bundle, expected, tmp_path, suffix
):
    out = tmp_path / f"out.{suffix}"
    given = written("in.parquet", tmp_path)
    answer = cli("run", bundle, "--input", given, "--output", out, "--keep", "id")
    assert answer.code == 0, answer.err
    if suffix == "csv":
        found = probabilities(csv.DictReader(io.StringIO(out.read_text())))
    elif suffix == "parquet":
        table = pq.read_table(out)
        assert table["id"].to_pylist() == COLUMNS["id"]
        assert set(table["classes"].to_pylist()) <= {"no", "yes"}
        found = [f"{p[0]:.6f}" for p in table["probabilities"].to_pylist()]
    elif suffix == "tfrecord":
        rows = map(ex.input.Example.parse, ex.input.TFRecordDataset(str(out)))
        found = [f"{row.features['probabilities'].values[0]:.6f}" for row in rows]
    else:
        text = out.read_text()
        rows = (
            json.loads(text) if suffix == "json" else map(json.loads, text.splitlines())
        )
        found = [f"{row['probabilities'][0]:.6f}" for row in rows]
    assert found == expected


def test_an_error_names_file_and_line_and_leaves_no_output(cli, bundle, tmp_path):
    rows = [*ROWS, {**ROWS[0], "age": "old"}, *ROWS]
    given = tmp_path / "in.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"out.{suffix}"
        answer = cli("run", bundle, "--input", given, "--output", out)
        assert answer.code == 1
        assert f"{given}, line 6: feature 'age': expected float32" in answer.err
        assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_column_that_is_not_there_is_named_with_its_neighbour(cli, bundle, tmp_path):
    frame = pa.table({**COLUMNS, "citty": COLUMNS["city"]}).drop_columns(["city"])
    pq.write_table(frame, tmp_path / "in.parquet")
    answer = cli("run", bundle, "--input", tmp_path / "in.parquet")
    assert "needs a column 'city'; did you mean 'citty'" in answer.err
    given = written("in.csv", tmp_path)
    answer = cli("run", bundle, "--input", given, "--keep", "idd")
    assert "--keep: no column 'idd'; did you mean 'id'" in answer.err


def test_a_kept_column_must_not_have_the_name_of_an_output(cli, bundle, tmp_path):
    given = written("in.csv", tmp_path)
    answer = cli("run", bundle, "--input", given, "--keep", "classes")
    assert answer.code == 2
    assert "--keep: the model has an output 'classes'" in answer.err


def test_a_missing_number_without_a_default_names_its_row(cli, bundle, tmp_path):
    ages = pa.array([20, None, 22, 23, 24])
    table = pa.table(COLUMNS).set_column(1, "age", ages)
    pq.write_table(table, tmp_path / "in.parquet")
    answer = cli("run", bundle, "--input", tmp_path / "in.parquet")
    assert answer.code == 1
    assert f"{tmp_path / 'in.parquet'}, row 2: feature 'age'" in answer.err


def test_an_unknown_format_is_refused(cli, bundle, tmp_path):
    answer = cli("run", bundle, "--input", "-", "--format", "parquett")
    assert answer.code == 2
    assert "unknown format 'parquett'; did you mean 'parquet'" in answer.err


def test_processes_write_a_folder_of_shards(cli, bundle, expected, tmp_path):
    given = written("in.csv", tmp_path)
    out = tmp_path / "scores"
    command = ["run", bundle, "--input", given, "--output", out, "--processes", "1"]
    answer = cli(
        *command, "--keep", "id", "--output-format", "csv", "--shard-rows", "3"
    )
    assert answer.code == 0, answer.err
    assert f"5 rows in 2 shards in {out}" in answer.err
    rows = []
    for number in range(2):
        text = (out / f"part-0000{number}-of-00002.csv").read_text()
        rows += csv.DictReader(io.StringIO(text))
    assert probabilities(rows) == expected
    assert [row["id"] for row in rows] == COLUMNS["id"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--input", "-", "--output", "scores"], "standard input cannot be shared"),
        (["--input", "a.csv"], "name it with --output"),
        (
            ["--input", "a.csv", "--output", "scores.json"],
            "--output scores --output-format jsonl",
        ),
    ],
)
def test_what_processes_cannot_do_is_refused_with_advice(
    cli, bundle, tmp_path, options, words
):
    answer = cli("run", bundle, "--processes", "2", *options, cwd=tmp_path)
    assert answer.code == 2
    assert words in answer.err
    assert not list(tmp_path.iterdir())


def test_shards_need_processes(cli, bundle):
    answer = cli("run", bundle, "--input", "a.csv", "--shard-rows", "7")
    assert answer.code == 2
    assert "--shard-rows: only --processes writes shards" in answer.err


def test_an_empty_file_has_no_columns(cli, bundle, tmp_path):
    (tmp_path / "in.csv").touch()
    answer = cli("run", bundle, "--input", tmp_path / "in.csv")
    assert answer.code == 1
    assert (
        "needs the columns 'age', 'city', 'tags'; the file has no columns" in answer.err
    )
