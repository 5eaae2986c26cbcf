"""Thousands of mutated run files: each is a run or a config error, and none hangs."""

import contextlib
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from damaged_text import mutated
from run_files import GOOD

from estimax.config import RunFileError, load
from estimax.config.dump import dump
from estimax.core.errors import MissingFileError

ROOT = Path(__file__).parents[2]
SHIPPED = [path.read_bytes() for path in sorted((ROOT / "configs").glob("*.yaml"))]
FILES = [*SHIPPED, GOOD.encode()]
# More runs, or one that failed: ESTIMAX_FUZZ_SEEDS=7,8,9
SEEDS = [int(s) for s in os.environ.get("ESTIMAX_FUZZ_SEEDS", "1,2,3").split(",")]
RUNS = 1500
# Far above the second or so that the largest mutation takes, on any machine.
HANG_SECONDS = 60


class HangError(BaseException):
    """Not an Exception: nothing under test may catch it."""


@contextlib.contextmanager
def watchdog(seconds: int) -> Iterator[None]:
    """Raise after some seconds; after twice as many, print every stack and exit."""

    def bark(*_: object) -> None:
        raise HangError(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(seconds)
    # In C code that does not return, no Python handler runs.
    faulthandler.dump_traceback_later(2 * seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_mutated_file_is_a_run_or_a_config_error(tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "run.yaml"
    for number in range(RUNS):
        data = mutated(chance.choice(FILES), chance)
        path.write_bytes(data)
        try:
            with watchdog(HANG_SECONDS):
                loaded = load(path, environment={"HOME": "/home/me"})
                again = tmp_path / "again.yaml"
                again.write_text(dump(loaded.run), encoding="utf-8")
                assert load(again, environment={}).run == loaded.run
        except RunFileError as error:
            for problem in error.problems:
                assert problem.origin.line, f"seed {seed}, {number}: {problem}"
        except MissingFileError as error:
            # Without a model, the run is completed from its data, which is not here.
            if "The run has no model" not in str(error):
                raise
        except BaseException:
            kept = tmp_path / "failing.yaml"
            kept.write_bytes(data)
            print(f"seed {seed}, mutation {number}: see {kept}", file=sys.stderr)
            raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_mutated_override_is_a_run_or_a_config_error(tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "run.yaml"
    path.write_text(GOOD)
    given = [
        b"features.city={type: vocabulary, list: [a, b], oov_buckets: 2}",
        b"model.dnn.hidden_units=[8, 4]",
        b"model.dnn.hidden_units.0=9",
        b"optimizers.dnn={type: adam, learning_rate: 1e-3}",
        b"metadata.a.b=&a [1, {b: *a, c: '${name}'}]",
    ]
    for _ in range(RUNS):
        data = mutated(chance.choice(given), chance)
        override = os.fsdecode(data.replace(b"\0", b""))  # as a command line has it
        with watchdog(HANG_SECONDS), contextlib.suppress(RunFileError):
            load(path, [override], environment={"HOME": "/home/me"})
