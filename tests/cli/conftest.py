"""A command line in a process of its own, and a small run to give it."""

import contextlib
import io
import logging
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import xla_flags

from estimax.cli.main import main

RUN = """\
schema: estimax/run/v1
name: tiny
seed: 3
run:
  model_dir: {folder}/model
  save_checkpoints: {{every_steps: 20}}
  save_summary_steps: 0
data:
  label: late
  sources:
    train: {{format: csv, files: "{folder}/train.csv", shuffle: {{buffer_rows: 500}},
             batch_size: 32, epochs: null}}
    test: {{format: csv, files: "{folder}/test.csv", batch_size: 50}}
features:
  age: {{type: numeric, default: mean, normalize: zscore}}
  age_buckets: {{type: bucketized, source: age, boundaries: [20, 40, 60]}}
  city: {{type: vocabulary, from_data: {{}}, oov_buckets: 1}}
  plane: {{type: hashed, buckets: 20}}
  age_x_city: {{type: crossed, keys: [age_buckets, city, plane], buckets: 50}}
model:
  type: dnn_linear_combined
  linear: {{features: [age_buckets, plane, age_x_city]}}
  dnn:
    features: {{numeric: [age], embedding: {{dim: 4, of: [city]}}}}
    hidden_units: [8]
optimizers:
  linear: {{type: ftrl, learning_rate: 0.1}}
  dnn: {{type: adagrad, learning_rate: 0.1}}
train: {{max_steps: 40}}
eval: {{source: test}}
export: [{{type: best, metric: auc}}]
"""


PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


def without_report(arguments: tuple[object, ...]) -> list[str]:
    """Let training write no report, which takes seconds, unless a test asks for it."""
    given = [str(argument) for argument in arguments]
    if given[:1] == ["train"] and "run.report=true" not in given:
        given.append("--no-report")
    return given


def estimax(*arguments: object, cwd: Path | None = None) -> Answer:
    """Run `python -m estimax` as a user would, on one device and without colours."""
    environment = {**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE, **PLAIN}
    done = subprocess.run(
        [sys.executable, "-m", "estimax", *without_report(arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
        timeout=900,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def process():
    """The command line in a process of its own: slow, and as a user has it."""
    return estimax


@pytest.fixture(scope="session")
def cli():
    """The command line in this process: jax is imported and compiled for once."""
    return invoke


def invoke(*arguments: object, cwd: Path | None = None) -> Answer:
    logger = logging.getLogger("estimax")
    code = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        for name, value in PLAIN.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["estimax", *without_report(arguments)])
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            logger.handlers, logger.propagate = [], True
            logger.setLevel(logging.NOTSET)
    return Answer(code, out.getvalue(), err.getvalue())


def write_run(folder: Path) -> Path:
    """Data in which old people from Rome are late, and a run over it."""
    chance = random.Random(0)
    for name, rows in (("train", 400), ("test", 120)):
        lines = ["age,city,plane,late"]
        for _ in range(rows):
            age, city = chance.randint(1, 90), chance.choice(["rome", "oslo", "bern"])
            late = int(age > 45) ^ int(chance.random() < 0.1)
            shown = "" if chance.random() < 0.05 else age
            lines.append(f"{shown},{city},{chance.randint(1, 99)},{late}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    path = folder / "run.yaml"
    path.write_text(RUN.format(folder=folder))
    return path


@pytest.fixture
def run_file(tmp_path):
    return write_run(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run that has been trained once, for all tests that only read it."""
    path = write_run(tmp_path_factory.mktemp("trained"))
    answer = invoke("train", path)
    assert answer.code == 0, answer.err
    return path, answer
