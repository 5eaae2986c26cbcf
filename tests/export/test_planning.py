"""Plans: how files become shards, and which changes are noticed."""

import dataclasses
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from estimax.export.scoring import planning
from estimax.export.scoring.plan import (
    SHARD_ROWS,
    FilePart,
    InputFile,
    ScoringJob,
    ShardPlan,
)

JOB = ScoringJob("export/7", "abc", "predict", ("id",), "parquet", 100)


def write_csv(path, rows, first=0):
    lines = ["x,id", *(f"{n},{n}" for n in range(first, first + rows))]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def sizes(shards):
    return [[(one.file, one.part.rows) for one in shard] for shard in shards]


def test_large_files_are_cut_and_small_files_joined_in_order(tmp_path):
    paths = [write_csv(tmp_path / f"{n}.csv", n) for n in (20, 30, 250, 60)]
    files, shards = planning.make_shards(paths, None, 100, processes=1)
    assert [file.path for file in files] == paths
    assert sizes(shards) == [
        [(0, 20), (1, 30)],
        [(2, 100)],
        [(2, 100)],
        [(2, 50)],
        [(3, 60)],
    ]


def test_few_rows_are_shared_by_all_processes(tmp_path):
    path = write_csv(tmp_path / "a.csv", 200_000)
    _, shards = planning.make_shards([path], None, SHARD_ROWS, processes=2)
    assert [one.part.rows for (one,) in shards] == [16384] * 11 + [19776]
    _, shards = planning.make_shards([path], None, SHARD_ROWS, processes=1)
    assert [one.part.rows for (one,) in shards] == [49152] * 4 + [3392]


def test_one_row_group_is_shared_by_the_processes(tmp_path):
    pq.write_table(pa.table({"x": [0.5] * 100_000}), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    _, alone = planning.make_shards([path], None, SHARD_ROWS, processes=1)
    assert [one.part.rows for (one,) in alone] == [100_000]
    _, shared = planning.make_shards([path], None, SHARD_ROWS, processes=3)
    assert [one.part.rows for (one,) in shared] == [36_864, 36_864, 26_272]


def test_a_plan_survives_json(tmp_path):
    paths = [write_csv(tmp_path / "a.csv", 250), write_csv(tmp_path / "b.csv", 10)]
    plan = ShardPlan(
        JOB, *planning.make_shards(paths, None, 100, processes=2), "schema"
    )
    assert ShardPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.total_rows == 260
    assert plan.file_name(1) == f"part-00001-of-{len(plan.shards):05d}.parquet"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format_version": 2}, "newer estimax"),
        ({"shards": [[{"file": 1, "part": {}}]]}, "file: expected a whole number"),
        ({"shards": 3}, "shards: expected a list"),
        ({"job": {"keep": "id"}}, "keep: expected a list of names"),
    ],
)
def test_a_plan_of_other_content_is_refused(change, words):
    file = InputFile("a.csv", "csv", 3, 4, 5, None)
    plan = ShardPlan(JOB, (file,), ((),))
    with pytest.raises(ValueError, match=words):
        ShardPlan.from_json(json.loads(json.dumps(plan.to_json())) | change)


def test_rows_are_unknown_if_a_part_does_not_know_them():
    parts = [planning.ShardPart(0, FilePart("csv", rows=n)) for n in (3, None)]
    plan = ShardPlan(JOB, (), (tuple(parts[:1]), tuple(parts)))
    assert (plan.rows(0), plan.rows(1), plan.total_rows) == (3, None, None)


@pytest.fixture
def planned(tmp_path):
    paths = [write_csv(tmp_path / "a.csv", 60_000), write_csv(tmp_path / "b.csv", 10)]
    return ShardPlan(JOB, *planning.make_shards(paths, None, 100, processes=2)), paths


def test_the_same_scoring_has_no_differences(planned):
    plan, paths = planned
    assert planning.differences(plan, JOB, paths, None) == []
    moved = replace(JOB, bundle="elsewhere/7")  # with the same checksum
    assert planning.differences(plan, moved, paths, None) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"checksum": "def", "bundle": "export/8"}, "the bundle was export/7, and is"),
        ({"signature": "regress"}, "signature was predict, and is regress now"),
        ({"keep": ()}, "keep was id, and is none now"),
        ({"output_format": "csv"}, "output_format was parquet, and is csv now"),
        ({"shard_rows": 7}, "shard_rows was 100, and is 7 now"),
    ],
)
def test_a_changed_option_is_a_difference(planned, change, words):
    plan, paths = planned
    (found,) = planning.differences(plan, replace(JOB, **change), paths, None)
    assert words in found


def test_changed_files_are_differences(planned, tmp_path):
    plan, paths = planned
    assert "2 input files, and are 1" in _only(plan, paths[:1])
    assert "a.csv was read as csv, and is read as jsonl" in _only(plan, paths, "jsonl")
    swapped = planning.differences(plan, JOB, paths[::-1], None)
    assert len(swapped) == 2
    assert "the input file was" in swapped[0]
    write_csv(tmp_path / "b.csv", 11)
    assert "bytes, and has" in _only(plan, paths)


def _only(plan, paths, form=None):
    return "; ".join(planning.differences(plan, JOB, paths, form))


def test_a_byte_far_from_the_samples_is_noticed_and_a_copy_is_the_same(planned):
    plan, paths = planned
    data = bytearray(Path(paths[0]).read_bytes())
    os.utime(paths[0], ns=(1, 1))  # copied again
    assert planning.differences(plan, JOB, paths, None) == []
    assert planning.with_paths(plan, paths).files[0].modified == 1
    data[100_000] = ord("9")  # samples are the first, middle and last 64 KiB
    Path(paths[0]).write_bytes(data)
    (found,) = planning.differences(plan, JOB, paths, None)
    assert "a.csv has other content, with the same size" in found


def test_fields_are_plain_json(planned):
    plan, _ = planned
    assert json.loads(json.dumps(dataclasses.asdict(plan)))["job"]["keep"] == ["id"]
