import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_model_fn_example_learns_digits_and_exports(tmp_path):
    program = EXAMPLES / "custom_model" / "digits.py"
    done = subprocess.run(
        [sys.executable, program, "--model-dir", tmp_path, "--steps", "200"],
        capture_output=True,
        text=True,
        check=True,
    )
    accuracy = float(re.search(r"^accuracy (\S+)", done.stdout, re.M)[1])
    assert accuracy > 0.8
    assert Path(re.search(r"bundle in (\S+)", done.stdout)[1], "manifest.json").exists()
