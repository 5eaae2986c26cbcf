"""Which process of a cluster prepares the model directory, and when."""

import json
import os
import socket
import subprocess
import sys

import pytest
import xla_flags

from estimax import checkpoints, config
from estimax.cli.train import chief_first
from estimax.hooks import summary

CLUSTER = {"chief": ["127.0.0.1:1"]}


@pytest.mark.parametrize(
    ("tf_config", "is_first"),
    [
        (None, True),
        ({}, True),
        ({"task": {"type": "worker", "index": 0}}, True),
        ({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}, True),
        ({"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}}, False),
    ],
)
def test_a_process_that_trains_alone_is_the_first(
    run_file, monkeypatch, tf_config, is_first
):
    if tf_config is not None:
        monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    with chief_first(config.load(run_file).run) as found:
        assert found == is_first


CLUSTERS = {
    "{chief: 'a:1', task: {type: chief}}": True,
    "{chief: 'a:1', worker: ['b:1'], task: {type: evaluator}}": False,
    "{coordinator: 'a:1', processes: 1, process: 0}": True,
}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_run_file_tells_the_role_as_tf_config_does(run_file, cluster):
    run = config.load(run_file, [f"run.cluster={cluster}"]).run
    with chief_first(run) as found:
        assert found == CLUSTERS[cluster]


def test_processes_of_a_cluster_in_the_run_file_train_one_model(run_file):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cluster = (
        f"{{coordinator: '127.0.0.1:{port}', processes: 2, process: '${{env:NUMBER}}'}}"
    )
    given = ["--set", f"run.cluster={cluster}", "--set", "train.max_steps=5"]
    given += ["--set", "eval.every_steps=2"]
    command = [sys.executable, "-m", "estimax", "train", run_file, *given]
    environment = {**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE}
    jobs = [
        subprocess.Popen(
            [*command, "--no-report"],
            env={**environment, "NUMBER": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    outputs = [job.communicate(timeout=300)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert "auc" in outputs[0]
    model = run_file.parent / "model"
    assert checkpoints.restore_latest(model).step == 5
    # No process has the whole state to evaluate in memory: checkpoints are saved.
    steps = [step for step, _ in summary.read_scalars(model / "eval")["loss"]]
    assert steps == [2, 4, 5]
