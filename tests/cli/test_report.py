"""`estimax report`, and the report at the end of `estimax train`."""

import re
import sys

import pytest
from tensorboardX.proto.event_pb2 import Event

from estimax.hooks.summary import event_files

pytest.importorskip("matplotlib")


def test_a_model_directory_has_a_report(cli, trained, tmp_path):
    run, _ = trained
    output = tmp_path / "report.html"
    answer = cli("report", run.parent / "model", "--output", output, "--rows", 100)
    assert answer.code == 0, answer.err
    assert str(output) in answer.out
    text = output.read_text()
    assert "Two classes" in text
    assert re.search(
        r"train.max_steps</td><td[^>]*>40</td><td[^>]*>\S*run.yaml:\d", text
    )
    assert "estimax train" in text
    assert "settings at defaults" in text


def test_a_group_makes_it_a_ranking(cli, trained, tmp_path):
    output = tmp_path / "report.html"
    answer = cli("report", trained[0], "--group", "city", "--output", output)
    assert answer.code == 0, answer.err
    assert "mean reciprocal rank" in output.read_text()


def test_what_is_no_run_is_an_error(cli, trained, tmp_path):
    answer = cli("report", tmp_path)
    assert answer.code == 2
    assert "found a folder without config/resolved.yaml" in answer.err
    answer = cli("report", trained[0], "--source", "tset")
    assert answer.code == 2
    assert "unknown source 'tset'" in answer.err


@pytest.fixture(scope="module")
def reported(cli, tmp_path_factory):
    """A run that writes summaries and a report."""
    from cli.conftest import write_run

    path = write_run(tmp_path_factory.mktemp("reported"))
    settings = ["run.report=true", "run.save_summary_steps=10", "export=[]"]
    command = ["train", path, *(part for s in settings for part in ("--set", s))]
    return path, command, cli(*command)


def test_training_ends_with_a_report(reported):
    path, _, answer = reported
    assert answer.code == 0, answer.err
    report = path.parent / "model" / "report.html"
    assert f"report: {report}" in answer.err
    assert "--set run.report=true" in report.read_text()


def test_the_run_is_described_to_tensorboard(reported):
    folder = reported[0].parent / "model"
    texts, plugins = {}, set()
    for file in folder.glob("*.tfevents.*"):
        for record in event_files._records(file.read_bytes()):
            for value in Event.FromString(record).summary.value:
                plugins.add(value.metadata.plugin_data.plugin_name)
                if value.tensor.string_val:
                    texts[value.tag] = value.tensor.string_val[0].decode()
    assert "hparams" in plugins
    assert "max_steps: 40" in texts["config/text_summary"]
    assert "| city | text |" in texts["data/text_summary"]


def test_without_matplotlib_training_says_how_to_get_one(cli, reported, monkeypatch):
    path, command, _ = reported
    (path.parent / "model" / "report.html").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = cli(*command)
    assert answer.code == 0
    assert "no report was written" in answer.err
    assert "pip install 'estimax[report]'" in answer.err
    quiet = cli(*command, "--no-report")
    assert quiet.code == 0
    assert "report was written" not in quiet.err


def test_a_report_that_fails_is_a_note(cli, reported):
    path, command, _ = reported
    report = path.parent / "model" / "report.html"
    report.unlink(missing_ok=True)
    report.mkdir()
    answer = cli(*command)
    assert answer.code == 0, answer.err
    assert "no report was written: IsADirectoryError" in answer.err
    report.rmdir()
