import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_model_fn_example_learns_digits_and_exports(tmp_path):
    program = EXAMPLES / "custom_model" / "digits.py"
    done = subprocess.run(
        [sys.executable, program, "--model-dir", tmp_path, "--steps", "80"],
        capture_output=True,
        text=True,
        check=True,
    )
    accuracy = float(re.search(r"^accuracy (\S+)", done.stdout, re.M)[1])
    assert accuracy > 0.8
    assert Path(re.search(r"bundle in (\S+)", done.stdout)[1], "manifest.json").exists()


def test_the_click_models_example_gains_by_looking_at_the_history():
    program = EXAMPLES / "click_models" / "compare.py"
    done = subprocess.run(
        [sys.executable, program, "700"], capture_output=True, text=True, check=True
    )
    found = dict(re.findall(r"^(\w+) +AUC (\S+)", done.stdout, re.M))
    assert list(found) == ["DNN", "DeepFM", "DCN", "DIN"]
    assert float(found["DIN"]) > float(found["DNN"]) + 0.02
    assert re.search(r"^clicked +\+0\.", done.stdout, re.M)
