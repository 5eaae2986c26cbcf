"""The model directory remembers its run, and refuses another one."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text

from estimax.config import load
from estimax.config.saved import claim_model_dir, compare
from estimax.core.errors import ConfigError, InUseError
from estimax.storage import locks


def started(folder: Path, *overrides: str, text: str = GOOD):
    text = text.replace("runs/small", str(folder / "model"))
    loaded = load_text(folder, text, *overrides)
    remarks = claim_model_dir(loaded)
    (folder / "model" / "model.ckpt-5").mkdir(exist_ok=True)  # as if it was trained
    return loaded, remarks


@pytest.mark.parametrize("option", ["run.on_existing=resume", "run.on_existing=fail"])
def test_a_run_that_took_no_step_does_not_block_its_correction(tmp_path, option):
    model = tmp_path / "model"
    started(tmp_path)
    model.joinpath("model.ckpt-5").rename(model / "model.ckpt-0")
    remarks = started(tmp_path, "model.dnn.hidden_units=[16]", option)[1]
    assert remarks == [f"{model}: starting anew, the earlier run took no step"]
    assert not model.joinpath("model.ckpt-0").exists()
    saved = model.joinpath("config", "resolved.yaml").read_text()
    assert "hidden_units: [16]" in saved


def test_the_run_is_kept_as_written_and_as_resolved(tmp_path):
    loaded, _ = started(tmp_path, "train.max_steps=77")
    config = tmp_path / "model" / "config"
    assert config.joinpath("source.yaml").read_text() == loaded.source
    assert config.joinpath("overrides.txt").read_text() == "train.max_steps=77\n"
    assert load(config / "resolved.yaml").run == loaded.run
    environment = json.loads(config.joinpath("environment.json").read_text())
    assert environment["packages"]["jax"]


def test_a_run_that_was_saved_before_a_key_existed_may_go_on(tmp_path):
    started(tmp_path)
    saved = tmp_path / "model" / "config" / "resolved.yaml"
    lines = saved.read_text().splitlines(keepends=True)
    older = [line for line in lines if "dropout:" not in line]
    assert len(older) < len(lines)
    saved.write_text("".join(older))
    assert started(tmp_path)[1] == []


@pytest.mark.parametrize(
    ("path", "old", "other"),
    [("model.thresholds", [], [0.5]), ("optimizers.dnn.epsilon", 1e-7, 1e-8)],
)
def test_what_older_versions_saved_for_null_is_no_change(tmp_path, path, old, other):
    def tree(value):
        for key in reversed(path.split(".")):
            value = {key: value}
        return value

    run = started(tmp_path)[0].run
    assert compare(tree(old), tree(None), run) == []
    assert [change.path for change in compare(tree(other), tree(None), run)] == [path]


def test_the_same_run_may_go_on(tmp_path):
    started(tmp_path)
    assert started(tmp_path)[1] == []


@pytest.mark.parametrize(
    "override",
    [
        "train.max_steps=99",
        "run.log_step_count_steps=5",
        "data.prefetch=1",
        "name=b",
    ],
)
def test_what_is_on_the_safe_list_may_change(tmp_path, override):
    started(tmp_path)
    assert started(tmp_path, override)[1] == []


def test_a_run_may_go_on_with_another_limit_of_skipped_rows(tmp_path):
    source = "data.sources.train"
    started(tmp_path, f"{source}.on_bad_row=skip", f"{source}.max_bad_rows=1")
    _, remarks = started(tmp_path, f"{source}.on_bad_row=skip")
    assert remarks == []


def test_another_model_is_refused_with_the_difference(tmp_path):
    started(tmp_path)
    with pytest.raises(ConfigError) as caught:
        started(tmp_path, "model.dnn.hidden_units=[16]", "features.city.buckets=7")
    assert "  features.city.buckets: 100 -> 7\n" in str(caught.value)
    assert "  model.dnn.hidden_units: [8] -> [16]\n" in str(caught.value)


def test_a_change_may_be_accepted_by_name(tmp_path):
    started(tmp_path)
    change = ["features.city.buckets=7", "run.on_config_change=warn"]
    _, (remark,) = started(tmp_path, *change)
    assert "features.city.buckets: 100 -> 7" in remark
    assert started(tmp_path, *change)[1] == []


def test_a_source_that_is_not_trained_on_may_change(tmp_path):
    test = "data.sources.test={format: csv, files: a.csv, batch_size: 5}"
    started(tmp_path, test)
    assert started(tmp_path, test.replace("a.csv", "b.csv"))[1] == []


def test_an_existing_run_may_be_an_error(tmp_path):
    started(tmp_path)
    with pytest.raises(ConfigError, match="holds a run already"):
        started(tmp_path, "run.on_existing=fail")


def test_a_run_under_way_is_left_alone(tmp_path):
    started(tmp_path)
    saved = tmp_path / "model" / "config" / "environment.json"
    before = saved.read_text()
    with locks.hold(tmp_path / "model", "train"), ThreadPoolExecutor(1) as thread:
        for action in ("overwrite", "resume"):
            claimed = thread.submit(started, tmp_path, f"run.on_existing={action}")
            with pytest.raises(InUseError, match="is training here already"):
                claimed.result()
    assert saved.read_text() == before


def test_overwrite_removes_what_estimax_made_and_nothing_else(tmp_path):
    started(tmp_path)
    (tmp_path / "model" / "old").touch()
    started(tmp_path, "run.on_existing=overwrite")
    assert not (tmp_path / "model" / "old").exists()
    (tmp_path / "model" / "config" / "resolved.yaml").unlink()
    with pytest.raises(ConfigError, match="was not made by estimax"):
        started(tmp_path, "run.on_existing=overwrite")


DAMAGED = ["{", "- a list\n", "a: 1\na: 2\n", "x: !!python/tuple [1]\n", "x: \0\n"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_of_the_run_is_an_error_that_names_it(tmp_path, content):
    started(tmp_path)
    saved = tmp_path / "model" / "config" / "resolved.yaml"
    saved.write_text(content)
    with pytest.raises(ConfigError) as caught:
        started(tmp_path)
    assert f"{saved}:" in str(caught.value)
    assert "Restore it, or use another --model-dir." in str(caught.value)


def test_a_record_of_the_run_that_is_not_utf_8_is_an_error(tmp_path):
    started(tmp_path)
    saved = tmp_path / "model" / "config" / "resolved.yaml"
    saved.write_bytes(saved.read_bytes() + b"# \xff\n")
    with pytest.raises(ConfigError, match="the byte 0xFF is not UTF-8"):
        started(tmp_path)


def test_a_literal_dollar_and_brace_is_no_change_of_the_run(tmp_path):
    words = "features.city={type: vocabulary, list: ['$${a}', b]}"
    started(tmp_path, words)
    assert started(tmp_path, words)[1] == []


def test_a_run_that_differs_everywhere_lists_the_first_changes(tmp_path):
    words = ", ".join(f"w{i}" for i in range(100))
    started(tmp_path, f"features.city={{type: vocabulary, list: [{words}]}}")
    saved = tmp_path / "model" / "config" / "resolved.yaml"
    text = "".join(f"key{i}: {i}\n" for i in range(500))
    saved.write_text(text)
    with pytest.raises(ConfigError, match=r"and \d+ more"):
        started(tmp_path)
