"""A fork of a process that has used JAX, and of one that has not."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import os, sys
    import numpy as np
    import estimax as ex

    def model_fn(features, labels, mode):
        y = ex.get_variable("w", (1,)) * features["x"]
        return ex.EstimatorSpec(
            mode, predictions=y, loss=y.sum(), train_op=ex.optimizers.SGD(0.1)
        )

    model = ex.Estimator(model_fn, sys.argv[1])
    def data():
        return iter([({"x": np.ones((2, 1), np.float32)}, None)])
    if "jax" in sys.argv:
        import jax
        jax.devices()
        exported = sys.argv[1]
    if "used" in sys.argv:
        model.train(data)
        exported = model.export_saved_model(sys.argv[1] + "/export")
        bundle = ex.export.load(exported)
    calls = {
        "train": lambda: model.train(data),
        "evaluate": lambda: model.evaluate(data),
        "predict": lambda: next(model.predict(data)),
        "export": lambda: model.export_saved_model(sys.argv[1] + "/other"),
        "bundle": lambda: bundle.predict({"x": [[1.0]]}),
        "load": lambda: ex.export.load(exported),
    }
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if "unused" in sys.argv:
        model.train(data)
        print("trained", flush=True)
        os._exit(0)
    names = ["train", "load"] if "jax" in sys.argv else list(calls)
    for name, call in [(name, calls[name]) for name in names]:
        try:
            call()
        except RuntimeError as error:
            print(name, type(error).__name__, "spawn" in str(error), flush=True)
    os._exit(0)
"""


def run(*arguments):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT)]
    environment = {n: v for n, v in os.environ.items() if n != "XLA_FLAGS"}
    with subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            found, _ = process.communicate(timeout=120)
        finally:
            # Without the check, the child waits for ever.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    return found


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def test_a_fork_of_a_process_that_used_jax_is_told_to_spawn(tmp_path):
    found = run(str(tmp_path), "jax").splitlines()
    assert found == ["train ForkedError True", "load ForkedError True"]


@pytest.mark.slow
def test_nothing_waits_in_a_fork_of_a_process_that_has_trained(tmp_path):
    found = run(str(tmp_path), "used").splitlines()
    names = ["train", "evaluate", "predict", "export", "bundle", "load"]
    assert found == [f"{name} ForkedError True" for name in names]


@pytest.mark.slow
def test_a_fork_before_jax_is_used_trains(tmp_path):
    assert run(str(tmp_path), "unused") == "trained\n"
