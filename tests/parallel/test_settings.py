"""Processes with different settings end within seconds, with a line that says so."""

import json

import pytest
from parallel.cluster_jobs import SMALL, Job

from estimax import checkpoints


def job(tmp_path, settings=None, own=None, **options):
    """Start a chief and a worker; `own` are the settings that only the worker has."""
    return Job(
        tmp_path / "m",
        json.dumps(settings or {}),
        program=SMALL,
        devices=1,
        own={"worker 0": [json.dumps(own)]} if own else {},
        **options,
    )


def test_the_first_process_evaluates_with_the_default_seed(tmp_path):
    started = job(tmp_path, {"evaluate": True}, chief="master").end_well()
    assert "metrics of step 6" in started.log("master 0")
    assert "metrics of step None" in started.log("worker 0")


def refused(started):
    """Wait until all have ended with an error; return what the chief printed."""
    assert set(started.wait().values()) == {1}, started.log("chief 0")
    printed = [started.log(name) for name in ("chief 0", "worker 0")]
    for one in printed:
        assert "Gloo" not in one  # nothing was computed together
    # Every process says why it ends, and no more than that.
    errors = [one.strip().rpartition("estimax.core.errors.")[2] for one in printed]
    assert errors[0] == errors[1]
    return printed[0]


def test_another_number_of_steps_ends_all_processes(tmp_path):
    printed = refused(job(tmp_path, own={"train": {"max_steps": 9}}))
    assert "max_steps: 6 in chief (process 0 of 2, pid " in printed
    assert "; 9 in worker 0 (process 1 of 2, pid " in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "line"),
    [
        ({"optimizer": "SGD"}, "optimizer: Adagrad(learning_rate=0.1"),
        ({"learning_rate": 0.5}, "; Adagrad(learning_rate=0.5"),
        ({"dropout": 0.5}, "dropout: None in chief"),
        ({"hidden_units": [8]}, "hidden_units: [4] in chief"),
        ({"words": ["red", "green", "grey", "blue"]}, "'colour', item 3: blue in"),
        ({"words": ["red"]}, "'colour', item 2: green in chief"),
        ({"run": {"precision": "bfloat16"}}, "precision: 'float32' in chief"),
        ({"run": {"save_checkpoints_steps": 2}}, "save_checkpoints_steps: None in"),
        ({"run": {"save_checkpoints_secs": 2}}, "save_checkpoints_secs: 600 in"),
        ({"run": {"tf_random_seed": 2}}, "tf_random_seed: None in chief"),
        ({"run": {"shard_tables_above": 1}}, "shard_tables_above: 134217728 in"),
        ({"run": {"save_summary_steps": 3}}, "save_summary_steps: 100 in chief"),
        ({"run": {"debug": True}}, "debug: False in chief"),
        ({"train": {"steps": 6}}, "steps: None in chief"),
        ({"input": "share"}, "input_fn: 'returns all of the data' in chief"),
    ],
    ids=str,
)
def test_a_setting_of_one_process_is_named(tmp_path, own, line):
    assert line in refused(job(tmp_path, own=own))
    assert not checkpoints.all_checkpoints(tmp_path / "m")


@pytest.mark.slow
def test_a_model_that_is_not_compiled_is_refused(tmp_path):
    printed = refused(job(tmp_path, {"run": {"debug": True}}))
    assert "this process is one of 2 that train together" in printed


@pytest.mark.slow
def test_rows_of_a_generator_that_differ_are_noticed(tmp_path):
    rows = {"input": "rows", "run": {"tf_random_seed": 1}}
    printed = refused(job(tmp_path, rows, own={"rows_seed": 5}))
    assert "read different rows for the same batch" in printed
    again = Job(tmp_path / "again", json.dumps(rows), program=SMALL, devices=1)
    again.end_well()


@pytest.mark.slow
def test_summaries_and_logs_go_by_the_clock_of_the_chief(tmp_path):
    # An interval that every step exceeds: the number of lines goes by the steps that
    # the processes need to agree, and not by the speed of the machine.
    summaries = {"save_secs": 1e-6, "output_dir": str(tmp_path / "events")}
    rates = {"tensors": ["learning_rate"], "every_n_secs": 1e-6}
    hooks = [["SummarySaverHook", summaries], ["LoggingTensorHook", rates]]
    given = {"train": {"max_steps": 300}, "hooks": hooks, "log": True}
    started = job(tmp_path, given).end_well()
    lines = [
        [
            line.split("step = ")[1].split()[0]
            for line in started.log(name).splitlines()
            if "learning_rate = 0.1" in line
        ]
        for name in ("chief 0", "worker 0")
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) > 2
