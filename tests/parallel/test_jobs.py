"""Whole jobs: several processes with several devices each, killed, resumed, watched."""

import signal
import time

import numpy as np
import pytest
from parallel.cluster_jobs import Job, alone, arrays, assert_same_bits, losses

from estimax import checkpoints, summary

OPTIMIZERS = ("Adagrad", "Ftrl", "LazyAdam", "Adam")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    """The losses of 200 steps on one device, by optimizer."""
    folder = tmp_path_factory.mktemp("one")
    alone(folder, "--steps", "200", "--optimizers", *OPTIMIZERS, "--save-steps", "100")
    return folder


@pytest.mark.parametrize("options", [(), ("--sharded",)], ids=["replicated", "sharded"])
def test_two_processes_of_four_devices_lose_what_one_device_loses(
    one_device, tmp_path, options
):
    steps = ("--steps", "200", "--save-steps", "100")
    Job(tmp_path / "two", *steps, "--optimizers", *OPTIMIZERS, *options).end_well()
    for name in OPTIMIZERS:
        expected = losses(one_device, name)
        assert len(expected) == 200
        np.testing.assert_allclose(losses(tmp_path / "two", name), expected, rtol=1e-5)


@pytest.mark.parametrize("victim", ["worker 0", "chief 0"])
def test_after_a_kill_the_others_end_and_a_restart_is_exact(tmp_path, victim):
    Job(tmp_path / "whole", "--steps", "60", "--sharded").end_well()
    job = Job(tmp_path / "killed", "--steps", "60", "--sharded", "--slow", "0.1")
    job.wait_for_checkpoint(20)
    job.signal(victim)
    began = time.monotonic()
    statuses = job.wait()
    assert time.monotonic() - began < 60
    assert statuses[victim] == -signal.SIGKILL
    (survivor,) = statuses.keys() - {victim}
    assert statuses[survivor] != 0
    if victim == "worker 0":
        assert "worker 0 (process 1 of 2" in job.log(survivor)
        assert "was lost: no sign of life" in job.log(survivor)
    else:
        assert "chief (process 0 of 2" in job.log(survivor)
        assert "was lost: it has ended" in job.log(survivor)
    Job(tmp_path / "killed", "--steps", "60", "--sharded").end_well()
    assert_same_bits(arrays(tmp_path / "killed", 60), arrays(tmp_path / "whole", 60))


@pytest.mark.parametrize("receiver", ["worker 0", "chief 0"])
def test_sigterm_saves_in_all_processes_and_a_restart_is_exact(tmp_path, receiver):
    Job(tmp_path / "whole", "--steps", "60").end_well()
    job = Job(tmp_path / "stopped", "--steps", "60", "--slow", "0.1")
    job.wait_for_checkpoint(20)
    job.signal(receiver, signal.SIGTERM)
    assert set(job.wait().values()) == {128 + signal.SIGTERM}
    saved = checkpoints.step_of(checkpoints.latest(tmp_path / "stopped/Adagrad"))
    assert 20 <= saved < 60
    for name in job.processes:
        assert f"SIGTERM in {receiver.removesuffix(' 0')}" in job.log(name) or (
            name == receiver
        )
    Job(tmp_path / "stopped", "--steps", "60").end_well()
    assert_same_bits(arrays(tmp_path / "stopped", 60), arrays(tmp_path / "whole", 60))


@pytest.fixture(scope="module")
def hundred_steps(tmp_path_factory):
    """The losses of 100 steps on one device, without interruption."""
    folder = tmp_path_factory.mktemp("hundred")
    alone(folder, "--steps", "100")
    return losses(folder)


def test_a_job_of_two_processes_is_resumed_by_one(tmp_path, hundred_steps):
    Job(tmp_path / "m", "--steps", "50", "--sharded").end_well()
    alone(tmp_path / "m", "--steps", "100")
    np.testing.assert_allclose(losses(tmp_path / "m"), hundred_steps[50:], rtol=1e-5)


def test_a_job_of_one_process_is_resumed_by_two(tmp_path, hundred_steps):
    alone(tmp_path / "m", "--steps", "50")
    Job(tmp_path / "m", "--steps", "100", "--sharded").end_well()
    np.testing.assert_allclose(losses(tmp_path / "m"), hundred_steps[50:], rtol=1e-5)


def test_two_processes_are_resumed_by_three_and_those_by_two(tmp_path, hundred_steps):
    Job(tmp_path / "m", "--steps", "30", "--sharded", devices=2).end_well()
    Job(tmp_path / "m", "--steps", "60", "--sharded", workers=3, devices=1).end_well()
    Job(tmp_path / "m", "--steps", "100", "--sharded", devices=1).end_well()
    np.testing.assert_allclose(losses(tmp_path / "m"), hundred_steps[60:], rtol=1e-5)


def test_eight_devices_are_resumed_by_one(tmp_path, hundred_steps):
    alone(tmp_path / "m", "--steps", "50", "--sharded", "--devices", "8", devices=8)
    alone(tmp_path / "m", "--steps", "100")
    np.testing.assert_allclose(losses(tmp_path / "m"), hundred_steps[50:], rtol=1e-5)


def test_every_process_reads_its_share_and_all_end_together(tmp_path):
    # 1920 rows, divided in two, 2 epochs of batches of 64 in all.
    Job(tmp_path / "m", "--steps", "999", "--share", "--epochs", "2").end_well()
    latest = checkpoints.latest(tmp_path / "m/Adagrad")
    assert checkpoints.step_of(latest) == 60
    assert len(checkpoints.read_manifest(latest).extra["inputs"]) == 2


def test_positions_of_shares_are_exact_for_as_many_processes(tmp_path):
    Job(tmp_path / "whole", "--steps", "40", "--share").end_well()
    Job(tmp_path / "parts", "--steps", "17", "--share").end_well()
    Job(tmp_path / "parts", "--steps", "40", "--share").end_well()
    assert_same_bits(arrays(tmp_path / "parts", 40), arrays(tmp_path / "whole", 40))


def test_another_number_of_shares_starts_at_the_interrupted_epoch(tmp_path):
    job = Job(tmp_path / "m", "--steps", "90", "--share", "--slow", "0.1")
    job.wait_for_checkpoint(40)  # an epoch has 30 steps
    job.signal("chief 0", signal.SIGTERM)
    job.wait()
    stopped = checkpoints.step_of(checkpoints.latest(tmp_path / "m/Adagrad"))
    assert 30 < stopped < 60
    options = ("--steps", "999", "--share", "--epochs", "3")
    job = Job(tmp_path / "m", *options, workers=3, devices=1).end_well()
    assert "the beginning of the epoch that was interrupted" in job.log("chief 0")
    # Epochs 1 and 2, of 30 steps each, in full.
    latest = checkpoints.latest(tmp_path / "m/Adagrad")
    assert checkpoints.step_of(latest) == stopped + 60


def test_an_evaluator_evaluates_what_chief_and_worker_save(tmp_path):
    options = ("--steps", "60", "--evaluate", "--save-steps", "20", "--slow", "0.1")
    Job(tmp_path / "m", *options, evaluator=True).end_well()
    folder = tmp_path / "m/Adagrad"
    steps = [step for step, _ in summary.read_scalars(folder / "eval")["loss"]]
    assert set(steps) <= {0, 20, 40, 60}
    assert steps[-1] == 60
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1  # of the chief


def test_the_clock_of_the_chief_decides_when_all_save(tmp_path):
    options = ("--steps", "60", "--save-secs", "1", "--slow", "0.1", "--sharded")
    job = Job(tmp_path / "m", *options).end_well()
    saved = checkpoints.all_checkpoints(tmp_path / "m/Adagrad")
    assert len(saved) > 2
    assert checkpoints.step_of(saved[-1]) == 60
    assert "saved step" in job.log("chief 0")
    assert "saved step" not in job.log("worker 0")
