"""Jobs of several processes on the loopback interface, as the tests start them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from estimax import checkpoints

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM = PROGRAMS / "train_clicks.py"
SMALL = PROGRAMS / "train_small.py"
PATIENCE = 600.0  # seconds; generous, because a busy machine must not fail a test


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def slurm_environment(kind, index, workers, port):
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": str(workers + 1),
        "SLURM_PROCID": str(0 if kind == "chief" else index + 1),
        "SLURM_LOCALID": "0",
        "JAX_COORDINATOR_PORT": str(port),
    }


class Job:
    """Processes that train together; each prints to a file beside the model_dir.

    `absent` names processes of the cluster that are not started. With `slurm` the
    environment is also the one that Slurm gives to its tasks. `own` has further options
    of single processes, by their name.
    """

    def __init__(
        self,
        model_dir,
        *options,
        workers=1,
        evaluator=False,
        devices=4,
        program=PROGRAM,
        absent=(),
        slurm=False,
        chief="chief",
        own=None,
    ):
        self.model_dir = Path(model_dir)
        self.model_dir.mkdir(parents=True, exist_ok=True)
        port = free_port()
        cluster = {chief: [f"127.0.0.1:{port}"]}
        cluster["worker"] = [f"127.0.0.1:{port + 1 + i}" for i in range(workers)]
        tasks = [(chief, 0), *(("worker", i) for i in range(workers))]
        tasks += [("evaluator", 0)] if evaluator else []
        tasks = [task for task in tasks if "{} {}".format(*task) not in absent]
        self.processes = {
            f"{kind} {index}": self._start(
                f"{kind} {index}",
                program,
                (*options, *(own or {}).get(f"{kind} {index}", ())),
                devices,
                {"cluster": cluster, "task": {"type": kind, "index": index}},
                slurm_environment(kind, index, workers, port) if slurm else {},
            )
            for kind, index in tasks
        }

    def _start(self, name, program, options, devices, tf_config, more):
        flags = f"--xla_force_host_platform_device_count={devices}"
        env = {"XLA_FLAGS": flags, "TF_CONFIG": json.dumps(tf_config), **more}
        with open(self._log(name), "w") as log:
            return subprocess.Popen(
                [sys.executable, str(program), str(self.model_dir), *options],
                env={**os.environ, **env},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _log(self, name):
        return Path(f"{self.model_dir}.{name}.log")

    def log(self, name):
        return self._log(name).read_text()

    def wait(self):
        """Wait for all; return their exit statuses by name."""
        deadline = time.monotonic() + PATIENCE
        try:
            return {
                name: process.wait(max(1.0, deadline - time.monotonic()))
                for name, process in self.processes.items()
            }
        finally:
            self.kill()

    def end_well(self):
        """Wait for all, and check that they ended without an error."""
        statuses = self.wait()
        logs = "\n".join(f"{n}:\n{self.log(n)}" for n in statuses)
        assert set(statuses.values()) == {0}, f"{statuses}\n{logs}"
        return self

    def kill(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def signal(self, name, number=signal.SIGKILL):
        self.processes[name].send_signal(number)

    def wait_for_checkpoint(self, step, model="Adagrad"):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            latest = checkpoints.latest(self.model_dir / model)
            if latest is not None and checkpoints.step_of(latest) >= step:
                return
            ended = [n for n, p in self.processes.items() if p.poll() is not None]
            assert not ended, f"{ended} ended:\n{self.log(ended[0])}"
            time.sleep(0.05)
        raise AssertionError(f"no checkpoint of step {step}")


def alone(model_dir, *options, devices=1):
    """Run the program in one process, to its end."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    env = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(model_dir), *options],
        env={**env, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def begin_as(model_dir, other, *models):
    """Let models begin with the initial values of those in another folder."""
    for model in models or ("Adagrad",):
        initial = checkpoints.path_of(Path(other) / model, 0)
        shutil.copytree(initial, Path(model_dir) / model / initial.name)


def losses(model_dir, model="Adagrad"):
    return np.array(json.loads((Path(model_dir) / model / "losses.json").read_text()))


def arrays(model_dir, step, model="Adagrad"):
    path = checkpoints.path_of(Path(model_dir) / model, step)
    return checkpoints.read(path).arrays


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
