"""Scoring in several processes: every row once, in order, whatever is killed."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from estimax.core.errors import BundleError, ConfigError, InputError
from estimax.export.scoring import ChangedScoringError, ScoringError, score_files
from estimax.export.scoring.plan import MANIFEST, SHARD_ROWS
from tests.export import bundles

ROWS = 1500
# Runs `score_files` with the arguments in JSON; kills itself after so many shards.
SCORE = """
import json, os, signal, sys
from estimax.scoring import score_files
arguments = json.loads(sys.argv[1])
kill_after = int(sys.argv[2])

def on_progress(progress):
    print(progress.shards, progress.total_shards, flush=True)
    if progress.shards == kill_after and progress.rows > {done_rows}:
        os.kill(os.getpid(), signal.SIGKILL)

score_files(**arguments, on_progress=on_progress)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return bundles.write_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A file of each format, with keys of its own, in the order of their names."""
    folder = tmp_path_factory.mktemp("inputs")
    names = ("0.csv", "1.jsonl", "2.parquet", "3.tfrecord")
    for place, name in enumerate(names):
        rows = bundles.table(ROWS, first=place * ROWS)
        options = {"row_group_size": 400} if name == "2.parquet" else {}
        bundles.write(rows, folder / name, **options)
    return folder


@pytest.fixture(scope="module")
def expected(bundle):
    found = {}
    for place in range(4):
        found |= bundles.expected(bundle, bundles.table(ROWS, first=place * ROWS))
    return found


def check(folder, expected):
    rows = bundles.scored(folder)
    assert [key for key, _ in rows] == list(expected)
    scores = [score for _, score in rows]
    np.testing.assert_allclose(scores, list(expected.values()), rtol=1e-5)
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["rows"] == len(expected)
    names = [shard["name"] for shard in manifest["shards"]]
    assert sorted(path.name for path in folder.glob("[!_]*")) == names


def test_two_processes_score_files_of_every_format_in_order(
    bundle, inputs, expected, tmp_path
):
    seen = []
    result = score_files(
        bundle,
        str(inputs / "*"),
        tmp_path / "scores",
        processes=2,
        keep=["id"],
        shard_rows=500,
        on_progress=seen.append,
    )
    check(tmp_path / "scores", expected)
    assert (result.rows, result.new_rows) == (4 * ROWS, 4 * ROWS)
    # A row group of 400 is not cut, and 300 more would be too many for a shard.
    assert len(result.files) == 3 + 3 + 4 + 3
    assert seen[0].rows == 0
    assert [p.rows for p in seen] == sorted(p.rows for p in seen)
    last = seen[-1]
    assert (last.rows, last.total_rows) == (4 * ROWS, 4 * ROWS)
    assert (last.shards, last.total_shards) == (13, 13)


def killed(arguments, after):
    """Score in a process that is killed while it scores the next shards."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCORE.replace("{done_rows}", str(after * arguments["shard_rows"])),
            json.dumps(arguments),
            str(after),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout


def test_a_scoring_that_is_killed_continues_with_every_row_once(
    bundle, inputs, expected, tmp_path
):
    folder = tmp_path / "scores"
    arguments = {
        "bundle": str(bundle),
        "files": str(inputs / "*"),
        "output": str(folder),
        "processes": 2,
        "keep": ["id"],
        "shard_rows": 500,
        "output_format": "csv",
    }
    killed(arguments, after=5)
    complete = {p.name: p.stat().st_mtime_ns for p in folder.glob("part-*")}
    assert 5 <= len(complete) < 13
    assert not (folder / MANIFEST).exists()
    # In another number of processes, and with a shard that was lost meanwhile.
    lost = min(complete)
    (folder / lost).unlink()
    result = score_files(**{**arguments, "processes": 1})
    check(folder, expected)
    assert result.new_rows <= 4 * ROWS - 4 * 400
    kept = [n for n in list(complete)[:5] if n != lost]
    assert any((folder / n).stat().st_mtime_ns == complete[n] for n in kept)
    assert score_files(**arguments).new_rows == 0
    changed = {**arguments, "keep": ["id", "note"]}
    with pytest.raises(ChangedScoringError, match="13 of 13 shards") as caught:
        score_files(**changed)
    assert "keep was id, and is id,note now" in str(caught.value)
    assert "delete the folder or choose another" in str(caught.value)
    check(folder, expected)


def test_an_error_names_the_row_and_a_corrected_call_starts_anew(
    bundle, tmp_path, capfd
):
    given = tmp_path / "in.jsonl"
    rows = [{"id": n, "age": n, "city": "Oslo", "tags": "red"} for n in range(300)]
    rows[250]["age"] = "old"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "scores"
    with pytest.raises(InputError, match=r"in.jsonl, line 251: feature 'age'"):
        score_files(bundle, given, folder, keep=["id"])
    assert not list(folder.glob("[!_]*")), "no unfinished file is left"
    assert "Traceback" not in capfd.readouterr().err
    # No shard is complete, so a folder of other input may be used. The number of rows
    # of a compressed file is not known before it is read: there may be none.
    with gzip.open(tmp_path / "0.csv.gz", "wt") as file:
        file.write("id,age,city,tags,note\n")
    bundles.write(bundles.table(70), tmp_path / "1.csv")
    result = score_files(bundle, str(tmp_path / "?.csv*"), folder, keep=["note"])
    assert [file.name for file in result.files] == ["part-00000-of-00001.parquet"]
    assert pq.read_table(result.files[0])["note"].to_pylist() == ["x"] * 70


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"processes": 0}, "processes: expected at least 1, found 0"),
        ({"shard_rows": 0}, "shard_rows: expected at least 1, found 0"),
        ({"output_format": "parket"}, "unknown format 'parket'; did you mean 'parquet"),
    ],
)
def test_arguments_are_checked_before_anything_starts(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        score_files("no bundle", "no file", tmp_path / "scores", **change)
    assert not (tmp_path / "scores").exists()


def test_errors_of_a_process_are_those_of_the_call(tmp_path, inputs, bundle):
    files = str(inputs / "0.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleError, match=r"expected manifest\.json"):
        score_files(tmp_path / "empty", files, tmp_path / "scores")
    with pytest.raises(ConfigError, match="the model has an output 'classes'"):
        score_files(bundle, files, tmp_path / "scores", keep=["classes"])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_kills_at_any_moment_lose_and_double_no_row(
    bundle, inputs, expected, tmp_path, form
):
    """Kill the main process, then a scoring process, at times spread over a run."""
    folder = tmp_path / "scores"
    arguments = {
        "bundle": str(bundle),
        "files": str(inputs / "*"),
        "output": str(folder),
        "processes": 2,
        "keep": ["id"],
        "shard_rows": 100,
        "output_format": form,
    }
    chance = np.random.default_rng(len(form))
    for attempt in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", SCORE, json.dumps(arguments), "-1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as run:
            for _ in range(int(chance.integers(1, 25))):
                if not run.stdout.readline():
                    break
            victim = run.pid
            if attempt % 2:
                victim = int(chance.choice(_children(run.pid) or [run.pid]))
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            run.stdout.read()
    score_files(**arguments)
    check(folder, expected)
    assert not list(folder.glob(".*")), "no unfinished file is left"


def _children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(text) for text in path.read_text().split()]
    except OSError:
        return []


@pytest.mark.slow
def test_a_process_that_is_killed_is_named_and_the_scoring_can_continue(
    bundle, inputs, expected, tmp_path
):
    def kill_one(progress):
        if progress.shards == 2:
            os.kill(_children(os.getpid())[0], signal.SIGKILL)

    options = {"keep": ["id"], "shard_rows": 300, "processes": 2}
    files, folder = str(inputs / "*"), tmp_path / "scores"
    with pytest.raises(ScoringError, match=r"was killed by SIGKILL\. If the machine"):
        score_files(bundle, files, folder, **options, on_progress=kill_one)
    score_files(bundle, files, folder, **options)
    check(folder, expected)


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_a_scoring_that_can_continue(
    bundle, inputs, expected, tmp_path
):
    folder = tmp_path / "scores"
    arguments = {
        "bundle": str(bundle),
        "files": str(inputs / "*"),
        "output": str(folder),
        "keep": ["id"],
        "shard_rows": 500,
        "output_format": "jsonl",
    }
    # No file may have more than 50 kB, which the largest shards have.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50000,) * 2)\n"
    done = subprocess.run(
        [sys.executable, "-c", limit + SCORE, json.dumps(arguments), "-1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "OSError: [Errno 27] File too large" in last
    assert ".jsonl" in last
    assert "Traceback" in done.stderr
    assert not list(folder.glob(".*")), "no unfinished file is left"
    score_files(**arguments)
    check(folder, expected)


def test_shards_are_whole_batches():
    assert SHARD_ROWS % 4096 == 0
