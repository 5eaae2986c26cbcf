"""From a checked run to the objects that train it."""

import math
import os
import sys
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text

from estimax import canned, checkpoints, export, heads, hooks, optimizers
from estimax.config.build import (
    Built,
    build,
    exporter_call,
    hook_call,
    plan,
    run_config_call,
    warm_start_call,
)
from estimax.config.build_columns import ColumnBuilder
from estimax.config.build_input import input_fn, make_predict_input_fn
from estimax.config.build_model import head_call, optimizer_call, rate_of
from estimax.config.expressions import CallExpression, evaluate
from estimax.config.schema.hooks import CustomHookConfig, HookConfig
from estimax.config.schema.optimizers import (
    AdagradConfig,
    AdamConfig,
    CosineConfig,
    ExponentialConfig,
    FtrlConfig,
    InverseTimeConfig,
    PiecewiseConfig,
    PolynomialConfig,
    RmsPropConfig,
    SgdConfig,
)
from estimax.config.schema.run import (
    BestExport,
    FinalExport,
    LatestExport,
    VocabularyChange,
    WarmStartSection,
)
from estimax.config.schema.section import CodeName, fields_of
from estimax.config.statistics import Moments, Statistics
from estimax.core.errors import ConfigError, InputError
from estimax.feature_columns.transforms import Scaling

ROWS = "age,city,late,other\n10,rome,1,x\n,oslo,0,y\n30,,1,z\n"
FEATURES = """\
  age: {type: numeric, default: mean, normalize: zscore}
  size: {type: numeric, transform: log1p, normalize: {mean: 1, std: 2}}
  age_cut: {type: bucketized, source: age, boundaries: [20, 40]}
  city: {type: vocabulary, from_data: {}, oov_buckets: 2}
  kind: {type: vocabulary, list: [a, b]}
  plane: {type: hashed, column: tail, buckets: 50}
  gate: {type: identity, buckets: 9, default: 0}
  mix: {type: crossed, keys: [age_cut, city, plane], buckets: 30}
"""
STATISTICS = Statistics(
    raw={"age": Moments(4, 40.0, 400.0)},
    moments={"age": Moments(4, 40.0, 400.0)},
    vocabularies={"city": ("rome", "oslo")},
)


def make_input_fn(run, source):
    return evaluate(input_fn(run, source, {}))


def all_columns(folder):
    start, end = GOOD.index("  age: {"), GOOD.index("train: {max_steps")
    model = (
        "model:\n  type: linear\n"
        "  linear: {features: [age, size, age_cut, city, kind, plane, gate, mix]}\n"
    )
    text = GOOD[:start] + FEATURES + model + GOOD[end:]
    builder = ColumnBuilder(load_text(folder, text).run, STATISTICS)
    return evaluate(builder.all())


def small_run(folder: Path, *overrides: str):
    (folder / "train.csv").write_text(ROWS)
    text = GOOD.replace("train.csv", str(folder / "train.csv"))
    text = text.replace("runs/small", str(folder / "model"))
    return load_text(folder, text, *overrides)


def test_a_number_is_filled_and_scaled_by_the_data(tmp_path):
    column = all_columns(tmp_path)["age"]
    assert column.normalizer_fn == Scaling(fill=40.0, mean=40.0, std=10.0)
    assert column.key == "age"


def test_a_given_scale_follows_the_transform(tmp_path):
    scaling = all_columns(tmp_path)["size"].normalizer_fn
    assert scaling(np.array([math.e - 1])) == pytest.approx(0.0)


def test_boundaries_are_in_the_units_of_the_data(tmp_path):
    column = all_columns(tmp_path)["age_cut"]
    assert column.boundaries == (20.0, 40.0)
    assert column.source_column.normalizer_fn == Scaling(fill=40.0)


def test_categorical_features_have_the_sizes_that_were_asked_for(tmp_path):
    columns = all_columns(tmp_path)
    sizes = {name: columns[name].num_buckets for name in ("city", "kind", "plane")}
    assert sizes == {"city": 4, "kind": 2, "plane": 50}
    assert columns["plane"].key == "tail"
    assert columns["gate"].num_buckets == 9


def test_a_cross_takes_columns_and_the_raw_words_of_hashed_features(tmp_path):
    assert all_columns(tmp_path)["mix"].name == "age_bucketized_X_city_X_tail"


def test_scaling_is_the_same_for_numpy_and_for_jax():
    scaling = Scaling(fill=3.0, log1p=True, mean=0.5, std=2.0)
    values = np.array([1.0, np.nan, 7.0], np.float32)
    expected = (np.log1p(np.array([1.0, 3.0, 7.0])) - 0.5) / 2
    np.testing.assert_allclose(scaling(values), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(scaling)(values), expected, rtol=1e-6)


def test_whole_numbers_are_scaled_without_looking_for_missing_ones():
    assert Scaling(fill=1.0, mean=1.0, std=2.0)(np.array([5])).tolist() == [2.0]


@pytest.mark.parametrize(
    ("section", "name"),
    [
        (SgdConfig(learning_rate=0.1, momentum=0.9, nesterov=True), "SGD"),
        (AdagradConfig(learning_rate=0.1, clip_global_norm=5.0), "Adagrad"),
        (AdamConfig(learning_rate=0.1), "Adam"),
        (AdamConfig(learning_rate=0.1, lazy=True), "LazyAdam"),
        (RmsPropConfig(learning_rate=0.1, centered=True), "RMSProp"),
        (FtrlConfig(learning_rate=0.1, l1=0.01), "Ftrl"),
    ],
)
def test_every_optimizer_can_be_built(section, name):
    assert evaluate(optimizer_call(section)).name.lower() == name.lower()


@pytest.mark.parametrize(
    ("schedule", "at_zero", "at_ten"),
    [
        (ExponentialConfig(initial=1.0, decay_steps=10, decay_rate=0.5), 1.0, 0.5),
        (InverseTimeConfig(initial=1.0, decay_steps=10, decay_rate=1.0), 1.0, 0.5),
        (PolynomialConfig(initial=1.0, decay_steps=20, end=0.0), 1.0, 0.5),
        (CosineConfig(initial=1.0, decay_steps=20), 1.0, 0.5),
        (CosineConfig(initial=1.0, decay_steps=20, warmup_steps=10), 0.0, 1.0),
        (PiecewiseConfig(boundaries=(5,), values=(1.0, 0.5)), 1.0, 0.5),
    ],
)
def test_every_schedule_can_be_built(schedule, at_zero, at_ten):
    rate = evaluate(rate_of(schedule))
    assert float(rate(0)) == pytest.approx(at_zero)
    assert float(rate(10)) == pytest.approx(at_ten, abs=1e-6)


def test_the_exporters_compare_the_metric_that_was_named():
    best = evaluate(exporter_call(BestExport(metric="eval/auc", keep=2), None))
    assert best.compare_fn(
        best_eval_result={"auc": 0.6}, current_eval_result={"auc": 0.7}
    )
    assert best.exports_to_keep == 2
    assert isinstance(
        evaluate(exporter_call(LatestExport(), None)), export.LatestExporter
    )
    final = evaluate(exporter_call(FinalExport(explain=True), None))
    assert isinstance(final, export.FinalExporter)
    assert (final.explain, best.explain) == (True, False)


def made_head(run):
    return evaluate(head_call(run, run.model.head, Statistics()))


def test_heads_get_weights_words_and_thresholds(tmp_path):
    loaded = small_run(
        tmp_path,
        "model.head={type: binary, thresholds: [0.3]}",
        "data.weight=other",
        "data.label_vocabulary=[no, yes]",
    )
    head = made_head(loaded.run)
    assert isinstance(head, heads.BinaryClassHead)
    assert head.thresholds == (0.3,)
    assert head.weight_column == "other"
    assert tuple(head.label_vocabulary) == ("no", "yes")
    loaded = small_run(tmp_path, "model.head={type: multi_class, classes: 4}")
    assert made_head(loaded.run).logits_dimension == 4
    loaded = small_run(tmp_path, "model.head={type: regression}")
    head = made_head(loaded.run)
    assert isinstance(head, heads.RegressionHead)


def test_the_run_config_is_that_of_the_section(tmp_path):
    loaded = small_run(
        tmp_path,
        "run.save_checkpoints={every_steps: 7, keep_last: null}",
        "run.compilation_cache=off",
        "seed=9",
        "data.prefetch=3",
        "run.resume_input=restart",
    )
    config = evaluate(run_config_call(loaded.run))
    assert config.resume_input == "restart"
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (7, None)
    assert config.keep_checkpoint_max is None
    assert config.compilation_cache_dir is None
    assert (config.tf_random_seed, config.prefetch_batches) == (9, 3)


def test_a_run_of_a_canned_model_becomes_its_estimator(tmp_path):
    built = build(small_run(tmp_path, "run.compilation_cache=off"))
    assert isinstance(built, Built)
    assert isinstance(built.estimator, canned.DNNEstimator)
    assert built.train_spec().max_steps == 10
    assert built.eval_spec() is None


TWO_CITIES = (
    "features.born={type: hashed, buckets: 10}",
    "model.dnn.features.embedding={dim: 4, of: [city, born]}",
)


def test_a_run_may_name_a_click_model(tmp_path):
    built = build(small_run(tmp_path, *TWO_CITIES, "model.type=deepfm"))
    assert isinstance(built.estimator, canned.DeepFMClassifier)
    cross = ("model.type=dcn", "model.projection=2", "features.age.default=0")
    built = build(small_run(tmp_path, *cross))
    assert isinstance(built.estimator, canned.DCNClassifier)
    built.estimator.train(built.input_fn("train"), steps=1)
    names = built.estimator.get_variable_names()
    assert "cross_2/projection/kernel" in names
    assert "training/slots/input_layer/city_embedding/embedding_weights/m" in names


def test_a_run_may_start_from_another_model(tmp_path):
    assert build(small_run(tmp_path)).estimator.warm_start_from is None
    section = "warm_start={from: runs/old, variables: 'dnn/.*', partial: true}"
    settings = build(small_run(tmp_path, section)).estimator.warm_start_from
    assert settings.ckpt_to_initialize_from == os.path.abspath("runs/old")
    assert settings.vars_to_warm_start == "dnn/.*"
    assert (settings.partial, settings.slots) == (True, True)


def test_missing_numbers_reach_the_column_as_nan(tmp_path):
    run = small_run(tmp_path, "features.age.default=mean").run
    features, labels = next(iter(make_input_fn(run, "train")()))
    assert set(features) == {"age", "city"}
    np.testing.assert_array_equal(features["age"], [10.0, np.nan, 30.0])
    assert labels.tolist() == [1.0, 0.0, 1.0]


def test_a_missing_number_without_a_default_is_an_error(tmp_path):
    run = small_run(tmp_path).run
    with pytest.raises(InputError, match="age"):
        next(iter(make_input_fn(run, "train")()))


def test_prediction_needs_no_label(tmp_path):
    (tmp_path / "new.csv").write_text("age,city\n5,rome\n6,oslo\n")
    run = small_run(tmp_path).run
    batch = next(iter(make_predict_input_fn(run, str(tmp_path / "new.csv"))()))
    assert batch["age"].tolist() == [5.0, 6.0]


def test_shuffling_follows_the_seed_of_the_run(tmp_path):
    def order(*overrides):
        shuffled = "data.sources.train.shuffle={buffer_rows: 100}"
        run = small_run(tmp_path, shuffled, *overrides).run
        rows = "".join(f"{i},rome,1,x\n" for i in range(50))
        (tmp_path / "train.csv").write_text("age,city,late,other\n" + rows)
        features, _ = next(iter(make_input_fn(run, "train")()))
        return features["age"].tolist()

    assert order("seed=1") == order("seed=1") != order("seed=2")
    own = "data.sources.train.shuffle.seed=5"
    assert order(own, "seed=1") == order(own, "seed=2")


CODE = """\
import flax.linen as nn
import jax.numpy as jnp

import estimax as ex

head = ex.heads.BinaryClassHead()


def model_fn(features, labels, mode, params):
    net = ex.feature_columns.input_layer(features, [params["columns"]["age"]])
    net = nn.relu(nn.Dense(params["units"], name="hidden")(net))
    logits = nn.Dense(1, name="logits")(net)
    return head.create_estimator_spec(
        features, mode, logits, labels, optimizer=ex.optimizers.Adam(0.01)
    )


class Steps(ex.SessionRunHook):
    seen = []

    def __init__(self, note):
        self.note = note

    def after_run(self, context, values):
        self.seen.append((self.note, context.step))


def half(x):
    return x / 2
"""


def test_a_run_may_name_a_model_fn_and_hooks_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_code.py").write_text(CODE)
    (tmp_path / "train.csv").write_text("age,late\n1,0\n2,1\n")
    text = GOOD[: GOOD.index("features:")] + (
        "features: {age: {type: numeric, normalizer_fn: 'own_code:half'}}\n"
        "model: {model_fn: 'own_code:model_fn', params: {units: 3}}\n"
        "train: {hooks: [{class: 'own_code:Steps', params: {note: hi}}]}\n"
    )
    built = build(load_text(tmp_path, text, "run.compilation_cache=off"))
    spec = built.train_spec()
    built.estimator.train(spec.input_fn, spec.hooks, max_steps=1)
    assert spec.hooks[0].seen == [("hi", 1)]
    assert built.estimator.get_variable_value("hidden/kernel").shape == (1, 3)


def test_code_that_cannot_be_imported_is_named_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = GOOD.replace("normalize: zscore", "normalizer_fn: 'no_such_code:half'")
    with pytest.raises(ConfigError, match=r"run\.yaml:9:24: features\.age\.normal"):
        build(load_text(tmp_path, text))


def test_patterns_freeze_variables(tmp_path):
    built = build(small_run(tmp_path, "optimizers.freeze=dnn/hidden.*", NO_CACHE, FILL))
    built.estimator.train(built.input_fn("train"), steps=1)
    names = [
        n for n in built.estimator.get_variable_names() if n.startswith("training")
    ]
    assert any("logits" in name for name in names)
    assert not any("hiddenlayer" in name for name in names)


NO_CACHE = "run.compilation_cache=off"
FILL = "features.age.default=0"


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("{type: optax, name: lion, learning_rate: 0.01}", "optax"),
        ("{type: adamw, learning_rate: 0.1, weight_decay: 0.1}", "AdamW"),
        ("{type: lazy_adam, learning_rate: 0.1}", "LazyAdam"),
        ("{type: proximal_adagrad, learning_rate: 0.1, l1: 0.1}", "ProximalAdagrad"),
        ("{class: 'estimax.optimizers:SGD', params: {learning_rate: 0.1}}", "SGD"),
    ],
)
def test_an_optimizer_may_be_any_of_ours_or_of_optax(tmp_path, override, name):
    run = small_run(tmp_path, f"optimizers.dnn={override}").run
    found = optimizers.as_optimizer(evaluate(optimizer_call(run.optimizers.dnn)))
    assert name.lower() in found.name.lower() or name == "optax"


def test_a_changed_vocabulary_needs_no_oov_buckets():
    change = VocabularyChange(new="new.txt", new_size=3, old="old.txt")
    section = WarmStartSection(from_="runs/old", vocabularies={"table": change})
    settings = evaluate(warm_start_call(section))
    assert settings.var_name_to_vocab_info["table"].num_oov_buckets == 0


STOCK_HOOKS = [kind for kind in get_args(HookConfig) if kind is not CustomHookConfig]


@pytest.mark.parametrize("section", STOCK_HOOKS, ids=lambda section: section.__name__)
def test_every_stock_hook_can_be_built(section, tmp_path):
    required = {
        "tensors": ("loss",),
        "num_steps": 5,
        "wait_until_step": 1,
        "checkpoint_dir": str(tmp_path),
        "metric_name": "loss",
        "threshold": 1.0,
        "max_steps_without_increase": 5,
        "max_steps_without_decrease": 5,
        "last_step": 5,
        "should_stop_fn": CodeName("builtins:bool"),
        "save_steps": 5,
        "every_n_iter": 5,
    }
    exclusive = {"StopAtStepHookConfig": "last_step", "WaiterHookConfig": "x"}
    fields = {f.name for f in fields_of(section).values()}
    fields -= {exclusive.get(section.__name__, "")}
    hook = section(**{k: v for k, v in required.items() if k in fields})
    run = small_run(tmp_path).run
    model = CallExpression(
        "estimax.canned.BaselineRegressor", {"model_dir": str(tmp_path)}
    )
    assert isinstance(evaluate(hook_call(run, hook, model)), hooks.Hook)


def test_early_stopping_looks_whenever_there_is_an_evaluation(tmp_path):
    stop = "early_stopping={metric: auc, steps: 50, min_delta: 0.01}"
    eval_ = "eval={source: train, every_steps: 10}"
    call = plan(small_run(tmp_path, stop, eval_)).train_spec().named["hooks"][0]
    assert call.path == "estimax.hooks.stop_if_no_increase_hook"
    assert call.named["run_every_steps"] == 10
    assert call.named["min_delta"] == 0.01
    assert isinstance(evaluate(call), hooks.Hook)


def test_a_vocabulary_may_change_in_a_warm_start(tmp_path):
    change = "{new: new.txt, new_size: 4, old: old.txt, old_size: 3, oov_buckets: 1}"
    name = "dnn/city"
    section = f"warm_start={{from: runs/old, vocabularies: {{'{name}': {change}}}}}"
    call = warm_start_call(small_run(tmp_path, section).run.warm_start)
    info = evaluate(call).var_name_to_vocab_info[name]
    assert (info.new_vocab, info.new_vocab_size, info.old_vocab) == (
        "new.txt",
        4,
        "old.txt",
    )
    assert (info.old_vocab_size, info.num_oov_buckets) == (3, 1)


def test_embeddings_have_every_option_of_the_column(tmp_path):
    group = (
        "model.dnn.features.embedding=[{dim: 3, of: [city, born], shared: true, "
        "shared_name: places, max_norm: 2.0, combiner: sum, trainable: false, "
        "initializer: {name: constant, args: {value: 0.5}}}]"
    )
    born = "features.born={type: hashed, buckets: 100}"
    run = small_run(tmp_path, group, born).run
    columns = evaluate(ColumnBuilder(run, STATISTICS).deep(run.model.dnn.features))
    first, second = columns[1:]
    assert first.shared_embedding_collection_name == "places"
    assert first.table == second.table
    table = first.table
    assert (table.dimension, table.combiner, table.max_norm) == (3, "sum", 2.0)
    assert not table.trainable
    assert float(table.initializer(jax.random.key(0), (1,), np.float32)[0]) == 0.5


PER_HEAD = """\
schema: estimax/run/v1
name: two
run: {{model_dir: "{folder}/model"}}
data:
  labels: {{late: late, old: age}}
  sources: {{train: {{format: csv, files: "{folder}/a.csv", batch_size: 4}}}}
features:
  plane: {{type: numeric}}
  city: {{type: hashed, buckets: 10}}
model:
  type: per_head
  models:
    late: {{type: linear, linear: {{features: [city]}}}}
    old:
      type: dnn
      dnn: {{features: {{numeric: [plane]}}, hidden_units: [4]}}
      head: {{type: regression, normalize_label: false}}
  weights: {{old: 0.25}}
optimizers:
  models: {{old: {{dnn: {{type: sgd, learning_rate: 0.1}}}}}}
  freeze: ["old/dnn/logits/.*"]
"""


def test_each_head_has_a_model_and_an_optimizer_of_its_own(tmp_path):
    rows = "".join(f"{i % 2},{i},{i / 9},c{i % 3}\n" for i in range(12))
    (tmp_path / "a.csv").write_text(f"late,age,plane,city\n{rows}")
    text = PER_HEAD.format(folder=tmp_path)
    loaded = load_text(tmp_path, text)
    models = loaded.run.optimizers.models
    assert (models["late"].linear.type, models["old"].dnn.type) == ("ftrl", "sgd")
    built = build(loaded)
    built.estimator.train(built.train_spec().input_fn, steps=2)
    first, last = (
        checkpoints.read(f"{tmp_path}/model/model.ckpt-{step}").arrays
        for step in (0, 2)
    )
    changed = {name for name in first if (first[name] != last[name]).any()}
    assert any(name.endswith("old/dnn/hiddenlayer_0/kernel") for name in changed)
    assert any("late/linear/" in name for name in changed)
    assert not any("old/dnn/logits" in name for name in changed), "it is frozen"
    wrong = "optimizers.freeze=[dnn/.*]"
    with pytest.raises(ConfigError, match=r"begin with the name of a model: \.\* or"):
        load_text(tmp_path, text, wrong)
