"""Which models `init` writes."""

import pytest

from estimax.config.infer import infer
from estimax.config.model_choice import choose_models, training_of
from estimax.config.profile import profile
from estimax.config.starter import ALL, starter_text
from estimax.core.errors import ConfigError
from tests.config import run_files


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["age,city,late"]
    for i in range(200):
        age = "" if i % 10 == 0 else i % 70
        lines.append(f"{age},{('Oslo', 'Rome', 'Lima')[i % 3]},{int(i % 7 < 3)}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def loaded_run(folder, *models):
    inferred = infer(profile("t.csv"), "late", train_share=0.7).with_models(models)
    text = starter_text(inferred, {ALL: "t.csv"}, name="t", path="t.yaml", made_by="x")
    return run_files.load_text(folder, text).run


def test_trees_and_a_network_are_averaged(table):
    run = loaded_run(table, "trees", "network")
    assert run.model.type == "average"
    assert run.model.models["trees"].early_stopping_rounds == 50
    assert run.model.models["network"].type == "tabular"
    assert run.eval.source == "validation"
    assert run.early_stopping is None


def test_a_network_reads_missing_numbers_as_they_are(table):
    run = loaded_run(table, "network")
    assert list(run.model.models) == ["network"]
    assert run.features["age"].default is None
    assert run.features["age"].normalize is None
    assert "age_buckets" not in run.features
    assert run.train.max_steps >= training_of(140).steps


def test_trees_alone_take_a_step_for_each_tree(table):
    run = loaded_run(table, "trees")
    assert run.model.type == "boosted_trees"
    assert run.train.max_steps == run.model.n_trees


def test_a_linear_model_reads_cut_numbers(table):
    run = loaded_run(table, "linear")
    assert run.model.type == "linear"
    assert set(run.model.linear.features) == {"age_buckets", "city"}
    assert run.optimizers.linear is not None


def test_an_unknown_choice_is_named():
    with pytest.raises(ConfigError, match=r"--model: expected one of.*'networks'"):
        choose_models("networks")


def test_small_tables_get_at_least_400_steps():
    assert training_of(10).steps >= 400
    assert training_of(1_000_000).epochs == 8
