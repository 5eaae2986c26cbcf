"""Competitors in virtual environments of their own, made when they are missing.

    tf_python()         # TensorFlow 2.15.1, the last with tf.estimator
    keras_python()      # Keras 3 on the JAX that estimax runs on

TensorFlow needs an older NumPy than JAX does, and must not share a process with it:
libraries that both start threads disturb each other's timing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from race import tell

TENSORFLOW = "tensorflow-cpu==2.15.1"
KERAS = "keras==3.15.1"
_ROOT = Path(__file__).resolve().parent.parent
# What TensorFlow 2.15 has wheels for.
_PYTHONS = ((3, 11), (3, 10), (3, 9))


def tf_python(given: str | None = None) -> str:
    """A Python that has TensorFlow: the given one, or that of `.venv-tf`."""
    if given is not None:
        _check(given, "tensorflow-cpu")
        return given
    return _installed(".venv-tf", [TENSORFLOW], _base_python())


def keras_python(given: str | None = None) -> str:
    """A Python that has Keras and JAX: the given one, or that of `.venv-keras`."""
    if given is not None:
        _check(given, "keras")
        return given
    packages = [KERAS, f"jax=={version('jax')}", f"jaxlib=={version('jaxlib')}"]
    return _installed(".venv-keras", packages, sys.executable)


def _installed(folder: str, packages: list[str], base: str) -> str:
    path = _ROOT / folder
    python = path / "bin" / "python"
    marker = path / "installed"
    wanted = " ".join(packages) + "\n"
    if not marker.exists() or marker.read_text() != wanted:
        tell(f"installing {wanted.strip()} into {path} (once)")
        subprocess.run([base, "-m", "venv", "--clear", path], check=True)
        install = [python, "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, stdout=sys.stderr)
        # Written last: an installation that was broken off is made anew.
        marker.write_text(wanted)
    return str(python)


def _check(python: str, package: str) -> None:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python} has no {package}: {done.stderr}")


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
