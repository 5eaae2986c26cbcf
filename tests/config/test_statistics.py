"""Figures taken from the data before training."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text

from estimax.config.build_model import head_call
from estimax.config.statistics import statistics_for
from estimax.core.errors import (
    ConfigError,
    FeatureError,
    InputError,
    LabelError,
    MissingFileError,
)

ROWS = "age,city,late\n10,rome,1\n20,oslo,0\n,rome,0\n30,rome,1\n40,,1\n40,bern,0\n"


def run_over(folder: Path, feature: str = "", rows: str = ROWS):
    (folder / "train.csv").write_text(rows)
    text = GOOD.replace("train.csv", str(folder / "train.csv"))
    if feature:
        text = text.replace("{type: hashed, buckets: 100}", feature)
    return load_text(folder, text).run


def test_mean_and_deviation_are_those_of_the_values_that_are_there(tmp_path):
    found = statistics_for(run_over(tmp_path), tmp_path / "s.json")
    ages = np.array([10, 20, 30, 40, 40.0])
    assert found.moments["age"].count == 5
    assert found.moments["age"].mean == pytest.approx(ages.mean())
    assert found.moments["age"].std == pytest.approx(ages.std())


def test_a_transform_comes_before_the_scaling(tmp_path):
    run = run_over(tmp_path)
    text = GOOD.replace("normalize: zscore", "normalize: zscore, transform: log1p")
    text = text.replace("train.csv", str(tmp_path / "train.csv"))
    found = statistics_for(load_text(tmp_path, text).run, tmp_path / "s.json")
    assert found.moments["age"].mean == pytest.approx(
        np.log1p([10, 20, 30, 40, 40]).mean()
    )
    assert found.raw["age"].mean == pytest.approx(28.0)
    assert run.features["age"].transform is None


def test_balanced_classes_weigh_by_their_counts(tmp_path):
    rows = ROWS.replace("20,oslo,0\n", "20,oslo,1\n")  # 4 of 6 are late
    (tmp_path / "train.csv").write_text(rows)
    text = GOOD.replace("train.csv", str(tmp_path / "train.csv"))
    text = text.replace(
        "  type: dnn\n",
        "  type: dnn\n  head: {type: binary, class_weights: balanced}\n",
    )
    loaded = load_text(tmp_path, text)
    found = statistics_for(loaded.run, tmp_path / "s.json")
    assert found.classes == {"late": {"0": 2, "1": 4}}
    assert statistics_for(loaded.run, tmp_path / "s.json") == found  # as it is saved
    head = head_call(loaded.run, loaded.run.model.head, found)
    assert head.named["class_weights"] == {"0": 1.5, "1": 0.75}
    one = ROWS.replace(",1\n", ",0\n")
    (tmp_path / "train.csv").write_text(one)
    with pytest.raises(LabelError, match="label 'late' has 1 class"):
        statistics_for(loaded.run, tmp_path / "other.json")


def test_a_constant_column_is_not_divided_by_zero(tmp_path):
    run = run_over(tmp_path, rows="age,city,late\n5,a,1\n5,b,0\n")
    assert statistics_for(run, tmp_path / "s.json").moments["age"].std == 1.0


def test_words_go_by_frequency_then_alphabet_and_missing_ones_do_not_count(tmp_path):
    run = run_over(tmp_path, "{type: vocabulary, from_data: {}}")
    found = statistics_for(run, tmp_path / "s.json")
    assert found.vocabularies["city"] == ("rome", "bern", "oslo")


def test_a_vocabulary_may_be_limited_by_count_and_size(tmp_path):
    run = run_over(tmp_path, "{type: vocabulary, from_data: {min_count: 2}}")
    assert statistics_for(run, tmp_path / "a.json").vocabularies["city"] == ("rome",)
    run = run_over(tmp_path, "{type: vocabulary, from_data: {max_size: 2}}")
    found = statistics_for(run, tmp_path / "b.json")
    assert found.vocabularies["city"] == ("rome", "bern")


def test_the_cache_is_used_until_the_file_changes(tmp_path):
    cache = tmp_path / "s.json"
    first = statistics_for(run_over(tmp_path), cache)
    saved = json.loads(cache.read_text())
    saved["statistics"]["moments"]["age"]["mean"] = 99.0
    cache.write_text(json.dumps(saved))
    run = load_text(tmp_path, (tmp_path / "run.yaml").read_text()).run
    assert statistics_for(run, cache).moments["age"].mean == 99.0
    os.utime(tmp_path / "train.csv", (1, 1))
    assert statistics_for(run, cache) == first


def test_a_trained_model_keeps_its_figures_whatever_the_files_say(tmp_path):
    cache = tmp_path / "s.json"
    first = statistics_for(run_over(tmp_path), cache)
    run = run_over(tmp_path, rows="age,city,late\n1000,rome,1\n")
    assert statistics_for(run, cache, keep=True) == first
    assert statistics_for(run, cache) != first


def test_other_figures_are_collected_when_the_features_change(tmp_path):
    cache = tmp_path / "s.json"
    statistics_for(run_over(tmp_path), cache)
    run = run_over(tmp_path, "{type: vocabulary, from_data: {}}")
    assert "city" in statistics_for(run, cache, keep=True).vocabularies


def test_a_missing_column_is_named_with_its_neighbour(tmp_path):
    run = run_over(tmp_path, rows="agee,city,late\n1,a,0\n")
    with pytest.raises(InputError, match=r"no column 'age'; did you mean 'agee'"):
        statistics_for(run, tmp_path / "s.json")


def test_a_word_among_numbers_is_an_error_with_the_file(tmp_path):
    run = run_over(tmp_path, rows="age,city,late\nold,a,0\n")
    with pytest.raises(InputError, match=r"train\.csv.*'old'"):
        statistics_for(run, tmp_path / "s.json")


def test_a_file_that_is_not_there_is_named_with_its_address(tmp_path):
    run = run_over(tmp_path)
    (tmp_path / "train.csv").unlink()
    with pytest.raises(MissingFileError, match=r"data\.sources\.train\.files: no file"):
        statistics_for(run, tmp_path / "s.json")


def test_a_vocabulary_without_words_is_refused(tmp_path):
    run = run_over(tmp_path, "{type: vocabulary, from_data: {min_count: 9}}")
    with pytest.raises(
        FeatureError, match=r"features\.city\.from_data: no word occurs"
    ):
        statistics_for(run, tmp_path / "s.json")


def test_the_pass_joins_batches_of_many_files(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(1e6, 3.0, size=2000)
    for i, part in enumerate(np.split(values, 4)):
        rows = "".join(f"{v!r},a,1\n" for v in part.tolist())
        (tmp_path / f"part-{i}.csv").write_text("age,city,late\n" + rows)
    text = GOOD.replace("train.csv", str(tmp_path / "part-*.csv"))
    found = statistics_for(load_text(tmp_path, text).run, tmp_path / "s.json")
    assert found.moments["age"].std == pytest.approx(values.std(), rel=1e-9)


DAMAGED = [
    "",
    "{",
    "\0",
    "[]",
    "null",
    "{}",
    "[" * 100_000,
    '{"request": 1, "files": "", "statistics": ' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_of_figures_is_an_error_that_names_it(tmp_path, content):
    cache = tmp_path / "s.json"
    cache.write_text(content)
    with pytest.raises(ConfigError, match=r"s\.json: expected the statistics .* found"):
        statistics_for(run_over(tmp_path), cache)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("moments", {"age": {"count": 5, "mean": float("nan"), "squares": 1.0}}),
        ("moments", {"age": {"count": -5, "mean": 1.0, "squares": 1.0}}),
        ("moments", {"age": {"count": 5, "mean": "1", "squares": 1.0}}),
        ("moments", {"age": {"count": 5}}),
        ("moments", {"age": 3}),
        ("moments", {}),
        ("raw", None),
        ("vocabularies", {"city": "rome"}),
        ("vocabularies", {"city": [1]}),
    ],
)
def test_figures_that_cannot_be_are_refused(tmp_path, key, value):
    run = run_over(tmp_path, "{type: vocabulary, from_data: {}}")
    cache = tmp_path / "s.json"
    statistics_for(run, cache)
    saved = json.loads(cache.read_text())
    saved["statistics"][key] = value
    cache.write_text(json.dumps(saved))
    with pytest.raises(ConfigError, match=r"s\.json: expected the statistics"):
        statistics_for(run, cache)


def test_figures_without_ranges_serve_runs_that_need_none(tmp_path):
    run, cache = run_over(tmp_path), tmp_path / "s.json"
    first = statistics_for(run, cache)
    saved = json.loads(cache.read_text())
    for group in ("raw", "moments"):
        for key in ("low", "high"):
            del saved["statistics"][group]["age"][key]
    cache.write_text(json.dumps(saved))
    found = statistics_for(run, cache, keep=True).moments["age"]
    assert found.mean == first.moments["age"].mean
    assert found.std == first.moments["age"].std
    age = dataclasses.replace(run.features["age"], normalize="minmax")
    ranged = dataclasses.replace(run, features={**run.features, "age": age})
    with pytest.raises(ConfigError, match="'low'"):
        statistics_for(ranged, cache, keep=True)


def test_a_file_of_figures_that_is_not_utf_8_is_an_error(tmp_path):
    (tmp_path / "s.json").write_bytes(b'{"request": "\xff"}')
    with pytest.raises(ConfigError, match=r"s\.json: expected the statistics"):
        statistics_for(run_over(tmp_path), tmp_path / "s.json")
