"""Workers answer, are told apart, and are started again after one has ended."""

import os
import signal

import pytest

from estimax.storage.worker_pool import WorkerEnd, WorkerPool, shared_environment

WORKER = """
import os, signal
from estimax.storage.worker_pool import ParentPipe

pipe = ParentPipe()
print("not a message")
while True:
    task = pipe.receive()
    if task["do"] == "end":
        os._exit(3)
    if task["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    pipe.send({"done": task["do"], "pid": os.getpid()})
"""


@pytest.fixture
def pool(tmp_path, monkeypatch):
    (tmp_path / "some_worker.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)
    with WorkerPool("some_worker", 2, finds_local_modules=True) as pool:
        yield pool


def test_each_worker_answers_under_its_number(pool):
    for number in range(pool.size):
        pool.send(number, {"do": f"task {number}"})
    answers = dict(pool.receive() for _ in range(pool.size))
    assert {n: answer["done"] for n, answer in answers.items()} == {
        0: "task 0",
        1: "task 1",
    }
    assert len({answer["pid"] for answer in answers.values()}) == 2


@pytest.mark.parametrize(
    ("task", "status", "name"), [("end", 3, None), ("die", -signal.SIGKILL, "SIGKILL")]
)
def test_a_worker_that_ended_is_told_and_started_again(pool, task, status, name):
    pool.send(1, {"do": task})
    number, end = pool.receive()
    assert number == 1
    assert isinstance(end, WorkerEnd)
    assert (end.status, end.signal) == (status, name)
    pool.send(1, {"do": "more"})
    number, answer = pool.receive()
    assert (number, answer["done"]) == (1, "more")
    assert answer["pid"] != end.pid


def test_workers_share_the_processors(monkeypatch):
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    shared = shared_environment(10_000)
    assert (shared["NPROC"], shared["OMP_NUM_THREADS"]) == ("1", "7")
    assert shared["PYTHONPATH"].split(os.pathsep)[0]
