"""A run file that leaves out the model is completed from its data."""

import json

import pytest

from estimax.config.load import load
from estimax.config.nodes import RunFileError
from estimax.core.errors import MissingFileError

SHORT = """\
data:
  label: late
  sources:
    train: {{files: "{folder}/train.csv"}}
    test: {{files: "{folder}/test.csv"}}
"""


@pytest.fixture
def short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "test"):
        rows = [f"{i % 90},{'abc'[i % 3]},{i % 2}" for i in range(100)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,city,late", *rows, ""]))
    path = tmp_path / "short.yaml"
    path.write_text(SHORT.format(folder=tmp_path))
    return path


def test_data_and_label_are_enough(short):
    loaded = load(short)
    run = loaded.run
    assert run.name == "short"
    assert run.run.model_dir == "runs/short"
    assert list(run.features) == ["age", "age_buckets", "city"]
    assert run.eval.source == "test"
    assert run.export[0].metric == "average_loss"
    assert "inferred from" in str(loaded.origin("features.age.type"))


def test_what_the_file_and_the_options_say_is_kept(short):
    short.write_text(
        short.read_text() + "optimizers: {dnn: {type: sgd, learning_rate: 1}}"
    )
    run = load(short, ["train.max_steps=7", "model.dnn.dropout=0.5"]).run
    assert run.optimizers.dnn.type == "sgd"
    assert run.optimizers.linear.type == "ftrl"
    assert run.model.dnn.dropout == 0.5
    assert run.train.max_steps == 7
    assert run.data.sources["train"].epochs is None, "so that the steps are reached"


def test_features_of_the_file_are_used(short):
    short.write_text(short.read_text() + "features: {age: {type: numeric}}\n")
    run = load(short).run
    assert list(run.features) == ["age"]
    assert run.model.dnn.features.numeric == ("age",)


def test_a_trained_run_keeps_what_was_chosen_for_it(short, tmp_path):
    before = load(short)
    folder = tmp_path / "runs" / "short"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "inferred.json").write_text(json.dumps(before.inferred))
    (folder / "model.ckpt-10").mkdir()
    more = (tmp_path / "train.csv").read_text() + "95,d,1\n" * 50
    (tmp_path / "train.csv").write_text(more)
    assert load(short).run == before.run


def test_a_misspelt_model_is_not_replaced(short):
    short.write_text(short.read_text() + "modle: {type: linear}\n")
    with pytest.raises(RunFileError, match="modle: unknown key; did you mean 'model'"):
        load(short)


def test_a_missing_train_file_is_told(short, tmp_path):
    (tmp_path / "train.csv").unlink()
    with pytest.raises(MissingFileError, match=r"data\.sources\.train\.files"):
        load(short)
