"""Whole jobs: several processes with several devices each, killed, resumed, watched.

Each runs with a seed and with the default: none. Without one, trainings are compared
that begin with the same initial values (`begin_as`).
"""

import signal
import time

import numpy as np
import pytest
from parallel.cluster_jobs import (
    Job,
    alone,
    arrays,
    assert_same_bits,
    begin_as,
    losses,
)

from estimax import checkpoints
from estimax.hooks import summary

OPTIMIZERS = ("Adagrad", "Ftrl", "LazyAdam", "Adam")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[("--seed", "1"), ()], ids=["seed", "no_seed"])
def seed(request):
    """The options for the seed; none for the default."""
    return request.param


def begin_alike(seed, folder, other, *models):
    """Without a seed, let models begin with the initial values of another folder."""
    if not seed:
        begin_as(folder, other, *models)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory, seed):
    """The folder of a training of 200 steps on one device for each optimizer."""
    folder = tmp_path_factory.mktemp("one")
    steps = ("--steps", "200", "--save-steps", "100")
    alone(folder, *seed, *steps, "--optimizers", *OPTIMIZERS)
    return folder


@pytest.mark.parametrize("options", [(), ("--sharded",)], ids=["replicated", "sharded"])
def test_two_processes_of_four_devices_lose_what_one_device_loses(
    one_device, tmp_path, options, seed
):
    steps = (*seed, "--steps", "200", "--save-steps", "100")
    begin_alike(seed, tmp_path / "two", one_device, *OPTIMIZERS)
    Job(tmp_path / "two", *steps, "--optimizers", *OPTIMIZERS, *options).end_well()
    for name in OPTIMIZERS:
        expected = losses(one_device, name)
        assert len(expected) == 200
        np.testing.assert_allclose(losses(tmp_path / "two", name), expected, rtol=1e-5)


@pytest.mark.parametrize("victim", ["worker 0", "chief 0"])
def test_after_a_kill_the_others_end_and_a_restart_is_exact(tmp_path, victim, seed):
    Job(tmp_path / "whole", *seed, "--steps", "60", "--sharded").end_well()
    begin_alike(seed, tmp_path / "killed", tmp_path / "whole")
    job = Job(tmp_path / "killed", *seed, "--steps", "60", "--sharded", "--slow", "0.1")
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
    Job(tmp_path / "killed", *seed, "--steps", "60", "--sharded").end_well()
    assert_same_bits(arrays(tmp_path / "killed", 60), arrays(tmp_path / "whole", 60))


@pytest.mark.parametrize("receiver", ["worker 0", "chief 0"])
def test_sigterm_saves_in_all_processes_and_a_restart_is_exact(
    tmp_path, receiver, seed
):
    Job(tmp_path / "whole", *seed, "--steps", "60").end_well()
    begin_alike(seed, tmp_path / "stopped", tmp_path / "whole")
    job = Job(tmp_path / "stopped", *seed, "--steps", "60", "--slow", "0.1")
    job.wait_for_checkpoint(20)
    job.signal(receiver, signal.SIGTERM)
    assert set(job.wait().values()) == {128 + signal.SIGTERM}
    saved = checkpoints.step_of(checkpoints.latest(tmp_path / "stopped/Adagrad"))
    assert 20 <= saved < 60
    for name in job.processes:
        assert f"SIGTERM in {receiver.removesuffix(' 0')}" in job.log(name) or (
            name == receiver
        )
    Job(tmp_path / "stopped", *seed, "--steps", "60").end_well()
    assert_same_bits(arrays(tmp_path / "stopped", 60), arrays(tmp_path / "whole", 60))


@pytest.fixture(scope="module")
def hundred_steps(tmp_path_factory, seed):
    """The folder of a training of 100 steps on one device, without interruption."""
    folder = tmp_path_factory.mktemp("hundred")
    alone(folder, *seed, "--steps", "100")
    return folder


def test_a_job_of_two_processes_is_resumed_by_one(tmp_path, hundred_steps, seed):
    begin_alike(seed, tmp_path / "m", hundred_steps)
    Job(tmp_path / "m", *seed, "--steps", "50", "--sharded").end_well()
    alone(tmp_path / "m", *seed, "--steps", "100")
    np.testing.assert_allclose(
        losses(tmp_path / "m"), losses(hundred_steps)[50:], rtol=1e-5
    )


def test_a_job_of_one_process_is_resumed_by_two(tmp_path, hundred_steps, seed):
    begin_alike(seed, tmp_path / "m", hundred_steps)
    alone(tmp_path / "m", *seed, "--steps", "50")
    Job(tmp_path / "m", *seed, "--steps", "100", "--sharded").end_well()
    np.testing.assert_allclose(
        losses(tmp_path / "m"), losses(hundred_steps)[50:], rtol=1e-5
    )


def test_two_processes_are_resumed_by_three_and_those_by_two(
    tmp_path, hundred_steps, seed
):
    begin_alike(seed, tmp_path / "m", hundred_steps)
    Job(tmp_path / "m", *seed, "--steps", "30", "--sharded", devices=2).end_well()
    Job(
        tmp_path / "m", *seed, "--steps", "60", "--sharded", workers=3, devices=1
    ).end_well()
    Job(tmp_path / "m", *seed, "--steps", "100", "--sharded", devices=1).end_well()
    np.testing.assert_allclose(
        losses(tmp_path / "m"), losses(hundred_steps)[60:], rtol=1e-5
    )


def test_eight_devices_are_resumed_by_one(tmp_path, hundred_steps, seed):
    begin_alike(seed, tmp_path / "m", hundred_steps)
    alone(
        tmp_path / "m", *seed, "--steps", "50", "--sharded", "--devices", "8", devices=8
    )
    alone(tmp_path / "m", *seed, "--steps", "100")
    np.testing.assert_allclose(
        losses(tmp_path / "m"), losses(hundred_steps)[50:], rtol=1e-5
    )


def test_every_process_reads_its_share_and_all_end_together(tmp_path, seed):
    # 1920 rows, divided in two, 2 epochs of batches of 64 in all.
    Job(tmp_path / "m", *seed, "--steps", "999", "--share", "--epochs", "2").end_well()
    latest = checkpoints.latest(tmp_path / "m/Adagrad")
    assert checkpoints.step_of(latest) == 60
    assert len(checkpoints.read_manifest(latest).extra["inputs"]) == 2


def test_positions_of_shares_are_exact_for_as_many_processes(tmp_path, seed):
    Job(tmp_path / "whole", *seed, "--steps", "40", "--share").end_well()
    begin_alike(seed, tmp_path / "parts", tmp_path / "whole")
    Job(tmp_path / "parts", *seed, "--steps", "17", "--share").end_well()
    Job(tmp_path / "parts", *seed, "--steps", "40", "--share").end_well()
    assert_same_bits(arrays(tmp_path / "parts", 40), arrays(tmp_path / "whole", 40))


def test_another_number_of_shares_starts_at_the_interrupted_epoch(tmp_path, seed):
    job = Job(tmp_path / "m", *seed, "--steps", "90", "--share", "--slow", "0.1")
    job.wait_for_checkpoint(40)  # an epoch has 30 steps
    job.signal("chief 0", signal.SIGTERM)
    job.wait()
    stopped = checkpoints.step_of(checkpoints.latest(tmp_path / "m/Adagrad"))
    assert 30 < stopped < 60
    options = ("--steps", "999", "--share", "--epochs", "3")
    job = Job(tmp_path / "m", *seed, *options, workers=3, devices=1).end_well()
    assert "the beginning of the epoch that was interrupted" in job.log("chief 0")
    # Epochs 1 and 2, of 30 steps each, in full.
    latest = checkpoints.latest(tmp_path / "m/Adagrad")
    assert checkpoints.step_of(latest) == stopped + 60


def test_an_evaluator_evaluates_what_chief_and_worker_save(tmp_path, seed):
    options = ("--steps", "60", "--evaluate", "--save-steps", "20", "--slow", "0.1")
    Job(tmp_path / "m", *seed, *options, evaluator=True).end_well()
    folder = tmp_path / "m/Adagrad"
    steps = [step for step, _ in summary.read_scalars(folder / "eval")["loss"]]
    assert set(steps) <= {0, 20, 40, 60}
    assert steps[-1] == 60
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1  # of the chief


def test_the_clock_of_the_chief_decides_when_all_save(tmp_path, seed):
    options = ("--steps", "60", "--save-secs", "1", "--slow", "0.1", "--sharded")
    job = Job(tmp_path / "m", *seed, *options).end_well()
    saved = checkpoints.all_checkpoints(tmp_path / "m/Adagrad")
    assert len(saved) > 2
    assert checkpoints.step_of(saved[-1]) == 60
    assert "saved step" in job.log("chief 0")
    assert "saved step" not in job.log("worker 0")
