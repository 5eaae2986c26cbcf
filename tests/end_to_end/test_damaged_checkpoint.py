"""A damaged checkpoint is passed over for the one before it, aloud, and stays there."""

import itertools
import logging
import shutil

import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import CheckpointError

STATE = "state-00000-of-00001.safetensors"
MANIFEST = "manifest.json"


def model_fn(features, labels, mode):
    net = nn.relu(nn.Dense(8)(features["x"]))
    predictions = nn.Dense(1)(net)[:, 0]
    if mode == ex.ModeKeys.PREDICT:
        outputs = {"serving_default": ex.PredictOutput({"y": predictions})}
        return ex.EstimatorSpec(
            mode, predictions={"y": predictions}, export_outputs=outputs
        )
    loss = ((predictions - labels) ** 2).mean()
    train_op = ex.minimize(ex.optimizers.Adam(0.01))
    return ex.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    x = np.random.default_rng(0).random((200, 3), np.float32)
    data = ex.input.Dataset.from_tensor_slices(({"x": x}, x.sum(axis=1)))
    return data.shuffle(64, seed=1).repeat().batch(8)


def make_estimator(model_dir):
    config = ex.RunConfig(save_checkpoints_steps=4, tf_random_seed=1)
    return ex.Estimator(model_fn, model_dir, config)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model directory with checkpoints 0, 4, 8 and 12."""
    folder = tmp_path_factory.mktemp("trained")
    make_estimator(folder).train(input_fn, max_steps=12)
    return folder


@pytest.fixture(scope="module")
def undamaged_end(trained, tmp_path_factory):
    """The arrays of step 16, from a run that met no damage."""
    folder = tmp_path_factory.mktemp("end") / "model"
    shutil.copytree(trained, folder)
    make_estimator(folder).train(input_fn, max_steps=16)
    return arrays_of(folder, 16)


@pytest.fixture
def model_dir(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "model")


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 9 // 10] ^= 1
    path.write_bytes(data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-7])


def remove(path):
    path.unlink()


def name_of(value):
    return value if isinstance(value, str) else value.__name__


every_damage = pytest.mark.parametrize(
    ("damage", "file"),
    [*itertools.product([flip_a_byte, cut_short, remove], [STATE, MANIFEST])],
    ids=name_of,
)


@every_damage
def test_training_goes_on_from_the_checkpoint_before(
    model_dir, damage, file, undamaged_end, caplog
):
    damage(model_dir / "model.ckpt-12" / file)
    make_estimator(model_dir).train(input_fn, max_steps=16)
    assert "skipping a damaged checkpoint" in caplog.text
    assert "model.ckpt-12" in caplog.text
    assert arrays_of(model_dir, 16) == undamaged_end


@every_damage
def test_evaluation_is_of_the_checkpoint_before(model_dir, damage, file, caplog):
    damage(model_dir / "model.ckpt-12" / file)
    before = files_of(model_dir)
    results = make_estimator(model_dir).evaluate(input_fn, steps=2)
    assert results["global_step"] == 8
    assert "skipping a damaged checkpoint" in caplog.text
    assert "model.ckpt-12" in caplog.text
    assert files_of(model_dir) == before


def test_damaged_checkpoint_is_not_deleted(model_dir):
    flip_a_byte(model_dir / "model.ckpt-12" / STATE)
    before = files_of(model_dir)
    make_estimator(model_dir).train(input_fn, max_steps=10)
    after = files_of(model_dir)
    assert {name: after[name] for name in before} == before


def test_evaluation_follows_training_that_went_back(model_dir):
    flip_a_byte(model_dir / "model.ckpt-12" / STATE)
    estimator = make_estimator(model_dir)
    assert estimator.evaluate(input_fn, steps=1)["global_step"] == 8
    estimator.train(input_fn, max_steps=10)
    assert estimator.evaluate(input_fn, steps=1)["global_step"] == 10


def test_prediction_and_export_are_of_the_checkpoint_before(model_dir, tmp_path):
    def predicted(**chosen):
        pairs = make_estimator(model_dir).predict(lambda: input_fn().take(1), **chosen)
        return np.array([pair["y"] for pair in pairs])

    expected = predicted(checkpoint_path=model_dir / "model.ckpt-8")
    flip_a_byte(model_dir / "model.ckpt-12" / STATE)
    np.testing.assert_array_equal(predicted(), expected)
    exported = make_estimator(model_dir).export_saved_model(tmp_path / "export")
    assert ex.export.load(exported).manifest["step"] == 8


def test_checkpoint_that_was_asked_for_by_path_has_no_substitute(model_dir):
    damaged = model_dir / "model.ckpt-12"
    flip_a_byte(damaged / STATE)
    with pytest.raises(CheckpointError, match=r"model\.ckpt-12"):
        make_estimator(model_dir).evaluate(input_fn, 1, checkpoint_path=damaged)


def test_nothing_is_started_anew_when_every_checkpoint_is_damaged(model_dir, caplog):
    for path in model_dir.glob("model.ckpt-*"):
        flip_a_byte(path / STATE)
    before = files_of(model_dir)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        make_estimator(model_dir).train(input_fn, max_steps=16)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        make_estimator(model_dir).evaluate(input_fn, 1)
    assert files_of(model_dir) == before


def test_sound_checkpoints_are_used_without_a_word(model_dir, caplog):
    estimator = make_estimator(model_dir)
    estimator.train(input_fn, max_steps=13)
    assert estimator.evaluate(input_fn, steps=1)["global_step"] == 13
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def arrays_of(folder, step):
    arrays = checkpoints.read(checkpoints.path_of(folder, step)).arrays
    return {name: array.tobytes() for name, array in arrays.items()}


def files_of(folder):
    """Every file of every checkpoint, with its content."""
    paths = folder.glob("model.ckpt-*/*")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
