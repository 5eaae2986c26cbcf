"""What the chief does between joint trainings is what one process does."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "parallel"))

from cluster_jobs import Job
from models import MODELS

PROGRAM = Path(__file__).parent / "cluster_orders.py"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_two_processes_in_every_order(tmp_path, model):
    found = []
    for workers in (0, 1):
        folder = tmp_path / f"{workers} workers"
        output = tmp_path / f"{workers}.json"
        arguments = (model, str(output))
        Job(folder, *arguments, workers=workers, devices=1, program=PROGRAM).end_well()
        found.append(json.loads(output.read_text()))
    alone, together = found
    assert len(alone) == len(together) > 20
    for (operation, expected), (other, numbers) in zip(alone, together, strict=True):
        assert operation == other
        assert expected.keys() == numbers.keys()
        for name, value in expected.items():
            # Two processes add the rows of a batch in another order, and Adagrad
            # divides by what has been added up over 14 steps.
            np.testing.assert_allclose(
                numbers[name], value, rtol=1e-4, atol=1e-5, err_msg=name
            )
