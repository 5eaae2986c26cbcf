"""TensorFlow 2.15.1 in a virtual environment of its own, made when it is missing.

The last TensorFlow with tf.estimator needs an older NumPy than JAX does, and must not
share a process with it: libraries that both start threads disturb each other's timing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from race import tell

TENSORFLOW = "tensorflow-cpu==2.15.1"
_FOLDER = Path(__file__).resolve().parent.parent / ".venv-tf"
# What TensorFlow 2.15 has wheels for.
_PYTHONS = ((3, 11), (3, 10), (3, 9))


def tf_python(given: str | None = None) -> str:
    """A Python that has TensorFlow: the given one, or that of `.venv-tf`."""
    if given is not None:
        _check(given)
        return given
    python = _FOLDER / "bin" / "python"
    marker = _FOLDER / "installed"
    if not marker.exists():
        tell(f"installing {TENSORFLOW} into {_FOLDER} (once; 500 MB)")
        subprocess.run([_base_python(), "-m", "venv", "--clear", _FOLDER], check=True)
        install = [python, "-m", "pip", "install", "--quiet", TENSORFLOW]
        subprocess.run(install, check=True, stdout=sys.stderr)
        # Written last: an installation that was broken off is made anew.
        marker.write_text(TENSORFLOW + "\n")
    return str(python)


def _check(python: str) -> None:
    code = "from importlib.metadata import version; print(version('tensorflow-cpu'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"--tf-python {python} has no tensorflow-cpu: {done.stderr}")


def _base_python() -> str:
    if sys.version_info[:2] in _PYTHONS:
        return sys.executable
    for major, minor in _PYTHONS:
        found = shutil.which(f"python{major}.{minor}")
        if found:
            return found
    raise SystemExit(
        f"{TENSORFLOW} needs Python 3.9 to 3.11 and none is on the PATH. Install one, "
        "give --tf-python with an environment that has TensorFlow, or leave it out "
        "with --without-tf."
    )
