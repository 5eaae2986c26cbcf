"""Clusters in which something goes wrong: how each process ends, and what it says."""

import signal
import time

import pytest
from parallel.cluster_jobs import PATIENCE, PROGRAMS, Job

from estimax.parallel.aborts import LOST_STATUS

pytestmark = pytest.mark.slow
STACK = ("stack trace", "    @ ", "terminate called")  # of C++


def job_of(tmp_path, scenario, *options, **roles):
    program = PROGRAMS / "go_wrong.py"
    return Job(tmp_path / "m", scenario, *options, program=program, devices=1, **roles)


def wait_for(job, name, text):
    deadline = time.monotonic() + PATIENCE
    while text not in job.log(name):
        assert job.processes[name].poll() is None, job.log(name)
        assert time.monotonic() < deadline, job.log(name)
        time.sleep(0.05)


def assert_plain(job):
    """Check that no process has printed a stack of C++."""
    for name in job.processes:
        for words in STACK:
            assert words not in job.log(name), f"{name}:\n{job.log(name)}"


def test_a_process_that_is_missing_at_the_start_is_named(tmp_path):
    options = ("--start-secs", "3")
    job = job_of(tmp_path, "just_train", *options, workers=2, absent=["worker 1"])
    assert job.wait() == {"chief 0": 1, "worker 0": 1}
    for name in job.processes:
        assert "ClusterError: worker 1 (process 2 of 3) did not" in job.log(name)
    assert_plain(job)


def test_a_worker_without_a_chief_says_where_it_looked(tmp_path):
    job = job_of(tmp_path, "just_train", "--start-secs", "3", absent=["chief 0"])
    assert job.wait() == {"worker 0": 1}
    assert "ClusterError: the chief (process 0 of 2) did not" in job.log("worker 0")
    assert_plain(job)


def test_workers_notice_a_chief_that_ends_before_all_have_connected(tmp_path):
    job = job_of(tmp_path, "just_train", workers=2, absent=["worker 1"])
    wait_for(job, "chief 0", "worker 0 (process 1 of 3) is here")
    job.signal("chief 0")
    assert job.wait() == {"chief 0": -signal.SIGKILL, "worker 0": 1}
    assert "ended before all processes were connected" in job.log("worker 0")
    assert_plain(job)


def test_workers_say_in_plain_words_that_the_chief_was_lost(tmp_path):
    job = job_of(tmp_path, "just_train")
    wait_for(job, "chief 0", "at: step 3")
    job.signal("chief 0")
    assert job.wait() == {"chief 0": -signal.SIGKILL, "worker 0": LOST_STATUS}
    assert "ClusterError: chief (process 0 of 2" in job.log("worker 0")
    assert "was lost" in job.log("worker 0")
    assert_plain(job)


def test_a_worker_that_raises_prints_its_own_traceback(tmp_path):
    job = job_of(tmp_path, "raise_in_worker")
    assert job.wait() == {"chief 0": LOST_STATUS, "worker 0": 1}
    assert "Traceback" in job.log("worker 0")
    assert "ValueError: the hook of the worker is wrong" in job.log("worker 0")
    chief = job.log("chief 0")
    assert "worker 0 (process 1 of 2" in chief
    assert "ended: ValueError: the hook of the worker is wrong" in chief
    assert_plain(job)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("two_places", ("waits in 'here'", "waits in 'there'")),
        ("observe_alone", ("has begun step 4", "waits in 'observe' after step 3")),
        ("wait_at_step_3", ("has begun step 4", "waits in 'alone' after step 3")),
    ],
)
def test_processes_that_wait_for_each_other_are_ended(tmp_path, scenario, words):
    job = job_of(tmp_path, scenario)
    assert set(job.wait().values()) == {LOST_STATUS}
    for name in job.processes:
        assert "the processes wait for each other" in job.log(name), job.log(name)
        for word in words:
            assert word in job.log(name)
    assert_plain(job)


def test_collectives_of_different_sizes_are_told_as_different_programs(tmp_path):
    job = job_of(tmp_path, "other_collective")
    assert 0 not in job.wait().values()
    logs = [job.log(name) for name in job.processes]
    assert any("run different programs" in log for log in logs), logs


def test_a_call_that_holds_pythons_lock_for_long_is_told_as_a_cause(tmp_path):
    job = job_of(tmp_path, "hold_the_gil")
    assert set(job.wait().values()) == {LOST_STATUS}
    assert "worker 0 (process 1 of 2" in job.log("chief 0")
    assert "raise RunConfig(lost_after_secs=…)" in job.log("chief 0")
    assert "chief (process 0 of 2" in job.log("worker 0")
    assert_plain(job)


def test_a_process_without_data_is_named_in_all(tmp_path):
    job = job_of(tmp_path, "no_data_in_worker")
    # All raise; one that is slower may end because of the error of the other.
    assert set(job.wait().values()) <= {1, LOST_STATUS}
    for name in job.processes:
        assert "InputError: train: the input_fn gave no data in worker 0" in (
            job.log(name)
        )


def test_an_error_of_the_chief_before_training_ends_the_workers(tmp_path):
    job = job_of(tmp_path, "directory_in_use")
    assert job.wait() == {"chief 0": 1, "worker 0": LOST_STATUS}
    assert "InUseError" in job.log("chief 0")
    assert "ended: InUseError" in job.log("worker 0")


@pytest.mark.parametrize("receiver", ["worker 0", "chief 0"])
def test_sigterm_before_the_first_step_ends_the_job(tmp_path, receiver):
    job = job_of(tmp_path, "slow_start")
    for name in job.processes:
        wait_for(job, name, "at: input")
    job.signal(receiver, signal.SIGTERM)
    (other,) = job.processes.keys() - {receiver}
    assert job.wait() == {receiver: 128 + signal.SIGTERM, other: LOST_STATUS}
    assert "SIGTERM" in job.log(other)
    assert "at: step 1" not in job.log(other)
    assert_plain(job)


def test_sigterm_while_a_process_waits_for_the_others_ends_it(tmp_path):
    job = job_of(tmp_path, "just_train", absent=["worker 0"])
    wait_for(job, "chief 0", "waiting for")
    job.signal("chief 0", signal.SIGTERM)
    assert job.wait()["chief 0"] in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_cluster_that_ends_well_says_nothing_of_this(tmp_path):
    job = job_of(tmp_path, "end_after_five_steps").end_well()
    assert "ClusterError" not in job.log("chief 0") + job.log("worker 0")
    assert_plain(job)


@pytest.mark.parametrize("absent", [[], ["worker 0"]])
def test_processes_that_slurm_describes_meet_as_others_do(tmp_path, absent):
    options = ("--cluster", "slurm", "--start-secs", "3" if absent else "300")
    job = job_of(tmp_path, "end_after_five_steps", *options, slurm=True, absent=absent)
    if not absent:
        job.end_well()
    else:
        assert job.wait() == {"chief 0": 1}
        assert "ClusterError: worker 0 (process 1 of 2) did not" in job.log("chief 0")
    assert_plain(job)
