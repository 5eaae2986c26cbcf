"""Everything that is written has the permissions that the umask asks for."""

import os
import stat

import numpy as np
import pytest

import estimax as ex

ROWS = {"x": np.arange(8, dtype=np.float32), "city": np.array(["a", "b"] * 4)}
LABELS = np.arange(8) % 2


def input_fn():
    return ex.input.Dataset.from_tensor_slices((ROWS, LABELS)).batch(4)


@pytest.fixture(params=[0o022, 0o027])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder):
    """The permissions of everything under a folder, by relative path."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
    }


def expected_modes(folder, umask):
    return {
        name: (0o777 if (folder / name).is_dir() else 0o666) & ~umask
        for name in modes(folder)
    }


def test_a_run_and_its_bundle_follow_the_umask(tmp_path, umask):
    fc = ex.feature_columns
    city = fc.categorical_column_with_vocabulary_list("city", ["a", "b"])
    columns = [fc.numeric_column("x"), fc.embedding_column(city, 2)]
    model = ex.DNNClassifier([4], columns, model_dir=tmp_path / "run")
    ex.train_and_evaluate(
        model,
        ex.TrainSpec(input_fn, max_steps=2),
        ex.EvalSpec(input_fn, exporters=ex.FinalExporter("final")),
    )
    found = modes(tmp_path)
    assert found == expected_modes(tmp_path, umask)
    written = {os.path.basename(name) for name in found}
    assert {"weights.safetensors", "manifest.json", "example.json"} <= written
    assert {"checkpoint", "state-00000-of-00001.safetensors"} <= written
    assert any(name.endswith(".txt") for name in written)  # a vocabulary
    assert any("tfevents" in name for name in written)


def test_a_cache_of_input_follows_the_umask(tmp_path, umask):
    list(ex.input.Dataset.range(9).cache(tmp_path / "new" / "cache"))
    assert sorted(modes(tmp_path)) == ["new", "new/cache.data", "new/cache.index"]
    assert modes(tmp_path) == expected_modes(tmp_path, umask)
