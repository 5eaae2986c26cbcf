"""The published client of TensorFlow Serving calls every method of the server."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving.bundles import export_clicks, probability
from serving.servers import running_server

CLIENT = "tensorflow-serving-api==2.15.1"
TENSORFLOW = "tensorflow-cpu==2.15.1"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def client_python(tmp_path_factory):
    """A Python with the client: ESTIMAX_TF_SERVING_PYTHON, or a new environment."""
    given = os.environ.get("ESTIMAX_TF_SERVING_PYTHON")
    if given:
        return given
    folder = tmp_path_factory.mktemp("client") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", CLIENT, TENSORFLOW]
    subprocess.run(install, check=True)
    return python


@pytest.mark.slow
def test_the_published_client_calls_every_method(tmp_path, client_python):
    base = tmp_path / "clicks"
    shutil.copytree(export_clicks(tmp_path / "exported"), base / "7")
    with running_server(tmp_path, f"clicks={base}", "--batch-sizes", "1,2") as server:
        done = subprocess.run(
            [client_python, HERE / "tensorflow_client.py", str(server.grpc_port), base],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    one = probability(1.5, 2, 1)
    two = probability(2.5, 3, 2)
    assert found["predict"]["version"] == 7
    first, second = found["predict"]["logistic"]
    assert [*first, *second] == pytest.approx([one, two], rel=1e-5)
    assert found["predict"]["class_ids"] == [[1], [1]]
    assert found["predict"]["classes"] == ["1", "1"]
    assert found["predict_examples"] == [[pytest.approx(one, rel=1e-5)]]
    assert found["classify"] == [
        ["0", pytest.approx(1 - one, rel=1e-3)],
        ["1", pytest.approx(one, rel=1e-5)],
    ]
    assert found["regress"] == [pytest.approx(one, rel=1e-5)]
    assert found["multi_inference"] == ["classification_result", "regression_result"]
    assert found["metadata"] == [
        "classification",
        "predict",
        "regression",
        "serving_default",
    ]
    assert found["status"] == [[7, 30]]
    assert found["reload"] == [0, [30]]
