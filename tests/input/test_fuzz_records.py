"""Whatever bytes come, readers and parsers answer or refuse, within their arrays."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("fuzz_records.py")


def _fuzz(records, files, seed, timeout):
    # In a process of its own: a byte read too far ends it, and not the tests.
    options = ["--records", str(records), "--files", str(files), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *options],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_some_mutated_records_and_files_are_survived():
    _fuzz(records=3000, files=300, seed=1, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_many_mutated_records_and_files_are_survived(seed):
    _fuzz(records=50_000, files=5_000, seed=seed, timeout=3000)
