"""The folder of a scoring: which shards count as complete."""

import json

import pytest

from estimax.core.errors import InputError, InUseError
from estimax.export.scoring.plan import (
    DONE,
    MANIFEST,
    PLAN,
    CompleteShard,
    FilePart,
    OutputFolder,
    ScoringJob,
    ShardPart,
    ShardPlan,
)

JOB = ScoringJob("export/7", "abc", "predict", ("id",), "csv", 100)
PLAN_OF_3 = ShardPlan(
    JOB, (), tuple((ShardPart(0, FilePart("csv")),) for _ in range(3))
)


@pytest.fixture
def folder(tmp_path):
    folder = OutputFolder(tmp_path / "scores")
    with folder.hold():
        folder.start(PLAN_OF_3)
        yield folder


def complete(folder, shard, text="id,score\n"):
    (folder.path / PLAN_OF_3.file_name(shard)).write_text(text)
    folder.record(CompleteShard(shard, 5, len(text)))


def test_a_shard_needs_a_line_and_a_file_of_that_size(folder):
    for shard in range(3):
        complete(folder, shard)
    assert set(folder.complete_shards(PLAN_OF_3)) == {0, 1, 2}
    (folder.path / PLAN_OF_3.file_name(0)).write_text("id")  # truncated
    (folder.path / PLAN_OF_3.file_name(2)).unlink()
    assert set(folder.complete_shards(PLAN_OF_3)) == {1}
    (folder.path / PLAN_OF_3.file_name(0)).write_text("id,score\n")
    assert set(folder.complete_shards(PLAN_OF_3)) == {1}, "forgotten for good"


def test_a_line_that_was_cut_off_does_not_count(folder):
    complete(folder, 0)
    complete(folder, 1)
    lines = (folder.path / DONE).read_bytes()
    (folder.path / DONE).write_bytes(lines[:-9])
    assert set(folder.complete_shards(PLAN_OF_3)) == {0}
    complete(folder, 1)  # the next line is not appended to the one that was cut off
    assert set(folder.complete_shards(PLAN_OF_3)) == {0, 1}


def test_the_manifest_is_there_only_while_all_shards_are(folder):
    for shard in range(3):
        complete(folder, shard)
    done = folder.complete_shards(PLAN_OF_3)
    folder.finish(PLAN_OF_3, done)
    manifest = json.loads((folder.path / MANIFEST).read_text())
    assert manifest["rows"] == 15
    assert [one["name"] for one in manifest["shards"]] == [
        PLAN_OF_3.file_name(n) for n in range(3)
    ]
    assert folder.complete_shards(PLAN_OF_3) == done
    assert (folder.path / MANIFEST).exists()
    (folder.path / PLAN_OF_3.file_name(2)).unlink()
    folder.complete_shards(PLAN_OF_3)
    assert not (folder.path / MANIFEST).exists()


def test_another_scoring_may_not_write_there(folder):
    with (
        pytest.raises(InUseError, match="is scoring here already"),
        OutputFolder(folder.path).hold(),
    ):
        pass


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "mine.csv").write_text("x")
    with (
        pytest.raises(InputError, match=r"found 'mine.csv'. Choose another"),
        OutputFolder(tmp_path).hold(),
    ):
        pass
    with (
        pytest.raises(InputError, match="expected a folder for the shards, found a"),
        OutputFolder(tmp_path / "mine.csv").hold(),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_damaged_plan_is_an_error_and_not_a_new_scoring(folder):
    assert folder.plan() == PLAN_OF_3
    text = (folder.path / PLAN).read_text()
    for damaged in (
        text[:-9],
        "{}",
        text.replace('"shard_rows":100', '"shard_rows":7'),
    ):
        (folder.path / PLAN).write_text(damaged)
        with pytest.raises(InputError, match="expected the plan of a scoring"):
            folder.plan()


def test_discarding_a_plan_removes_its_shards_and_nothing_else(folder):
    complete(folder, 1)
    (folder.path / "mine.txt").write_text("x")
    folder.discard(PLAN_OF_3)
    assert folder.plan() is None
    assert not (folder.path / PLAN_OF_3.file_name(1)).exists()
    assert (folder.path / "mine.txt").exists()
