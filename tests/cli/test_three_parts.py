"""Train, validation and test rows: every command speaks of the best step."""

import json
import random

import pytest

from estimax import checkpoints

RUN = """\
schema: estimax/run/v1
name: parts
seed: 3
run: {model_dir: model, save_checkpoints: {every_steps: 20, keep_last: 2},
      report: false}
data:
  label: y
  sources:
    all: {format: csv, files: t.csv, batch_size: 16, epochs: null,
          shuffle: {buffer_rows: 100},
          split: {parts: {train: 0.5, validation: 0.25, test: 0.25}, by: random}}
features:
  a: {type: numeric}
  b: {type: numeric}
model: {type: dnn, dnn: {features: {numeric: [a, b]}, hidden_units: [32]},
        head: {type: binary}}
optimizers: {dnn: {type: adam, learning_rate: 0.3}}
train: {max_steps: 120}
eval: {source: validation}
export: [{type: best, metric: average_loss, keep: 1}]
test: {source: test}
"""


@pytest.fixture
def folder(tmp_path):
    chance = random.Random(4)
    rows = [(chance.gauss(0, 1), chance.gauss(0, 1)) for _ in range(200)]
    lines = [f"{a:.3f},{b:.3f},{int(a + chance.gauss(0, 1) > 0)}" for a, b in rows]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path


def test_every_command_speaks_of_the_best_step(cli, folder):
    answer = cli("train", "run.yaml", "--json", cwd=folder)
    assert answer.code == 0, answer.err
    end = json.loads(answer.out.splitlines()[-1])
    best = end["best_step"]
    # A rate of 0.3 overfits at once, so an early evaluation is the best.
    assert best < 120
    assert (
        end["metrics"]["global_step"] == end["test"]["metrics"]["global_step"] == best
    )
    kept = [
        checkpoints.step_of(p) for p in checkpoints.all_checkpoints(folder / "model")
    ]
    assert set(kept) == {best, 100, 120}

    # A second call trains nothing, and says the same.
    second = cli("train", "run.yaml", "--json", cwd=folder)
    repeated = json.loads(second.out.splitlines()[-1])
    assert repeated["best_step"] == best
    assert repeated["test"] == end["test"]

    again = cli("evaluate", "run.yaml", "--json", cwd=folder)
    found = json.loads(again.out.splitlines()[-1])
    assert (found["source"], found["step"]) == ("test", best)
    test = end["test"]["metrics"]
    assert found["metrics"]["average_loss"] == test["average_loss"]

    ours = cli(
        "predict", "run.yaml", "--input", "t.csv", "--output", "a.csv", cwd=folder
    )
    assert ours.code == 0, ours.err
    theirs = cli("run", "model/export/best", "--input", "t.csv", "--output", "b.csv",
                 cwd=folder)  # fmt: skip
    assert theirs.code == 0, theirs.err
    columns = [(folder / name).read_text().splitlines() for name in ("a.csv", "b.csv")]
    assert len(columns[0]) == len(columns[1]) == 201

    shown = cli("evaluate", "run.yaml", "--source", "validation", "--json", cwd=folder)
    found = json.loads(shown.out.splitlines()[-1])
    assert found["metrics"]["average_loss"] == pytest.approx(
        end["metrics"]["average_loss"]
    )


def test_a_run_that_goes_on_ends_like_one_that_was_not_stopped(cli, folder):
    whole = cli("train", "run.yaml", "--json", "--model-dir", "a", cwd=folder)
    some = ("train", "run.yaml", "--json", "--model-dir", "b")
    assert cli(*some, "--set", "train.max_steps=50", cwd=folder).code == 0
    ended = cli(*some, cwd=folder)
    ends = [json.loads(one.out.splitlines()[-1]) for one in (whole, ended)]
    assert ends[0]["best_step"] == ends[1]["best_step"]
    assert ends[0]["test"] == ends[1]["test"]


def test_check_counts_the_rows_of_each_part(cli, folder):
    answer = cli("check", "run.yaml", "--data", cwd=folder)
    assert answer.code == 0, answer.err
    assert "train + validation + test: 200 rows" in answer.out
    assert answer.out.count("column") == 1, "the files are shown once"
    line = next(s for s in answer.out.splitlines() if s.startswith("rows of each part"))
    counts = [int(word) for word in line.split() if word.isdigit()]
    assert sum(counts) == 200


def test_a_part_by_time_is_counted_as_well(cli, folder):
    lines = (folder / "t.csv").read_text().splitlines()
    dated = [f"2024-01-{1 + i // 10:02},{line}" for i, line in enumerate(lines[1:])]
    (folder / "t.csv").write_text("\n".join(["day,a,b,y", *dated]) + "\n")
    text = RUN.replace("by: random", "by: time, key: day")
    (folder / "run.yaml").write_text(text)
    answer = cli("check", "run.yaml", "--data", cwd=folder)
    assert answer.code == 0, answer.err
    assert "train 100 (50.0%), validation 50 (25.0%), test 50 (25.0%)" in answer.out


def test_an_unknown_test_source_is_named(cli, folder):
    (folder / "run.yaml").write_text(RUN.replace("{source: test}", "{source: tset}"))
    answer = cli("check", "run.yaml", cwd=folder)
    assert "test.source: unknown source 'tset'; did you mean 'test'" in answer.err
