"""Averages of models."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import estimax as ex
from estimax.canned.average_choice import steady_weights, weight_candidates
from estimax.core.errors import InputError, SpecError
from tests.canned.average_rows import HELD, ROWS, TEST, TRAIN

fc = ex.feature_columns


def rows_of(data, *, repeat=False):
    def input_fn():
        rows = ex.input.Dataset.from_tensor_slices(data)
        return (rows.shuffle(ROWS, seed=1).repeat() if repeat else rows).batch(100)

    return input_fn


def config(folder):
    return ex.RunConfig(
        model_dir=str(folder),
        tf_random_seed=1,
        save_checkpoints_steps=10,
        save_summary_steps=None,
    )


def columns():
    return [
        fc.numeric_column("x"),
        fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome", "Lima"]),
    ]


def members(folder):
    wide, deep = columns()
    sgd = ex.optimizers.SGD(0.3)
    return {
        "linear": ex.LinearClassifier(
            [wide, deep], optimizer=sgd, config=config(folder / "linear")
        ),
        "network": ex.TabularClassifier(
            fc.tabular_columns(TRAIN[0]),
            hidden_units=[8],
            members=2,
            config=config(folder / "network"),
        ),
        "constant": ex.BaselineClassifier(config=config(folder / "constant")),
    }


def average(folder, held=HELD, **options):
    held_out_fn = None if held is None else rows_of(held)
    return ex.AverageEstimator(
        ex.heads.BinaryClassHead(),
        options.pop("members", None) or members(folder),
        held_out_fn,
        config=config(folder / "average"),
        **options,
    )


def probabilities(model, features, **options):
    rows = ex.input.Dataset.from_tensor_slices(features).batch(100)
    found = model.predict(lambda: rows, **options)
    return np.stack([one["probabilities"] for one in found])


def log_loss(shares, labels):
    return -np.mean(np.log(shares[np.arange(len(labels)), labels]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("average")


@pytest.fixture(scope="module")
def trained(folder):
    return average(folder).train(rows_of(TRAIN, repeat=True), max_steps=40)


def test_an_average_is_the_weighted_mean_of_its_members(trained):
    weights = trained.member_weights
    assert sum(weights.values()) == pytest.approx(1.0)
    wanted = sum(
        weights[name]
        * probabilities(
            member, TEST[0], checkpoint_path=trained.member_checkpoint(name)
        )
        for name, member in trained.members.items()
    )
    found = probabilities(trained, TEST[0])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    loss = trained.evaluate(rows_of(TEST))["average_loss"]
    assert loss == pytest.approx(log_loss(wanted, TEST[1]), rel=1e-5)


def test_the_weights_are_best_on_the_held_out_rows(trained):
    shares = np.stack(
        [
            probabilities(
                member, HELD[0], checkpoint_path=trained.member_checkpoint(name)
            )
            for name, member in trained.members.items()
        ]
    )
    losses = {
        weights: log_loss(np.tensordot(weights, shares, 1), HELD[1])
        for weights in weight_candidates(3)
    }
    wanted = steady_weights(min(losses, key=losses.get), ROWS)
    assert tuple(trained.member_weights.values()) == pytest.approx(wanted)


def test_a_useless_member_is_removed(trained, tmp_path):
    assert trained.member_weights["constant"] == 0.0
    path = Path(trained.export_saved_model(tmp_path))
    weights = b"".join(file.read_bytes() for file in path.rglob("*.safetensors"))
    assert b"linear/" in weights
    assert b"constant/" not in weights
    bundle = ex.export.load(path)
    np.testing.assert_allclose(
        bundle.predict(TEST[0], "predict")["probabilities"],
        probabilities(trained, TEST[0]),
        atol=1e-6,
    )


def test_a_second_call_trains_nothing_and_another_process_predicts(trained, folder):
    again = average(folder)
    before = sorted(os.listdir(folder / "network"))
    again.train(rows_of(TRAIN, repeat=True), max_steps=40)
    assert sorted(os.listdir(folder / "network")) == before
    assert again.member_weights == trained.member_weights
    np.testing.assert_array_equal(
        probabilities(again, TEST[0]), probabilities(trained, TEST[0])
    )


def test_train_and_evaluate_exports_the_average(tmp_path):
    model = average(tmp_path)
    metrics, (export,) = ex.train_and_evaluate(
        model,
        ex.TrainSpec(rows_of(TRAIN, repeat=True), max_steps=20),
        ex.EvalSpec(rows_of(TEST), exporters=ex.FinalExporter("final"), every_steps=5),
    )
    assert metrics["average_loss"] < 0.69
    found = ex.export.load(export).predict(TEST[0], "predict")["probabilities"]
    assert log_loss(found, TEST[1]) == pytest.approx(metrics["average_loss"], rel=1e-4)


def test_without_held_out_rows_the_weights_are_equal(tmp_path):
    model = average(tmp_path, held=None)
    model.train(rows_of(TRAIN, repeat=True), steps=5)
    assert set(model.member_weights.values()) == {1 / 3}
    model.train(rows_of(TRAIN, repeat=True), steps=5)
    assert int(model.get_variable_value("global_step")) == 10


def test_a_member_stops_when_it_does_not_improve(tmp_path):
    constant = ex.BaselineClassifier(config=config(tmp_path / "constant"))
    flipped = (HELD[0], 1 - HELD[1])
    model = average(tmp_path, held=flipped, members={"c": constant}, patience_steps=20)
    model.train(rows_of(TRAIN, repeat=True), max_steps=500)
    assert int(constant.get_variable_value("global_step")) < 100


def test_a_member_whose_loss_has_risen_for_good_stops(tmp_path):
    linear = members(tmp_path)["linear"]
    linear.settles = True  # as a network whose learning rate ends at 0
    flipped = (HELD[0], 1 - HELD[1])
    model = average(tmp_path, held=flipped, members={"linear": linear})
    model.train(rows_of(TRAIN, repeat=True), max_steps=500)
    assert int(linear.get_variable_value("global_step")) < 200


KILLED = """
import sys
from pathlib import Path
from tests.canned.average_rows import TRAIN
from tests.canned.test_average import average, rows_of
average(Path(sys.argv[1])).train(rows_of(TRAIN, repeat=True), max_steps=40)
"""


def test_a_killed_training_ends_with_the_same_bits(trained, tmp_path):
    script = [sys.executable, "-c", KILLED, str(tmp_path)]
    run = subprocess.Popen(script, stderr=subprocess.DEVNULL)
    while run.poll() is None and not (tmp_path / "network/model.ckpt-10").exists():
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (tmp_path / "average/model.ckpt-40").exists()
    model = average(tmp_path).train(rows_of(TRAIN, repeat=True), max_steps=40)
    assert model.member_weights == trained.member_weights
    np.testing.assert_array_equal(
        probabilities(model, TEST[0]), probabilities(trained, TEST[0])
    )


@pytest.mark.parametrize(
    ("head", "labels", "meaning"),
    [
        (ex.heads.MultiClassHead(3), TRAIN[1], "probabilities"),
        (
            ex.heads.RegressionHead(label_mean=50.0, label_std=5.0),
            (50.0 + 5.0 * TRAIN[1]).astype(np.float32),
            "predictions",
        ),
    ],
)
def test_classes_and_numbers_are_averaged(tmp_path, head, labels, meaning):
    data = (TRAIN[0], labels)
    wide, _ = columns()
    both = {
        "linear": ex.LinearEstimator(head, [wide], config=config(tmp_path / "a")),
        "network": ex.TabularEstimator(
            head,
            fc.tabular_columns(TRAIN[0]),
            hidden_units=[4],
            members=2,
            config=config(tmp_path / "b"),
        ),
    }
    model = ex.AverageEstimator(head, both, config=config(tmp_path / "average"))
    model.train(rows_of(data, repeat=True), steps=10)
    rows = ex.input.Dataset.from_tensor_slices(TEST[0]).batch(100)
    parts = [
        np.stack([one[meaning] for one in m.predict(lambda: rows)])
        for m in (*both.values(), model)
    ]
    np.testing.assert_allclose(parts[2], (parts[0] + parts[1]) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": {"a": "no model"}}, "must be an Estimator"),
        ({"members": {"a b": ex.BaselineClassifier()}}, "no name for a member"),
        ({"patience_steps": 0}, "patience_steps"),
        ({"patience_steps": 5, "held": None}, "held_out_fn"),
    ],
)
def test_a_bad_argument_is_named(tmp_path, change, words):
    with pytest.raises(SpecError, match=words):
        average(tmp_path, **change)


def test_two_members_need_two_folders(tmp_path):
    both = {name: ex.BaselineClassifier(config=config(tmp_path)) for name in "ab"}
    with pytest.raises(SpecError, match="same model_dir"):
        average(tmp_path, members=both)


def test_a_member_that_predicts_something_else_is_named(tmp_path):
    wrong = {"three": ex.BaselineClassifier(n_classes=3, config=config(tmp_path / "w"))}
    model = average(tmp_path, held=None, members=wrong)
    model.train(rows_of(TRAIN, repeat=True), steps=5)
    with pytest.raises(SpecError, match="'three' must predict what the head does"):
        model.evaluate(rows_of(TEST))


def small(folder, head=None, held=HELD):
    head = head or ex.heads.BinaryClassHead()
    network = ex.TabularEstimator(
        head,
        fc.tabular_columns(TRAIN[0]),
        hidden_units=[4],
        members=2,
        config=config(folder / "network"),
    )
    trees = ex.BoostedTreesEstimator(
        columns(),
        head=head,
        n_trees=5,
        early_stopping_rounds=2,
        config=config(folder / "trees"),
    )
    both = {"network": network, "trees": trees}
    held_out_fn = None if held is None else rows_of(held)
    return ex.AverageEstimator(
        head, both, held_out_fn, config=config(folder / "average")
    )


def test_trees_and_a_network_are_averaged_and_exported(tmp_path):
    model = small(tmp_path).train(rows_of(TRAIN, repeat=True), max_steps=20)
    weights = model.member_weights
    wanted = sum(
        weights[name]
        * probabilities(member, TEST[0], checkpoint_path=model.member_checkpoint(name))
        for name, member in model.members.items()
    )
    np.testing.assert_allclose(probabilities(model, TEST[0]), wanted, atol=1e-6)
    path = model.export_saved_model(tmp_path / "export")
    script = [sys.executable, "-c", SERVED, path, str(tmp_path / "found.npy")]
    subprocess.run(script, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), wanted, atol=1e-6)


SERVED = """
import sys
sys.modules["lightgbm"] = None  # as if it were not installed
import numpy as np
from estimax import export
from tests.canned.average_rows import TEST
bundle = export.load(sys.argv[1])
np.save(sys.argv[2], bundle.predict(TEST[0], "predict")["probabilities"])
"""


def test_a_label_of_one_class_is_predicted(tmp_path):
    constant = (TRAIN[0], np.zeros(ROWS, np.int32))
    model = small(tmp_path, held=constant)
    model.train(rows_of(constant, repeat=True), max_steps=20)
    found = probabilities(model, TEST[0])
    assert np.all(np.isfinite(found))
    assert found[:, 0].min() > 0.5


def test_values_that_are_missing_infinite_or_unseen_are_predicted(tmp_path):
    model = small(tmp_path).train(rows_of(TRAIN, repeat=True), max_steps=5)
    odd = {
        "x": np.array([np.nan, np.inf, -np.inf, 0.0], np.float32),
        "city": np.array(["", "Oslo", "Rome", "never seen"]),
    }
    assert np.all(np.isfinite(probabilities(model, odd)))


def no_rows():
    return iter(())


def test_without_rows_training_says_so(tmp_path):
    with pytest.raises((SpecError, InputError), match=r"data|rows|batch"):
        small(tmp_path).train(no_rows, max_steps=5)


def test_without_held_out_rows_training_says_so(tmp_path):
    model = small(tmp_path)
    model = ex.AverageEstimator(
        ex.heads.BinaryClassHead(),
        model.members,
        no_rows,
        config=config(tmp_path / "average"),
    )
    with pytest.raises(SpecError, match="returned no data"):
        model.train(rows_of(TRAIN, repeat=True), max_steps=5)
