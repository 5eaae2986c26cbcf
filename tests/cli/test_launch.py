"""`estimax launch`, with real processes."""

import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from estimax import checkpoints
from estimax.cli.launch import Role, command_of, tf_configs, wait_for_all
from estimax.core.errors import ConfigError

PROGRAM = """
import sys
import numpy as np
import estimax as ex

def input_fn():
    x = np.arange(64, dtype=np.float32).reshape(-1, 1) / 64
    data = ex.input.Dataset.from_tensor_slices(({"x": x}, 3 * x[:, 0] + 1))
    return data.repeat().batch(16)

seed = int(sys.argv[2]) if len(sys.argv) > 2 else None
config = ex.RunConfig(sys.argv[1], tf_random_seed=seed, save_summary_steps=None)
model = ex.LinearRegressor(
    [ex.feature_columns.numeric_column("x")], optimizer="SGD", config=config
)
model.train(input_fn, max_steps=6)
print("trained as", config.task_type)
"""


def estimax(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "estimax", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "seed",
    [(), pytest.param(("1",), marks=pytest.mark.slow)],
    ids=["no_seed", "seed"],
)
def test_two_processes_train_one_model(tmp_path, seed):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    status, output = estimax("launch", program, tmp_path / "two", *seed)
    assert status == 0, output
    assert "[master] trained as master" in output
    assert "[worker 0] trained as worker" in output
    # Both trained on half of each batch; one process alone trains the same.
    if not seed:  # begin with the same values, and the same seed of the data
        shutil.copytree(tmp_path / "two/model.ckpt-0", tmp_path / "one/model.ckpt-0")
    alone = [sys.executable, program, tmp_path / "one", *seed]
    subprocess.run(alone, check=True, timeout=600)
    one, two = (checkpoints.restore_latest(tmp_path / name) for name in ("one", "two"))
    assert one.step == two.step == 6
    assert one.extra == two.extra
    for name, array in one.arrays.items():
        assert two.arrays[name] == pytest.approx(array, rel=1e-5), name


def test_the_first_failure_is_named_and_its_status_returned(tmp_path):
    program = tmp_path / "fail.py"
    program.write_text(
        "import json, os, sys, time\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "sys.exit(7) if task['type'] == 'worker' else print('here')\n"
    )
    status, output = estimax("launch", program)
    assert status == 7
    assert "worker 0 ended with exit status 7" in output
    assert "[master] here" in output


def test_processes_that_do_not_end_are_stopped():
    def sleeping(code):
        return subprocess.Popen([sys.executable, "-c", code], text=True)

    jobs = {
        Role("worker", 0): sleeping("raise SystemExit(3)"),
        Role("worker", 1): sleeping("import time; time.sleep(600)"),
    }
    told = []
    assert wait_for_all(jobs, lambda text, _: told.append(text), 0.2) == 3
    assert told[-1] == "stopping worker 1, which did not end by themselves"
    assert all(job.poll() is not None for job in jobs.values())


@pytest.mark.parametrize(
    ("evaluator", "types"),
    [
        (False, ["master", "worker", "worker"]),
        (True, ["chief", "worker", "worker", "evaluator"]),
    ],
)
def test_every_process_has_a_role(evaluator, types):
    configs = [config for _, config in tf_configs(3, evaluator, 4000)]
    assert [config["task"]["type"] for config in configs] == types
    assert configs[0]["cluster"][types[0]] == ["127.0.0.1:4000"]
    assert json.dumps(configs[0]["cluster"]) == json.dumps(configs[-1]["cluster"])


def test_a_run_file_is_trained_and_other_files_are_refused():
    command = command_of(Path("run.yaml"), ["--set", "a=1"])
    assert command[1:] == ["-m", "estimax", "train", "run.yaml", "--set", "a=1"]
    with pytest.raises(ConfigError, match="neither a run file"):
        command_of(Path("run.json"), [])


def test_a_run_file_is_checked_before_processes_start(cli, run_file):
    wrong = cli("launch", run_file, "--set", "train.max_step=5")
    assert wrong.code == 2
    assert "train.max_step: unknown key; did you mean 'max_steps'?" in wrong.err
    given = "run.cluster={chief: 'a:1', task: {type: chief}}"
    answer = cli("launch", run_file, "--set", given)
    assert answer.code != 0
    assert "run.cluster: describes the processes of a cluster" in answer.err


def test_a_missing_program_is_an_error_without_a_traceback(tmp_path):
    status, output = estimax("launch", tmp_path / "none.py")
    assert status == 1
    assert "there is no file" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_worker_that_ends_at_its_start_ends_the_job(tmp_path):
    program = tmp_path / "train.py"
    ends = (
        "import json, os, sys\nif 'worker' in os.environ['TF_CONFIG'].split('task')[1]:"
    )
    program.write_text(f"{ends} sys.exit(7)\n{PROGRAM}")
    status, output = estimax("launch", program, tmp_path / "model")
    assert status == 7
    assert "worker 0 ended with exit status 7" in output
    assert "stopping master, which did not end" in output
    # Longer than a process takes to hear of an error, and no longer.
    grace = inspect.signature(wait_for_all).parameters["grace_seconds"].default
    assert 3 < grace <= 10


@pytest.mark.slow
def test_a_run_file_is_trained_evaluated_exported_and_reported(run_file):
    given = ["--set", "run.save_summary_steps=5", "--set", "train.max_steps=20"]
    status, output = estimax("launch", "--processes", "2", run_file, "--", *given)
    assert status == 0, output
    model = run_file.parent / "model"
    assert len(list(model.glob("*.tfevents.*"))) == 1, "the chief writes them"
    assert (model / "report.html").is_file()
    assert list((model / "export" / "best").iterdir())
    assert output.count("report:") == 1
    # The chief alone knows that the directory is in use; the others end with it.
    refused = estimax("launch", run_file, "--", "--set", "run.on_existing=fail")
    assert refused[0] != 0
    assert "[master] " in refused[1]
    assert "holds a run already" in refused[1]
    assert "Traceback" not in refused[1]
