"""Two runs side by side, and a bundle of a checkpoint."""

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def two(trained, tmp_path):
    """The model directory of a trained run, and a copy that says another model."""
    first = trained[0].parent / "model"
    second = tmp_path / "other"
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("export", "*.lock"))
    resolved = second / "config" / "resolved.yaml"
    text = resolved.read_text()
    resolved.write_text(text.replace("hidden_units: [8]", "hidden_units: [16]"))
    return first, second


def test_a_diff_shows_what_differs_and_all_metrics(cli, two):
    answer = cli("diff", *two)
    assert answer.code == 0, answer.err
    assert "model.dnn.hidden_units" in answer.out
    assert "[16]" in answer.out
    assert "optimizers" not in answer.out
    assert "data: no difference" in answer.out
    assert "eval/auc" in answer.out


def test_a_diff_as_json_has_pairs(cli, two):
    found = json.loads(cli("diff", *two, "--json").out)
    assert found["config"] == {"model.dnn.hidden_units": [[8], [16]]}
    assert found["steps"] == [40, 40]
    first, second = found["metrics"]["eval/auc"]
    assert first == second


def test_compare_lists_runs_with_what_differs(cli, two):
    answer = cli("compare", *two, "--metric", "auc")
    assert answer.code == 0, answer.err
    assert "2 runs" in answer.out
    lines = [json.loads(x) for x in cli("compare", *two, "--json").out.splitlines()]
    assert [line["config"]["model.dnn.hidden_units"] for line in lines] == [[8], [16]]
    wrong = cli("compare", *two, "--metric", "acu")
    assert (wrong.code, "did you mean 'auc'?" in wrong.err) == (2, True)


def test_a_checkpoint_is_exported_without_the_data(cli, two, trained, tmp_path):
    model = two[0]
    copy = tmp_path / "alone"
    shutil.copytree(model, copy, ignore=shutil.ignore_patterns("export", "*.lock"))
    answer = cli("export", copy, "--output", tmp_path / "bundles")
    assert answer.code == 0, answer.err
    bundle = Path(answer.out.strip())
    assert bundle.parent == tmp_path / "bundles"
    data = trained[0].parent / "test.csv"
    ran = cli("run", bundle, "--input", data, "--output", tmp_path / "out.csv")
    assert ran.code == 0, ran.err
    kept = cli("run", model / "export" / "best", "--input", data)
    assert (tmp_path / "out.csv").read_text() == kept.out
