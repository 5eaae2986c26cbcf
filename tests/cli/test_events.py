"""Output for people and for programs."""

import json

import pytest

from estimax.cli.console import emit, output


def test_quiet_prints_the_result_alone(cli, trained):
    answer = cli("evaluate", trained[0], "--quiet")
    assert answer.code == 0
    assert answer.err == ""
    assert "baseline" in answer.out
    wrong = cli("evaluate", trained[0], "--quiet", "--source", "tain")
    assert "unknown source 'tain'" in wrong.err, "errors are printed all the same"


def test_predictions_go_to_the_file_and_events_to_standard_output(
    cli, trained, tmp_path
):
    given = ["predict", trained[0], "--input", trained[0].parent / "test.csv", "--json"]
    assert "name a file" in cli(*given).err
    answer = cli(*given, "--output", tmp_path / "out.csv")
    assert answer.code == 0, answer.err
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert events[-1] == {
        "event": "end",
        "rows": 120,
        "output": str(tmp_path / "out.csv"),
    }
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 121


@pytest.mark.parametrize("as_json", [True, False])
def test_numbers_that_json_lacks_are_null(capsys, as_json):
    with output(quiet=False, as_json=as_json):
        emit("step", loss=float("nan"), list=[float("inf"), 1.0])
    expected = '{"event": "step", "loss": null, "list": [null, 1.0]}\n'
    assert capsys.readouterr().out == (expected if as_json else "")
