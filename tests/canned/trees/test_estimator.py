"""Trees as an Estimator: training, resuming, checkpoints, bundles and bad input."""

import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import CheckpointError, FeatureError, LabelError, SpecError
from estimax.hooks import Hook

lightgbm = pytest.importorskip("lightgbm")
fc = ex.feature_columns
ROWS = 400
CITIES = np.array([b"rome", b"oslo", b"lima", b"bonn"])


def table(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, rows).astype(np.float32)
    age[rng.random(rows) < 0.1] = np.nan
    features = {
        "age": age,
        "hour": rng.integers(0, 24, rows),
        "city": CITIES[rng.integers(0, 4, rows)],
        "weight": rng.integers(1, 4, rows).astype(np.float32),
    }
    is_old = np.nan_to_num(age, nan=60.0) > 40
    return features, (is_old ^ (features["city"] == b"oslo")).astype(np.int64)


def columns():
    cities = ["rome", "oslo", "lima"]
    city = fc.categorical_column_with_vocabulary_list("city", cities)
    return [
        fc.numeric_column("age"),
        fc.bucketized_column(fc.numeric_column("hour"), [6.0, 18.0]),
        fc.indicator_column(city),
    ]


FEATURES, LABELS = table()


def dataset(labels=LABELS, features=FEATURES, seed=None):
    rows = ex.input.Dataset.from_tensor_slices((features, labels))
    return rows.shuffle(100, seed=seed).repeat().batch(64)


def once(labels=LABELS, features=FEATURES):
    return ex.input.Dataset.from_tensor_slices((features, labels)).batch(128)


def config(**options):
    return ex.RunConfig(
        tf_random_seed=3,
        save_summary_steps=0,
        log_step_count_steps=None,
        **{"save_checkpoints_steps": 2, **options},
    )


def classifier(folder=None, **options):
    options = {"n_trees": 12, "subsample": 0.7, "feature_fraction": 0.7, **options}
    run = options.pop("config", config())
    return ex.BoostedTreesClassifier(columns(), model_dir=folder, config=run, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("trees") / "model")
    return classifier(folder, weight_column="weight").train(dataset)


# ---------------------------------------------------------------- training, prediction
def test_boosted_trees_learn_and_report_the_metrics_of_a_classifier(trained):
    found = trained.evaluate(once)
    assert found["auc"] > 0.95
    assert {"accuracy", "average_loss", "precision", "recall"} <= found.keys()
    assert found["global_step"] == 12


def test_predictions_equal_lightgbms_own(trained):
    forest = lightgbm.Booster(model_str=trained.model_to_string())
    age, hour = FEATURES["age"], FEATURES["hour"]
    bucket = (hour >= 6).astype(np.float32) + (hour >= 18)
    words = {b"rome": 0, b"oslo": 1, b"lima": 2}
    city = [words.get(word, np.nan) for word in FEATURES["city"]]
    expected = forest.predict(np.stack([age, bucket, city], axis=1))
    found = [row["logistic"][0] for row in trained.predict(once)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_order_of_the_rows_and_repeats_do_not_matter(trained, tmp_path):
    other = classifier(str(tmp_path), weight_column="weight").train(once)
    assert other.model_to_string() == trained.model_to_string()


def test_a_regressor_learns_numbers():
    model = ex.BoostedTreesRegressor(columns(), center_bias=True, config=config())
    model.train(lambda: once(1000.0 + 5 * LABELS), max_steps=30)
    found = model.evaluate(lambda: once(1000.0 + 5 * LABELS))
    assert found["average_loss"] < 1.0
    assert abs(found["prediction/mean"] - found["label/mean"]) < 0.5


def test_several_classes_with_words_as_labels():
    words = np.array([b"low", b"mid", b"high"])[LABELS + (FEATURES["hour"] > 12)]
    model = ex.BoostedTreesClassifier(
        columns(),
        n_classes=3,
        label_vocabulary=["low", "mid", "high"],
        n_trees=20,
        config=config(),
    )
    model.train(lambda: once(words))
    assert model.evaluate(lambda: once(words))["accuracy"] > 0.8
    row = next(iter(model.predict(lambda: once(words))))
    assert row["probabilities"].shape == (3,)
    assert row["classes"][0] in (b"low", b"mid", b"high")


def test_a_random_forest_of_deep_trees():
    model = ex.RandomForestClassifier(
        columns(), n_trees=10, num_leaves=200, min_data_in_leaf=1, config=config()
    )
    # Labels that the features do not explain need many leaves.
    noisy = np.where(np.arange(ROWS) % 5 == 0, 1 - LABELS, LABELS)
    model.train(lambda: once(noisy))
    assert model.evaluate(once)["auc"] > 0.9
    text = model.model_to_string()
    assert max(int(s.split("\n")[0]) for s in text.split("num_leaves=")[1:]) > 64


def test_numbers_alone_need_no_categories():
    model = ex.BoostedTreesClassifier(columns()[:1], n_trees=5, config=config())
    assert model.train(once).evaluate(once)["auc"] > 0.6


def test_a_scaled_label_is_predicted_in_its_unit():
    head = ex.heads.RegressionHead(label_mean=1002.0, label_std=2.5)
    model = ex.BoostedTreesEstimator(columns(), head=head, n_trees=30, config=config())
    model.train(lambda: once(1000.0 + 5 * LABELS))
    assert model.evaluate(lambda: once(1000.0 + 5 * LABELS))["average_loss"] < 1.0


def test_weights_change_the_trees(trained):
    plain = classifier().train(once)
    assert plain.model_to_string() != trained.model_to_string()


def test_importances_are_by_feature(trained):
    found = trained.experimental_feature_importances(normalize=True)
    assert next(iter(found)) in ("age", "city")
    assert found["hour_bucketized"] == min(found.values())
    assert abs(sum(found.values()) - 1) < 1e-9
    assert trained.experimental_feature_importances(kind="split")["age"] >= 1
    with pytest.raises(SpecError, match="'gain' or 'split'"):
        trained.experimental_feature_importances(kind="weight")


def test_integrated_gradients_are_refused(trained):
    with pytest.raises(SpecError, match="Trees have no gradients"):
        ex.inspection.integrated_gradients(trained, once)


def test_a_missing_number_stays_missing_behind_a_scaling():
    scaled = fc.numeric_column("age", normalizer_fn=ex.transforms.Scaling(40.0, 10.0))
    model = ex.BoostedTreesClassifier([scaled], n_trees=3, config=config())
    plain = ex.BoostedTreesClassifier(
        [fc.numeric_column("age")], n_trees=3, config=config()
    )
    assert model.train(once).model_to_string() == plain.train(once).model_to_string()


# --------------------------------------------------------------- resuming, checkpoints
class _KilledError(Exception):
    pass


class _KillAt(Hook):
    """Fails at a step, before the step is saved."""

    def __init__(self, step):
        self._step = step

    def before_run(self, context):
        if context.step == self._step:
            raise _KilledError

    def next_step(self, step):
        return step + 1


@pytest.mark.parametrize("kind", ["boosted", "classes", "forest"])
def test_training_that_fails_ten_times_ends_with_the_same_bits(kind, tmp_path):
    def build(folder):
        options = {"config": config(save_checkpoints_steps=1)}
        if kind == "forest":
            return ex.RandomForestClassifier(
                columns(), str(tmp_path / folder), n_trees=12, **options
            )
        classes = {"n_classes": 3} if kind == "classes" else {}
        return classifier(str(tmp_path / folder), **classes, **options)

    whole = build("whole").train(dataset)
    for step in range(1, 11):
        shuffled = partial(dataset, seed=step)  # another order each time
        with pytest.raises(_KilledError):
            build("killed").train(shuffled, hooks=[_KillAt(step)])
    killed = build("killed").train(dataset)
    assert killed.model_to_string() == whole.model_to_string()
    for name in whole.get_variable_names():
        one, other = whole.get_variable_value(name), killed.get_variable_value(name)
        np.testing.assert_array_equal(one, other, err_msg=name)


PROGRAM = """
    import os, signal, sys
    sys.path.insert(0, {root!r})
    from tests.canned.trees.test_estimator import *

    class Kill(Hook):
        def after_run(self, context, values):
            if context.step == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

    classifier(sys.argv[1], n_trees=24).train(dataset, hooks=[Kill()])
"""


@pytest.mark.slow
def test_ten_kills_resume_bit_identically(tmp_path):
    root = str(Path(__file__).parents[3])
    code = textwrap.dedent(PROGRAM).format(root=root)

    def run(folder, step):
        command = [sys.executable, "-c", code, str(tmp_path / folder), str(step)]
        return subprocess.run(command, check=False, cwd=root).returncode

    assert run("whole", -1) == 0
    for step in range(2, 22, 2):
        assert run("killed", step) == -signal.SIGKILL
    assert run("killed", -1) == 0
    whole, killed = (
        classifier(str(tmp_path / "whole")),
        classifier(str(tmp_path / "killed")),
    )
    assert killed.model_to_string() == whole.model_to_string()


def test_a_call_continues_up_to_n_trees(tmp_path):
    classifier(str(tmp_path)).train(once, steps=5)
    model = classifier(str(tmp_path)).train(once, max_steps=9).train(once)
    assert model.latest_checkpoint().endswith("ckpt-12")
    whole = classifier().train(once)
    assert model.model_to_string() == whole.model_to_string()
    assert model.train(once) is model  # nothing is left to do


def test_old_checkpoints_are_removed(tmp_path):
    run = config(keep_checkpoint_max=2, save_checkpoints_steps=3)
    classifier(str(tmp_path), config=run).train(once)
    found = [path.name for path in checkpoints.all_checkpoints(tmp_path)]
    assert found == ["model.ckpt-9", "model.ckpt-12"]


def test_a_damaged_checkpoint_is_skipped(tmp_path):
    model = classifier(str(tmp_path)).train(once)
    state = Path(model.latest_checkpoint()) / "state-00000-of-00001.safetensors"
    content = bytearray(state.read_bytes())
    content[-20] ^= 1
    state.write_bytes(content)
    assert classifier(str(tmp_path)).evaluate(once)["global_step"] == 10
    assert classifier(str(tmp_path)).train(once).evaluate(once)["global_step"] == 12


def test_changed_rows_are_an_error_only_after_an_interruption(tmp_path):
    with pytest.raises(_KilledError):
        classifier(str(tmp_path)).train(once, hooks=[_KillAt(4)])
    features, labels = table(seed=1)
    with pytest.raises(ex.input.ChangedInputError, match="interrupted at step 4"):
        classifier(str(tmp_path)).train(lambda: once(labels, features))
    classifier(str(tmp_path)).train(once, max_steps=8)
    classifier(str(tmp_path)).train(lambda: once(labels, features))


def test_other_columns_or_classes_are_an_error(tmp_path):
    classifier(str(tmp_path)).train(once, steps=2)
    fewer = ex.BoostedTreesClassifier(columns()[:2], model_dir=str(tmp_path))
    with pytest.raises(CheckpointError, match="trees for the columns age"):
        fewer.train(once)
    with pytest.raises(CheckpointError, match="1 outputs, and the head has 3"):
        classifier(str(tmp_path), n_classes=3).train(once)


def test_a_warm_start_adds_trees(trained):
    more = classifier(weight_column="weight", warm_start_from=trained.model_dir)
    assert more.evaluate(once)["auc"] == trained.evaluate(once)["auc"]
    more.train(once, steps=3)
    ours, theirs = more.model_to_string(), trained.model_to_string()
    assert ours.count("Tree=") == theirs.count("Tree=") + 3
    assert more.evaluate(once)["average_loss"] < trained.evaluate(once)["average_loss"]


def test_early_stopping_keeps_the_trees_of_the_best_step(tmp_path):
    noisy = np.random.default_rng(0).integers(0, 2, ROWS)
    model = classifier(str(tmp_path), n_trees=60, early_stopping_rounds=4)
    features, labels = table(seed=5)
    metrics, _ = ex.train_and_evaluate(
        model,
        ex.TrainSpec(lambda: once(np.where(noisy & (LABELS == 1), 0, LABELS))),
        ex.EvalSpec(lambda: once(labels, features), throttle_secs=0),
    )
    saved = checkpoints.restore_latest(tmp_path)
    best = saved.extra["input"]["best"]
    assert saved.step == best["step"] + 4 < 60
    assert metrics["average_loss"] == pytest.approx(best["loss"], rel=1e-5)
    assert model.train(once).latest_checkpoint().endswith(f"ckpt-{saved.step}")


def test_early_stopping_without_evaluation_data_says_so(caplog):
    classifier(early_stopping_rounds=4, n_trees=2).train(once)
    assert "Use train_and_evaluate" in caplog.text


def test_every_few_steps_the_trees_in_memory_are_evaluated(tmp_path):
    model = classifier(str(tmp_path), config=config(save_checkpoints_steps=100))
    spec = ex.EvalSpec(once, every_steps=5)
    ex.train_and_evaluate(model, ex.TrainSpec(once), spec)
    found = ex.summary.read_scalars(model.eval_dir())
    assert [step for step, _ in found["loss"]] == [5, 10, 12]


# ----------------------------------------------------------------------------- bundles
SERVE = """
    import sys

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "lightgbm":
                raise ImportError("blocked")

    sys.meta_path.insert(0, Blocked())
    import asyncio, json, urllib.request
    import estimax as ex
    bundle = ex.export.load(sys.argv[1])
    row = {"age": [31.5], "hour": [3], "city": ["bonn"]}
    print(float(bundle.predict(row)["logistic"][0, 0]))
    from estimax.serving import Server, ServerConfig
"""


def test_a_bundle_needs_no_lightgbm(trained, tmp_path):
    path = trained.export_saved_model(str(tmp_path))
    command = [sys.executable, "-c", textwrap.dedent(SERVE), path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = {
        "age": np.float32([31.5]),
        "hour": np.array([3]),
        "city": np.array([b"bonn"]),
    }
    (expected,) = trained.predict(lambda: iter([row]))
    assert float(done.stdout) == pytest.approx(float(expected["logistic"][0]), rel=1e-6)


def test_a_bundle_is_lowered_for_every_device(trained, tmp_path):
    bundle = ex.export.load(trained.export_saved_model(str(tmp_path)))
    assert set(bundle.manifest["platforms"]) >= {"cpu", "cuda", "tpu"}


# --------------------------------------------------------------------------- bad input
def few(rows, **changes):
    features = {name: value[:rows] for name, value in FEATURES.items()}
    return {**features, **changes}


def test_no_rows_are_an_error():
    with pytest.raises(SpecError, match="returned no data"):
        classifier().train(lambda: once(LABELS[:0], few(0)))


def test_one_class_gives_a_model_that_answers_it():
    model = classifier().train(lambda: once(LABELS * 0))
    (row, *_) = model.predict(once)
    assert row["class_ids"][0] == 0
    assert row["logistic"][0] < 1e-3


def test_a_constant_label_is_predicted():
    model = ex.BoostedTreesRegressor(columns(), center_bias=True, config=config())
    model.train(lambda: once(LABELS * 0 + 7.5))
    (row, *_) = model.predict(once)
    assert row["predictions"][0] == pytest.approx(7.5)


def test_values_that_are_all_missing_are_not_used():
    empty = {**FEATURES, "age": np.full(ROWS, np.nan, np.float32)}
    model = classifier().train(lambda: once(LABELS, empty))
    assert model.experimental_feature_importances()["age"] == 0


def test_a_word_unseen_in_training_goes_the_way_of_a_missing_one(trained):
    row = few(1)
    found = [
        next(trained.predict(lambda w=w: iter([{**row, "city": np.array([w])}])))
        for w in (b"paris", b"")
    ]
    assert found[0]["logistic"] == found[1]["logistic"]


def test_infinite_numbers_are_above_and_below_all_others():
    ages = np.where(LABELS == 1, np.inf, -np.inf).astype(np.float32)
    model = classifier(n_trees=20).train(
        lambda: once(LABELS, {**FEATURES, "age": ages})
    )
    assert model.evaluate(lambda: once(LABELS, {**FEATURES, "age": ages}))["auc"] == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_label_that_is_no_number_is_an_error(bad):
    labels = LABELS.astype(np.float32)
    labels[3] = bad
    model = ex.BoostedTreesRegressor(columns(), config=config())
    with pytest.raises(LabelError, match="label"):
        model.train(lambda: once(labels))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_bad_weight_is_an_error(bad):
    weight = FEATURES["weight"].copy()
    weight[5] = bad
    model = classifier(weight_column="weight")
    with pytest.raises(FeatureError, match="weights must be numbers of at least 0"):
        model.train(lambda: once(LABELS, {**FEATURES, "weight": weight}))


def test_several_values_of_a_category_are_an_error():
    words = ex.Sparse.of_rows([["rome", "oslo"], *[["lima"]] * 3])
    with pytest.raises(FeatureError, match="2 values of 'city'"):
        classifier().train(lambda: (few(4, city=words), LABELS[:4]))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (fc.sequence_numeric_column("age"), "'age' is a sequence"),
        (
            fc.weighted_categorical_column(
                fc.categorical_column_with_identity("hour", 24), "weight"
            ),
            "has weights",
        ),
        (
            fc.categorical_column_with_hash_bucket("city", 2**25),
            "at most 16,777,216 fit",
        ),
    ],
)
def test_a_column_that_cannot_be_given_is_an_error(column, words):
    with pytest.raises(FeatureError, match=words):
        ex.BoostedTreesClassifier([column])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_trees": 0}, "n_trees must be an integer of at least 1"),
        ({"max_depth": 0}, "max_depth must be"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"l2_regularization": -1.0}, "l2_regularization must be a number of at least"),
        ({"pruning_mode": "pst"}, "unknown pruning_mode 'pst'; did you mean 'post'"),
        ({"subsample": 1.5}, "subsample must be a number above 0 and at most 1"),
        ({"num_leaves": 1}, "num_leaves must be at least 2"),
    ],
)
def test_a_wrong_argument_is_an_error(options, words):
    with pytest.raises(SpecError, match=words):
        classifier(**options)


def test_a_head_without_an_objective_is_an_error():
    with pytest.raises(SpecError, match="cannot be trained for MultiLabelHead"):
        ex.BoostedTreesEstimator(columns(), head=ex.heads.MultiLabelHead(3))
    with pytest.raises(SpecError, match="label_dimension must be 1"):
        ex.BoostedTreesRegressor(columns(), label_dimension=2)
    hinge = ex.heads.BinaryClassHead(loss_fn=lambda labels, logits: logits)
    with pytest.raises(SpecError, match="with its own losses"):
        ex.BoostedTreesEstimator(columns(), head=hinge)


def test_a_missing_lightgbm_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match=r"estimax\[trees\]"):
        classifier().train(once)


def test_importing_the_models_imports_no_lightgbm():
    code = "import sys, estimax as ex; ex.BoostedTreesClassifier; "
    code += "print('lightgbm' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_feature_may_be_a_number_and_a_category_beside_dates(tmp_path):
    rng = np.random.default_rng(4)
    grade = rng.integers(0, 9, ROWS)
    days = np.array([f"2024-{month:02}-01" for month in range(1, 13)])
    features = {"grade": grade, "day": days[rng.integers(0, 12, ROWS)]}
    given = [
        fc.numeric_column("grade"),
        fc.categorical_column_with_vocabulary_list("grade", list(range(9))),
        fc.date_column("day", parts=["month", "weekday"]),
    ]
    labels = (grade > 4).astype(np.int64)
    model = ex.BoostedTreesClassifier(
        given, n_batches_per_layer=1, n_trees=4, model_dir=tmp_path, config=config()
    )
    model.train(lambda: once(labels, features))
    assert model.evaluate(lambda: once(labels, features))["accuracy"] == 1.0
    found = model.experimental_feature_importances()
    assert set(found) == {"day_date[0]", "day_date[1]", "grade", "grade (id)"}
    bundle = ex.export.load(model.export_saved_model(tmp_path / "export"))
    rows = {"grade": [2, 7], "day": ["2024-03-01", "2024-03-01"]}
    assert bundle.predict(rows)["class_ids"].reshape(-1).tolist() == [0, 1]
