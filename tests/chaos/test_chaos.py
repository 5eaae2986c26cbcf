"""A few tries of every attack, and tests that the harness detects defects."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.attack import Outcome
from chaos.registry import ATTACKS, BROKEN, make_attack
from chaos.supervisor import run_attack

TESTS = Path(__file__).parents[1]
FEW = 40  # tries, at most


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_succeeds(name):
    report = run_attack(name, seed=1, numbers=range(min(FEW, make_attack(name).tries)))
    if report.skipped:
        pytest.skip(report.skipped)
    assert report.failures == []
    assert sum(report.counts.values()) > 0


WORDS = {
    "broken-values": "the result silently differs",
    "broken-exception": "KeyError",
    "broken-signal": "ended with code -11",
    "broken-hang": "no end after 1 s",
    "broken-memory": "MB of memory",
    "broken-words": "the error names no file",
}


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "sound"])
def test_a_broken_reader_is_reported_with_its_damage(name):
    report = run_attack(name, seed=1, numbers=range(5, 7))
    assert report.counts == {Outcome.FAILED: 2}
    assert [failure.number for failure in report.failures] == [5, 6]
    for failure in report.failures:
        assert WORDS[name] in failure.message
        assert failure.damage.startswith("file: ")


def test_the_command_counts_and_tells_how_to_repeat_a_failure():
    command = [sys.executable, "-m", "chaos", "sound", "broken-values", "--seed", "7"]
    path = f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [*command, "--tries", "2"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.search(r"^sound +2 +2 +0 +0 +0 +0$", done.stdout, re.M)
    assert re.search(r"^broken-values +2 +0 +0 +0 +0 +2$", done.stdout, re.M)
    assert "scripts/chaos broken-values --seed 7 --number 1" in done.stdout


def test_a_try_is_repeated_alone_from_seed_and_number():
    both = run_attack("broken-values", seed=9, numbers=range(2)).failures
    (alone,) = run_attack("broken-values", seed=9, numbers=range(1, 2)).failures
    assert alone.damage == both[1].damage
