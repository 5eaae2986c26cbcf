"""Wrong run files, and the exact line that each of them earns."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text, problems, spoiled, write

from estimax.config import RunFileError, load
from estimax.core.errors import MissingFileError


def test_a_correct_run_has_no_problems(tmp_path):
    assert problems(tmp_path, GOOD) == []


# Each is: what to replace, by what, and all the lines that must be printed.
WRONG = [
    (
        "hidden_units: [8]",
        "hiden_units: [8]",
        "run.yaml:15:5: model.dnn.hiden_units: unknown key; "
        "did you mean 'hidden_units'?",
    ),
    (
        "    hidden_units: [8]\n",
        "",
        "run.yaml:14:5: model.dnn.hidden_units: required key is missing",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: [8]\n    dropout: abc",
        "run.yaml:16:14: model.dnn.dropout: expected float or null, got str 'abc'",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: [8]\n    hidden_units: [9]",
        "run.yaml:16:5: model.dnn.hidden_units: duplicate key; first on line 15",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: 8",
        "run.yaml:15:19: model.dnn.hidden_units: expected a list, got int 8; write [8]",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: [0]",
        "run.yaml:15:20: model.dnn.hidden_units.0: must be >= 1, got 0",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: []",
        "run.yaml:15:19: model.dnn.hidden_units: needs at least 1 item, has 0",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: [8]\n    activation: relo",
        "run.yaml:16:17: model.dnn.activation: unknown value 'relo'; "
        "did you mean 'relu'?",
    ),
    (
        "hidden_units: [8]",
        "hidden_units: [8]\n    batch_norm: yes",
        "run.yaml:16:17: model.dnn.batch_norm: expected true or false, got str 'yes'",
    ),
    (
        "max_steps: 10",
        "max_steps: 1e3",
        "run.yaml:16:20: train.max_steps: expected int or null, got float 1000; "
        "write 1000",
    ),
    (
        "max_steps: 10",
        "max_steps: '10'",
        "run.yaml:16:20: train.max_steps: expected int or null, got str '10'; "
        "write 10 without quotes",
    ),
    (
        "max_steps: 10",
        "max_steps: -1",
        "run.yaml:16:20: train.max_steps: must be >= 1, got -1",
    ),
    (
        "max_steps: 10",
        "max_steps: true",
        "run.yaml:16:20: train.max_steps: expected int or null, got true",
    ),
    (
        "name: small",
        "name: small\nseed: 4294967296",
        "run.yaml:3:7: seed: must be <= 4294967295, got 4294967296",
    ),
    (
        "name: small",
        "name: 2013",
        "run.yaml:2:7: name: expected str, got int 2013; quote it: '2013'",
    ),
    (
        "name: small",
        "name: small\ntrian: {}",
        "run.yaml:3:1: trian: unknown key; did you mean 'train'?",
    ),
    (
        "name: small",
        "name: small\nfoo: {}",
        "run.yaml:3:1: foo: unknown key; expected one of: data, early_stopping, eval, "
        "export, features, include, metadata, model, name, optimizers, run, schema, "
        "seed, serving, sweep, test, train, vars, warm_start",
    ),
    (
        "schema: estimax/run/v1",
        "schema: estimax/run/v9",
        "run.yaml:1:9: schema: unknown value 'estimax/run/v9'; "
        "did you mean 'estimax/run/v1'?",
    ),
    (
        "run: {model_dir: runs/small}",
        "run: runs/small",
        "run.yaml:3:6: run: expected a mapping, got str 'runs/small'; "
        "write {model_dir: runs/small}",
    ),
    (
        "type: hashed",
        "type: hash",
        "run.yaml:10:16: features.city.type: unknown type 'hash'; "
        "did you mean 'hashed'?",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{buckets: 100}",
        "run.yaml:10:9: features.city.type: required key is missing; one of: "
        "numeric, expression, date, date_difference, bucketized, piecewise_linear, "
        "periodic, vocabulary, hashed, text, identity, crossed, weighted",
    ),
    (
        "numeric: [age]",
        "numeric: [aeg]",
        "run.yaml:9:3: features.age: no part of the model uses it; "
        "add it to the model or remove it",
        "run.yaml:14:26: model.dnn.features.numeric.0: unknown feature 'aeg'; "
        "did you mean 'age'?",
    ),
    (
        "numeric: [age]",
        "numeric: [age, city]",
        "run.yaml:14:31: model.dnn.features.numeric.1: 'city' is hashed; "
        "put it under embedding or indicator",
    ),
    (
        "of: [city]",
        "of: [city, age]",
        "run.yaml:14:63: model.dnn.features.embedding.of.1: 'age' is numeric; "
        "put it under numeric, or bucketize it",
    ),
    (
        "of: [city]",
        "of: [city, city]",
        "run.yaml:14:63: model.dnn.features.embedding.of.1: 'city' is listed twice",
    ),
    (
        "  city: {type: hashed, buckets: 100}",
        "  city: {type: hashed, buckets: 100}\n  spare: {type: hashed, buckets: 9}",
        "run.yaml:11:3: features.spare: no part of the model uses it; "
        "add it to the model or remove it",
    ),
    (
        "  city: {type: hashed, buckets: 100}",
        "  city: {type: vocabulary, oov_buckets: 1}",
        "run.yaml:10:3: features.city: needs its words: one of list, file, from_data",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: vocabulary, list: [a, b], from_data: {}}",
        "run.yaml:10:42: features.city.from_data: conflicts with list; "
        "keep one of the two",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: vocabulary, list: [a, 1]}",
        "run.yaml:10:28: features.city.list: mixes texts and numbers; "
        "quote the numbers",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: vocabulary, list: [a, b, a]}",
        "run.yaml:10:41: features.city.list.2: 'a' is listed twice",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: identity, buckets: 5, default: 5}",
        "run.yaml:10:38: features.city.default: must be < buckets (5), got 5",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: bucketized, source: age, boundaries: [1, 3, 3]}",
        "run.yaml:10:60: features.city.boundaries.2: must increase, got 3 after 3",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: bucketized, source: city, boundaries: [1]}",
        "run.yaml:10:28: features.city.source: 'city' is bucketized; "
        "name a numeric feature",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: crossed, keys: [age, toun], buckets: 5}",
        "run.yaml:10:32: features.city.keys.0: 'age' is numeric; "
        "cross a bucketized feature of it",
        "run.yaml:10:37: features.city.keys.1: unknown feature 'toun'; "
        "expected one of: age, city",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: crossed, keys: [age], buckets: 5}",
        "run.yaml:10:31: features.city.keys: needs at least 2 items, has 1",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: hashed, buckets: 100, column: age}",
        "run.yaml:10:3: features.city: reads column 'age' as text, 'age' as numbers",
    ),
    (
        "{type: hashed, buckets: 100}",
        "{type: hashed, buckets: 100, column: late}",
        "run.yaml:10:3: features.city: reads the label 'late'; a model may not see it",
    ),
    (
        "normalize: zscore",
        "normalize: {mean: 1, std: 0}",
        "run.yaml:9:50: features.age.normalize.std: must be > 0, got 0",
    ),
    (
        "normalize: zscore",
        "normalise: zscore",
        "run.yaml:9:24: features.age.normalise: unknown key; did you mean 'normalize'?",
    ),
    (
        "batch_size: 32",
        "batch_size: 32, epochs: null",
        None,
    ),
    (
        "train: {max_steps: 10}",
        "train: {source: tran}",
        "run.yaml:16:9: train.source: unknown source 'tran'; did you mean 'train'?",
    ),
    (
        "train: {max_steps: 10}",
        "eval: {source: test}",
        "run.yaml:16:8: eval.source: unknown source 'test'; expected one of: train",
    ),
    (
        "batch_size: 32",
        "batch_size: 32, csv: {header: false}",
        "run.yaml:7:60: data.sources.train.csv.columns: required key is missing: "
        "there is no header",
    ),
    (
        "batch_size: 32",
        "batch_size: 32, csv: {columns: [age, town, late]}",
        "run.yaml:10:3: features.city: source 'train' has no column 'city'; "
        "expected one of: age, late, town",
    ),
    (
        "batch_size: 32",
        "batch_size: 32, csv: {delimiter: '||'}",
        "run.yaml:7:66: data.sources.train.csv.delimiter: must be one character",
    ),
    (
        "label: late",
        "label: late\n  label_vocabulary: [a, b, c]",
        "run.yaml:6:3: data.label_vocabulary: a binary head needs 2 words, got 3",
    ),
    (
        "train: {max_steps: 10}",
        "export: [{type: best}]",
        "run.yaml:16:1: export: bundles are written after evaluations: "
        "add an eval section",
    ),
    (
        "train: {max_steps: 10}",
        "eval: {source: train}\nexport: [{type: best, metric: acu}]",
        "run.yaml:17:23: export.0.metric: unknown metric 'acu'; did you mean 'auc'?",
    ),
    (
        "train: {max_steps: 10}",
        "eval: {source: train}\nexport: [{type: best, metric: label/mean}]",
        "run.yaml:17:10: export.0.mode: say whether more 'label/mean' is better: "
        "max or min",
    ),
    (
        "train: {max_steps: 10}",
        "eval: {source: train}\nexport: [{type: final}, {type: final}]",
        "run.yaml:17:25: export.1.name: two exports are named 'final'; "
        "give each its own",
    ),
    (
        "train: {max_steps: 10}",
        "optimizers: {linear: {type: ftrl, learning_rate: 0.1}}",
        "run.yaml:16:14: optimizers.linear: a dnn model has no linear part; remove it",
    ),
    (
        "train: {max_steps: 10}",
        "optimizers: {dnn: {type: adm, learning_rate: 0.1}}",
        "run.yaml:16:26: optimizers.dnn.type: unknown type 'adm'; did you mean 'adam'?",
    ),
    (
        "train: {max_steps: 10}",
        "optimizers: {dnn: {type: sgd, learning_rate: {schedule: cosin}}}",
        "run.yaml:16:57: optimizers.dnn.learning_rate.schedule: "
        "unknown schedule 'cosin'; did you mean 'cosine'?",
    ),
    (
        "train: {max_steps: 10}",
        "optimizers: {dnn: {type: sgd, learning_rate: "
        "{schedule: piecewise, boundaries: [5], values: [1.0, 0.1, 0.01]}}}",
        "run.yaml:16:85: optimizers.dnn.learning_rate.values: "
        "needs 2 values, one more than boundaries, got 3",
    ),
    (
        "model_dir: runs/small",
        "model_dir: runs/small, save_checkpoints: {every_steps: 5, every_secs: 5}",
        "run.yaml:3:65: run.save_checkpoints.every_secs: conflicts with every_steps; "
        "keep one of the two",
    ),
    (
        "model_dir: runs/small",
        'model_dir: "runs/${nam}"',
        "run.yaml:3:18: run.model_dir: unknown reference ${nam}; "
        "did you mean 'name'? (or env:VARIABLE)",
    ),
    (
        "model_dir: runs/small",
        'model_dir: "${env:NOWHERE}/x"',
        "run.yaml:3:18: run.model_dir: environment variable NOWHERE is not set",
    ),
    (
        "name: small",
        "name: small\nvars: {x: 1}",
        "run.yaml:3:8: vars.x: nothing refers to it; remove it or use ${vars.x}",
    ),
    (
        "name: small",
        'name: "${vars.x}"\nvars: {x: "${vars.y}", y: "${vars.x}"}',
        "run.yaml:3:27: vars.y: references go in a circle: vars.x -> vars.y -> vars.x",
    ),
    (
        "label: late",
        "label: !late x",
        "run.yaml:5:10: data.label: the tag !late is not supported: a run file holds "
        "plain YAML (text, numbers, lists, mappings); remove the tag",
    ),
    (
        "name: small",
        "name: small\ninclude: [gone.yaml]",
        "run.yaml:3:11: include: no file",
    ),
    (
        "name: small",
        "name: small\ninclude: [run.yaml]",
        "run.yaml:3:11: include: run.yaml includes itself",
    ),
]


CASES = [(old, new, lines) for old, new, *lines in WRONG]


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_a_mistake_is_reported_where_it_is_with_what_to_do(
    tmp_path, old, new, expected
):
    found = problems(tmp_path, spoiled(old, new))
    if expected == [None]:
        assert found == []
    else:
        assert len(found) == len(expected), "\n".join(found)
        for line, want in zip(found, expected, strict=True):
            # Only the name of the test's own folder may follow.
            assert line == want or line.startswith(f"{want} {tmp_path}/")


def test_all_mistakes_are_printed_at_once_in_reading_order(tmp_path):
    text = GOOD.replace("buckets: 100", "bucket: 100").replace("max_steps", "max_step")
    path = write(tmp_path, text.replace("dim: 4", "dim: four"))
    with pytest.raises(RunFileError) as caught:
        load(path)
    assert str(caught.value) == (
        f"3 errors in {path}\n"
        f"  {path}:10:24: features.city.bucket: unknown key; did you mean 'buckets'?\n"
        f"  {path}:14:49: model.dnn.features.embedding.dim: expected int, "
        "got str 'four'\n"
        f"  {path}:16:9: train.max_step: unknown key; did you mean 'max_steps'?"
    )


def test_a_file_that_is_not_yaml_says_where_and_hints_at_quotes(tmp_path):
    text = spoiled("{model_dir: runs/small}", "{model_dir: ${env:HOME}}")
    (line,) = problems(tmp_path, text)
    assert line.startswith("run.yaml:3:")
    assert line.endswith('a reference needs quotes: "${vars.x}"')


def test_training_without_end_is_refused(tmp_path):
    text = spoiled("batch_size: 32", "batch_size: 32, epochs: null")
    text = text.replace("train: {max_steps: 10}\n", "")
    assert problems(tmp_path, text) == [
        "run.yaml:1:1: train.max_steps: would never end: give max_steps, "
        "or data.sources.train.epochs"
    ]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        MissingFileError, match=r"gone\.yaml: there is no such run file"
    ):
        load(tmp_path / "gone.yaml")


def test_an_empty_file_lacks_every_required_section(tmp_path):
    lines = problems(tmp_path, "")
    assert lines == [
        f"run.yaml:1:1: {key}: required key is missing"
        for key in ("schema", "name", "run", "data", "model")
    ]


def test_a_list_at_the_top_is_refused(tmp_path):
    (line,) = problems(tmp_path, "- a\n- b\n")
    assert line == (
        "run.yaml:1:1: expected a mapping of sections (name: ..., data: ...), "
        "got a list"
    )


def test_scalars_are_those_of_yaml_1_2(tmp_path):
    text = spoiled("name: small", "name: NO\nmetadata: {a: 1e-3, b: yes, c: 0o17}")
    run = load_text(tmp_path, text).run
    assert run.name == "NO"
    assert run.metadata == {"a": 0.001, "b": "yes", "c": 15}


def test_a_lone_group_and_a_lone_file_become_lists(tmp_path):
    run = load_text(tmp_path, GOOD).run
    assert run.data.sources["train"].files == ("train.csv",)
    assert [group.dim for group in run.model.dnn.features.embedding] == [4]


def test_an_override_wins_and_is_named_as_the_origin(tmp_path):
    loaded = load_text(tmp_path, GOOD, "train.max_steps=500")
    assert loaded.run.train.max_steps == 500
    assert str(loaded.origin("train.max_steps")) == "--set train.max_steps=500"
    assert str(loaded.origin("seed")) == "default"
    assert str(loaded.origin("name")).endswith("run.yaml:2:1")


def test_a_wrong_override_is_reported_as_such(tmp_path):
    assert problems(tmp_path, GOOD, "train.max_step=5", "seed=abc", "nonsense") == [
        "--set nonsense: expected PATH=VALUE, such as train.max_steps=500",
        "--set seed=abc: seed: expected int, got str 'abc'",
        "--set train.max_step=5: train.max_step: unknown key; "
        "did you mean 'max_steps'?",
    ]


def test_an_override_may_hold_yaml_or_reach_into_a_list(tmp_path):
    loaded = load_text(
        tmp_path, GOOD, "model.dnn.hidden_units=[4, 2]", "model.dnn.hidden_units.1=3"
    )
    assert loaded.run.model.dnn.hidden_units == (4, 3)


def test_an_override_beyond_a_list_is_refused(tmp_path):
    assert problems(tmp_path, GOOD, "model.dnn.hidden_units.7=3") == [
        "--set model.dnn.hidden_units.7=3: model.dnn.hidden_units.7: "
        "expected an index from 0 to 0, got '7'"
    ]


def test_an_override_adds_what_the_file_lacks(tmp_path):
    loaded = load_text(tmp_path, GOOD, "eval.source=train", "export=[{type: latest}]")
    assert loaded.run.eval.source == "train"
    assert loaded.run.export[0].keep == 5


def test_the_model_dir_option_is_its_own_origin(tmp_path):
    loaded = load(write(tmp_path, GOOD), model_dir="elsewhere")
    assert loaded.run.run.model_dir == "elsewhere"
    assert str(loaded.origin("run.model_dir")).startswith("--model-dir")


def test_references_keep_the_type_of_what_they_name(tmp_path):
    text = spoiled("dim: 4", 'dim: "${vars.dim}"')
    text = text.replace("name: small", "name: small\nvars: {dim: 16}")
    text = text.replace("runs/small", '"${env:HOME}/${name}-${vars.dim}"')
    run = load_text(tmp_path, text, environment={"HOME": "/home/me"}).run
    assert run.model.dnn.features.embedding[0].dim == 16
    assert run.run.model_dir == "/home/me/small-16"


def test_a_doubled_dollar_is_a_literal_one(tmp_path):
    run = load_text(tmp_path, spoiled("runs/small", '"$${name}"')).run
    assert run.run.model_dir == "${name}"


def test_the_file_wins_over_what_it_includes_and_maps_merge(tmp_path):
    base = "seed: 7\nname: base\nmetadata: {a: 1, b: 2}\nvars: {unused: 1}\n"
    write(tmp_path, base, "base.yaml")
    text = spoiled("name: small", "name: small\ninclude: [base.yaml]\nmetadata: {b: 3}")
    loaded = load_text(tmp_path, text)
    assert (loaded.run.seed, loaded.run.name) == (7, "small")
    assert loaded.run.metadata == {"a": 1, "b": 3}
    assert str(loaded.origin("seed")).endswith("base.yaml:1:1")


def test_a_mistake_in_an_included_file_points_there(tmp_path):
    write(tmp_path, "seed: x\n", "base.yaml")
    lines = problems(tmp_path, spoiled("name: small", "name: a\ninclude: [base.yaml]"))
    assert lines == ["base.yaml:1:7: seed: expected int, got str 'x'"]


def test_a_class_of_ones_own_may_leave_features_unused(tmp_path):
    start = GOOD.index("model:\n")
    model = 'model: {class: "my.models:Mine", params: {depth: 3}}\n'
    run = load_text(tmp_path, GOOD[:start] + model).run
    assert (run.model.class_, run.model.params) == ("my.models:Mine", {"depth": 3})


def test_a_class_must_name_module_and_object(tmp_path):
    start = GOOD.index("model:\n")
    text = GOOD[:start] + "model: {class: my.models.Mine}\n"
    assert problems(tmp_path, text) == [
        'run.yaml:11:9: model.class: expected "package.module:Name"'
    ]


def test_a_model_of_pairs_wants_two_embeddings_of_one_width(tmp_path):
    wanted = [
        "run.yaml:14:5: model.dnn.features: deepfm multiplies embeddings; give two or "
        "more features of the same dim"
    ]
    assert problems(tmp_path, spoiled("type: dnn", "type: deepfm")) == wanted


def test_a_click_model_has_one_optimizer(tmp_path):
    text = spoiled("type: dnn", "type: dcn")
    given = "optimizers.linear={type: ftrl, learning_rate: 0.1}"
    (found,) = problems(tmp_path, text, given)
    assert "optimizers.linear: a dcn model has no linear part; remove it" in found


def test_paths_may_start_at_the_folder_of_the_run_file(tmp_path, monkeypatch):
    folder = tmp_path / "a ${name} b"  # the path itself contains no reference
    folder.mkdir()
    text = GOOD.replace("runs/small", "'${folder}/runs/${name}'")
    (folder / "run.yaml").write_text(text)
    monkeypatch.chdir(folder)
    for path in ("run.yaml", folder / "run.yaml"):
        assert load(path).run.run.model_dir == f"{folder}/runs/small"
