"""A chief and an evaluator in two processes, which share nothing but a folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import xla_flags

from estimax.hooks import summary

PROGRAM = Path(__file__).parent / "programs" / "chief_or_evaluator.py"
PATIENCE = 300.0


def start(task, model_dir):
    config = {"cluster": {"chief": ["here:1"]}, "task": {"type": task, "index": 0}}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(model_dir), "23"],
        env={
            **os.environ,
            "XLA_FLAGS": xla_flags.ONE_DEVICE,
            "TF_CONFIG": json.dumps(config),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_an_evaluator_follows_a_chief_and_ends_with_it(tmp_path):
    folder = tmp_path / "model"
    processes = [start("evaluator", folder), start("chief", folder)]
    try:
        printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], printed
    assert "done as evaluator" in printed[0]
    evaluated = [step for step, _ in summary.read_scalars(folder / "eval")["loss"]]
    # It may have been too slow for some of them, but never for the last.
    assert evaluated[-1] == 23
    assert len(list((folder / "export" / "final").iterdir())) == 1
    assert "evaluation at" not in printed[1]
