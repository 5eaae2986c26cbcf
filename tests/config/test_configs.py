"""Every file in `configs/` trains, and its Python script trains the same weights."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints
from estimax.config import load
from estimax.config.build import build
from estimax.config.script import script_of

REPOSITORY = Path(__file__).parents[2]
CONFIGS = sorted((REPOSITORY / "configs").glob("shop_*.yaml"))
# The others take some seconds each. `test_build_input` reads all formats.
QUICK = ("shop_baseline", "shop_multi_class")
STEPS = 4
SHORT = (
    f"train.max_steps={STEPS}",
    "run.save_checkpoints={every_steps: 4}",
    "run.save_summary_steps=0",
    "run.compilation_cache=off",
)


def configs(quick):
    """All configs, those that are not quick marked as slow."""
    slow = {True: [], False: [pytest.mark.slow]}
    return [pytest.param(p, id=p.stem, marks=slow[p.stem in quick]) for p in CONFIGS]


def short(path):
    """A few steps of a run; it may be too early for an evaluation to be good."""
    overrides = [*SHORT]
    if "also:" in path.read_text():
        overrides.append("eval.also.later.every_steps=4")
    return overrides


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", configs(QUICK))
def test_a_shipped_config_trains_and_evaluates(path, shop, tmp_path, monkeypatch):
    monkeypatch.chdir(shop)
    loaded = load(path, short(path), model_dir=str(tmp_path / "model"))
    built = build(loaded)
    metrics, _ = ex.train_and_evaluate(
        built.estimator, built.train_spec(), built.eval_spec()
    )
    first = metrics[loaded.run.eval.source] if "loss" not in metrics else metrics
    assert first["global_step"] == STEPS
    assert np.isfinite(first["loss"])


@pytest.mark.parametrize("path", configs(["shop_wide_deep"]))
def test_the_script_of_a_config_trains_to_the_same_bits(
    path, shop, tmp_path, monkeypatch
):
    monkeypatch.chdir(shop)
    without = [*SHORT, "eval=null", "export=[]"]
    if "early_stopping" in path.read_text():
        without.append("early_stopping=null")
    built = build(load(path, without, model_dir=str(tmp_path / "yaml")))
    spec = built.train_spec()
    built.estimator.train(spec.input_fn, spec.hooks, max_steps=spec.max_steps)
    script = tmp_path / "train.py"
    script.write_text(
        script_of(load(path, without, model_dir=str(tmp_path / "python")))
    )
    runpy.run_path(str(script), run_name="__main__")
    expected = arrays(tmp_path / "yaml")
    found = arrays(tmp_path / "python")
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def arrays(folder):
    latest = checkpoints.latest(folder)
    assert checkpoints.step_of(latest) == STEPS
    return checkpoints.read(latest).arrays


def test_a_script_names_only_public_things(shop, monkeypatch, tmp_path):
    monkeypatch.chdir(shop)
    path = REPOSITORY / "configs" / "shop_linear.yaml"
    text = script_of(load(path, model_dir=str(tmp_path)))
    compile(text, "train.py", "exec")
    assert text.count("import estimax as ex\n") == 1
    assert "estimax.config" not in text
    assert "ex.train_and_evaluate(" in text
    assert 'name="country_DE"' in text
    assert "rows_where(" in text
