"""Runs of several heads and evaluations, and of none: every command works on them."""

import json

import pytest

pytest.importorskip("matplotlib")

HEADS = """\
schema: estimax/run/v1
name: heads
run: {{model_dir: {folder}/model, save_checkpoints: {{every_steps: 5}}}}
data:
  labels: {{late: late, old: age}}
  sources:
    train: {{format: csv, files: "{folder}/train.csv", batch_size: 32, epochs: null}}
    test: {{format: csv, files: "{folder}/test.csv", batch_size: 50}}
features:
  plane: {{type: numeric}}
  city: {{type: vocabulary, list: [rome, oslo, bern]}}
model:
  type: dnn
  dnn: {{features: {{numeric: [plane], indicator: [city]}}, hidden_units: [4]}}
  head: {{type: multi, heads: {{late: {{type: binary}}, old: {{type: regression}}}}}}
optimizers: {{dnn: {{type: adagrad, learning_rate: 0.01}}}}
train: {{max_steps: 5}}
eval:
  source: test
  slices: {{city: [oslo]}}
  also: {{again: {{source: test, steps: 1}}}}
export: [{{type: final, name: events}}]
"""
GROUPS = """\
schema: estimax/run/v1
name: groups
run: {{model_dir: {folder}/model, save_summary_steps: 2}}
data:
  sources:
    train: {{format: csv, files: "{folder}/train.csv", batch_size: 32, epochs: null}}
    test: {{format: csv, files: "{folder}/test.csv", batch_size: 50}}
features: {{plane: {{type: numeric}}}}
model: {{type: kmeans, clusters: 2, features: {{numeric: [plane]}}}}
train: {{max_steps: 5}}
eval: {{source: test}}
"""
OWN = """\
import jax.numpy as jnp
from flax import linen as nn

import estimax as ex


def model_fn(features, labels, mode, params):
    value = nn.Dense(1)(features["plane"].reshape(-1, 1))[:, 0]
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions=value)
    loss = jnp.mean((value - labels.reshape(-1)) ** 2)
    optimizer = ex.optimizers.SGD(1e-6)
    return ex.EstimatorSpec(mode, predictions=value, loss=loss, train_op=optimizer)
"""
REPORT = ("--set", "run.report=true")


def write(folder, text):
    from cli.conftest import write_run

    path = write_run(folder)
    for name in ("train", "test"):  # a label must not be missing
        file = folder / f"{name}.csv"
        lines = file.read_text().splitlines()
        file.write_text("\n".join(x for x in lines if x[0] != ",") + "\n")
    path.write_text(text.format(folder=folder))
    return path


@pytest.fixture(scope="module")
def heads(cli, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("heads"), HEADS)
    return path, cli("train", path, *REPORT, "--json")


def test_several_heads_and_evaluations_are_trained_and_reported(heads):
    path, answer = heads
    assert answer.code == 0, answer.err
    end = json.loads(answer.out.splitlines()[-1])
    assert list(end["also"]) == ["city_oslo", "again"]
    report = (path.parent / "model" / "report.html").read_text()
    assert "Evaluated on all data of eval_test, at step 5." in report


def test_predictions_of_several_heads_have_their_names(cli, heads):
    answer = cli("predict", heads[0], "--input", heads[0].parent / "test.csv")
    assert answer.code == 0, answer.err
    header = answer.out.splitlines()[0].split(",")
    assert {"late/logistic", "old/predictions"} <= set(header)
    assert not any("all_class" in name for name in header)


def test_the_first_of_several_evaluations_is_compared(cli, heads):
    model = heads[0].parent / "model"
    before = {path.name for path in model.glob("eval*")}
    assert cli("evaluate", heads[0]).code == 0
    assert {path.name for path in model.glob("eval*")} == before
    (line,) = cli("compare", model, "--json").out.splitlines()
    metrics = json.loads(line)["metrics"]
    assert {name.partition("/")[0] for name in metrics} == {
        "eval",
        "eval_again",
        "eval_city_oslo",
    }


def test_a_model_without_labels_is_trained_and_reported(cli, tmp_path):
    path = write(tmp_path, GROUPS)
    answer = cli("train", path, *REPORT)
    assert answer.code == 0, answer.err
    assert "TensorBoard" not in answer.err, "the data is described to it"
    assert f"report: {tmp_path}/model/report.html" in answer.err


def test_a_model_fn_that_predicts_one_array_is_reported_too(cli, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_model.py").write_text(OWN)
    text = GROUPS.replace("data:\n", "data:\n  label: age\n")
    start = text.index("model: {{type")
    model = 'model: {{model_fn: "own_model:model_fn"}}\n'
    path = write(tmp_path, text[:start] + model + text[text.index("train: {{max") :])
    answer = cli("train", path, *REPORT)
    assert answer.code == 0, answer.err
    assert f"report: {tmp_path}/model/report.html" in answer.err
    predicted = cli("predict", path, "--input", tmp_path / "test.csv")
    assert predicted.code == 0, predicted.err
    assert predicted.out.startswith("output\n")
