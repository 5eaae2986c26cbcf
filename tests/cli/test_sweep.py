"""Trials in several processes, each exactly once, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.cli import conftest

SPACE = "optimizers.dnn.learning_rate={log_uniform: [0.01, 0.5]}"
QUICK = ["--set", "train.max_steps=10", "--set", "run.save_checkpoints.every_steps=5"]


def results(folder):
    paths = sorted(folder.glob("trials/[0-9][0-9][0-9][0-9].json"))
    return [json.loads(path.read_bytes()) for path in paths]


def test_a_sweep_tries_tells_and_is_not_repeated(cli, run_file):
    folder = run_file.parent / "sweep"
    command = ["sweep", run_file, *QUICK, "--space", SPACE, "--trials", "2"]
    answer = cli(*command, "--output", folder)
    assert answer.code == 0, answer.err
    assert "2 trials by auc, best first" in answer.out
    assert "to train the best one" in answer.err
    assert "<svg" in (folder / "sweep.svg").read_text()
    before = results(folder)
    assert [r["state"] for r in before] == ["done", "done"]
    again = cli(*command, "--output", folder)
    assert "2 of 2 trials were complete before" in again.err
    assert results(folder) == before
    events = [
        json.loads(line)
        for line in cli(*command, "--output", folder, "--json").out.splitlines()
    ]
    assert [e["event"] for e in events] == ["start", "end"], "all trials are complete"
    assert events[0]["complete"] == events[0]["trials"] == 2
    assert events[1]["best"] in before
    other = cli(*command[:-4], "--space", "seed={choice: [1]}", "--output", folder)
    assert other.code == 2
    assert "holds a sweep with another space" in other.err
    compared = cli("compare", folder, "--metric", "auc", "--json")
    lines = [json.loads(line) for line in compared.out.splitlines()]
    assert ["optimizers.dnn.learning_rate" in x["config"] for x in lines] == [True] * 2


def test_trials_are_events_for_programs_and_quiet_prints_the_table(cli, run_file):
    folder = run_file.parent / "sweep"
    space = ["--space", "optimizers.dnn.learning_rate={choice: [0.1, 0.2]}"]
    command = ["sweep", run_file, *QUICK, *space, "--output", folder]
    answer = cli(*command, "--trials", "1", "--json")
    assert answer.code == 0, answer.err
    assert answer.err == ""
    start, trial, end = map(json.loads, answer.out.splitlines())
    assert (start["event"], start["metric"], start["mode"]) == ("start", "auc", "max")
    (saved,) = results(folder)
    assert trial == {"event": "trial", "complete": 1, **saved}
    assert (end["event"], end["best"], end["failed"]) == ("end", saved, 0)
    quiet = cli(*command, "--trials", "1", "--quiet")
    assert quiet.err == ""
    assert "1 trials by auc, best first" in quiet.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "sweep.space: nothing to try"),
        (["--space", "sed={choice: [1]}"], "sed: unknown key; did you mean 'seed'?"),
        (["--space", "seed={choice: [-1]}"], "--set seed=-1: seed: must be >= 0"),
        (["--space", "seed"], "expected PATH={choice"),
        (["--space", SPACE, "--metric", "acu"], "did you mean 'auc'?"),
        (["--space", SPACE, "--method", "greed"], "did you mean 'grid'?"),
    ],
)
def test_mistakes_are_found_before_the_first_trial(cli, run_file, options, words):
    answer = cli("sweep", run_file, *options)
    assert answer.code == 2, answer.err
    assert words in answer.err
    assert not (run_file.parent / "model-sweep").exists()


def test_a_sweep_without_optuna_names_the_extra_to_install(cli, run_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    answer = cli("sweep", run_file, "--space", SPACE)
    assert answer.code == 2
    assert "pip install 'estimax[sweep]'" in answer.err
    assert not (run_file.parent / "model-sweep").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "optuna"])
def test_twelve_trials_over_two_processes_survive_a_kill(run_file, method):
    folder = run_file.parent / "sweep"
    command = [sys.executable, "-m", "estimax", "sweep", str(run_file)]
    command += ["--space", SPACE, "--trials", "12", "--processes", "2"]
    command += ["--method", method, "--output", str(folder)]
    environment = os.environ | conftest.PLAIN
    environment.pop("XLA_FLAGS", None)
    first = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while len(results(folder)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done = results(folder)
    assert 4 <= len(done) < 12
    second = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert second.returncode == 0, second.stderr
    assert f"{len(done)} of 12 trials were complete before" in second.stderr
    after = results(folder)
    assert Counter(r["trial"] for r in after) == Counter(range(12))
    assert all(r["state"] == "done" for r in after)
    assert [r for r in after if r["trial"] in {d["trial"] for d in done}] == done
    told = [line for line in second.stderr.splitlines() if line.startswith("[")]
    assert len(told) == 12 - len(done), "no other trial was trained again"


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--set", "eval.also={again: {source: test}}"]])
def test_a_bad_trial_is_pruned_while_the_others_train_to_the_end(
    process, run_file, more
):
    folder = run_file.parent / "sweep"
    rates = "{choice: [0.3, 0.2, 0.1, 1e-6]}"
    command = [
        "sweep",
        run_file,
        *("--method", "grid", "--metric", "average_loss", "--output", folder),
        *("--space", f"optimizers.linear.learning_rate={rates}"),
        *("--set", "optimizers.dnn.learning_rate=1e-6"),
        *("--set", "run.save_checkpoints.every_steps=10"),
        *("--set", "sweep={prune: {min_evals: 1, min_trials: 2}}"),
        *more,
    ]
    answer = process(*command, "--json")
    assert answer.code == 0, answer.err
    events = [json.loads(line) for line in answer.out.splitlines()]
    trials = {event["trial"]: event for event in events if event["event"] == "trial"}
    found = {number: (t["state"], t["steps"]) for number, t in trials.items()}
    # The first two have no two others to be compared with.
    assert found[0] == found[1] == ("done", 40)
    assert found[3] == ("pruned", 10), "worse than the median at its first evaluation"
    assert events[-1]["best"]["trial"] in (0, 1)
    again = process(*command)
    assert "4 of 4 trials were complete before" in again.err, "and is not resumed"
    assert "pruned" in again.out
