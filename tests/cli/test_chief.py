"""Which process of a cluster prepares the model directory, and when."""

import json

import pytest

from estimax import config
from estimax.cli.chief import chief_first

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
