"""Bundles: written, loaded elsewhere, asked, damaged."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from weakref import WeakValueDictionary

import jax
import numpy as np
import pytest

from estimax import export
from estimax.core.device_dtypes import materialize
from estimax.core.errors import BundleError, FeatureError, MissingFileError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export import bundle as bundles
from estimax.export import functions

sys.path.insert(0, str(Path(__file__).parent))
import servables  # lies beside this file

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    base = tmp_path_factory.mktemp("wide")
    return export.write_bundle(servables.wide_servable(), base, step=12)


@pytest.fixture(scope="module")
def loaded(wide):
    return export.load(wide)


def test_repr_of_a_bundle_is_a_few_lines(loaded):
    lines = repr(loaded).splitlines()
    assert lines[0].endswith("step=12)")
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "features",
        "signatures",
        "weights",
    ]
    assert len(repr(loaded.signature("predict")).splitlines()) == 3


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 33])
def test_answers_are_those_of_the_function_for_any_batch_size(loaded, rows):
    request = servables.wide_request(rows, seed=rows)
    expected = servables.answer_directly(servables.wide_servable(), request)
    for signature, outputs in materialize(expected).items():
        found = loaded.predict(request, signature)
        assert sorted(found) == sorted(outputs)
        for name, wanted in outputs.items():
            assert found[name].dtype == wanted.dtype, name
            if wanted.dtype == object:
                wanted = np.vectorize(bytes.decode, otypes=[object])(wanted)
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-6)
            else:
                np.testing.assert_array_equal(found[name], wanted)


def test_a_batch_beyond_the_largest_program_runs_in_pieces(loaded, monkeypatch):
    request = servables.wide_request(21)
    whole = loaded.predict(request)
    monkeypatch.setattr(bundles, "MOST_ROWS", 8)
    pieces = loaded.predict(request)
    np.testing.assert_allclose(whole["logits"], pieces["logits"], atol=1e-6)
    assert pieces["classes"].shape == (21, 1)


@pytest.fixture
def no_programs(monkeypatch):
    """As in a new process, no program is in use."""
    monkeypatch.setattr(functions, "_in_use", WeakValueDictionary())


def test_versions_with_the_same_program_share_what_is_compiled(wide, no_programs):
    first, second = export.load(wide), export.load(wide)
    first.predict(servables.wide_request(2), "predict")
    compiled = first._programs["predict"].call._cache_size()
    second.predict(servables.wide_request(2), "predict")
    assert second._programs["predict"].call._cache_size() == compiled


def test_a_version_with_the_same_program_needs_no_compiler(wide, no_programs):
    first, second = export.load(wide), export.load(wide)
    arrays = first.transform(first.example())
    program = first.compile(["predict"], arrays)
    assert second.compile(["predict"], arrays) is program
    assert first.compile(["serving_default"], arrays) is not program
    rows = {name: array[:1] for name, array in arrays.items()}
    assert second.compile(["predict"], rows) is not program


def test_whether_a_loaded_bundle_has_the_same_programs(wide, no_programs):
    assert not bundles.has_programs_in_use(wide)
    bundle = export.load(wide)
    assert bundles.has_programs_in_use(wide)
    del bundle
    gc.collect()
    assert not bundles.has_programs_in_use(wide)


def test_a_program_that_is_no_longer_in_use_is_freed(wide, no_programs):
    bundle = export.load(wide)
    bundle.compile(["predict"], bundle.transform(bundle.example()))
    assert len(functions._in_use) > 0
    del bundle
    gc.collect()
    assert len(functions._in_use) == 0


def test_batch_sizes_share_programs(wide, no_programs):
    bundle = export.load(wide)
    program = bundle._programs["predict"].call
    request = servables.wide_request(16)
    request["tags"] = [["red"]] * 16
    for rows in range(1, 17):
        bundle.predict({k: v[:rows] for k, v in request.items()}, "predict")
    assert program._cache_size() == 5  # 1, 2, 4, 8, 16


def test_warming_up_compiles_what_requests_need_later(wide, no_programs):
    bundle = export.load(wide)
    bundle.warm_up([1, 4], ["predict"])
    compiled = bundle._programs["predict"].call._cache_size()
    assert compiled == 2


def test_a_request_without_rows_has_answers_without_rows(loaded):
    found = loaded.predict({"age": [], "city": [], "tags": []}, "predict")
    assert found["logits"].shape == (0, 2)
    assert found["class_ids"].dtype == np.int64
    assert found["classes"].shape == (0, 1)


def test_rows_may_come_as_sparse_values_strings_or_padded_arrays(loaded):
    age, city = np.array([31.0, 46.0]), Strings.of(["Oslo", "Rome"])
    lists = {"age": age, "city": city, "tags": [["red"], ["blue", "green"]]}
    expected = loaded.predict(lists)["logits"]
    tags = servables.sparse_tags([["red"], ["blue", "green"]])
    padded = np.array([["red", ""], ["blue", "green"]])
    ragged = [["red", "", ""], ["blue", "green"]]  # filled up, if not to one length
    objects = np.array(padded, dtype=object)
    for given in (tags, padded, objects, padded.tolist(), ragged):
        found = loaded.predict({**lists, "tags": given})["logits"]
        np.testing.assert_allclose(found, expected, atol=1e-6)


_LOADER = """
import json, sys
from estimax import export
bundle = export.load(sys.argv[1], self_test=True)
request = json.loads(sys.stdin.read())
answers = {
    name: bundle.predict(request, name)["logits"].tolist()
    for name in ("serving_default", "predict")
}
rooms = "training estimator heads optimizers hooks canned config v1".split()
rooms += "feature_columns.column feature_columns.layers staging.variables".split()
rooms += "checkpoints input metrics hooks.summary".split()
banned = {f"estimax.{room}" for room in rooms} | {"flax", "optax", "pyarrow"}
print(json.dumps({"answers": answers, "banned": sorted(banned & set(sys.modules))}))
"""


def test_a_fresh_process_answers_without_any_package_that_trains(wide):
    request = servables.wide_request(5)
    request["age"] = request["age"].tolist()
    run = subprocess.run(
        [sys.executable, "-c", _LOADER, str(wide.parent)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["banned"] == []
    expected = servables.answer_directly(servables.wide_servable(), request)
    for name, logits in report["answers"].items():
        np.testing.assert_allclose(logits, expected[name]["logits"], atol=1e-6)


def test_the_manifest_lists_versions_and_platforms(loaded):
    about = loaded.manifest
    assert about["platforms"] == ["cpu", "cuda", "tpu"]
    assert about["jax"] == jax.__version__
    assert about["step"] == 12
    assert about["version"] == int(loaded.path.name)
    assert "manifest.json" not in about["files"]
    assert about["files"]["weights.safetensors"]["size"] > 0


def test_describe_tells_features_vocabularies_and_weights(loaded):
    told = loaded.describe()
    json.dumps(told)  # plain values
    assert told["features"]["tags"] == {
        "kind": "sparse",
        "dtype": "string",
        "shape": [None, None],
        "vocabulary_size": 3,
        "default": None,
    }
    assert told["weights"]["city"] == {
        "shape": [50, 4],
        "dtype": "float32",
        "bytes": 800,
    }
    classes = told["signatures"]["head/classification"]["outputs"]["classes"]
    assert classes == {"dtype": "string", "shape": [None, 2], "vocabulary_size": 2}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"citty": ["Oslo"]}, "unknown feature 'citty'; did you mean 'city'"),
        ({"extra": [1]}, "unknown feature 'extra'.* Pass ignore_extra=True"),
        ({"x": [1], "z": [2]}, "unknown features 'x', 'z'"),
        ({"age": ["31"]}, "feature 'age': expected float32 of shape .B., found text"),
        ({"age": [True]}, "found dtype bool"),
        ({"age": [[31.0, 2.0]]}, r"found shape \[B, 2\]"),
        ({"age": [None]}, "found a missing value in row 0, and it has no default"),
        ({"age": [31.0, 46.0]}, "features/age has 2"),
        ({"city": [7]}, "found dtype int64; convert the column to text"),
        ({"city": [["a"], ["b", "c"]]}, "rows of different lengths"),
        ({"tags": [[7]]}, "feature 'tags': expected sparse string"),
        ({"tags": [[["red"]]]}, "lists within lists"),
        ({"age": Sparse(np.zeros((0, 2)), np.zeros(0), (1, 1))}, "a sparse value"),
    ],
)
def test_a_request_that_does_not_fit_is_named(loaded, change, words):
    request = {"age": [31.0], "city": ["Oslo"], "tags": [["red"]], **change}
    if "citty" in change:
        del request["city"]
    with pytest.raises(BundleError, match=words):
        loaded.predict(request)


def test_a_missing_feature_is_named(loaded):
    with pytest.raises(BundleError, match="feature 'age' is missing"):
        loaded.predict({"city": ["Oslo"], "tags": [["red"]]})


def test_an_unknown_signature_names_its_neighbour(loaded):
    with pytest.raises(BundleError, match="did you mean 'predict'"):
        loaded.predict({}, "predcit")


@pytest.fixture(scope="module")
def numeric(tmp_path_factory):
    base = tmp_path_factory.mktemp("numeric")
    export.write_bundle(servables.numeric_servable(), base, platforms=("cpu",))
    return export.load(base)


def test_integers_are_promised_as_64_bits_and_checked_for_32(numeric):
    inputs = {spec.name: spec for spec in numeric.signature("predict").inputs}
    assert (inputs["size"].dtype, inputs["size"].compute_dtype) == ("int64", "int32")
    found = numeric.predict({"age": [1], "size": [5]})
    assert found["doubled"].tolist() == [10]
    assert found["doubled"].dtype == np.int64
    with pytest.raises(FeatureError, match="features/size holds 4294967296"):
        numeric.predict({"age": [1.0], "size": [2**32]})
    with pytest.raises(
        BundleError, match=r"'size': expected int64 .* found dtype float"
    ):
        numeric.predict({"age": [1.0], "size": [1.5]})


def test_whole_floats_are_integers_and_others_are_not(numeric):
    assert numeric.predict({"age": [1], "size": [5.0]})["doubled"].tolist() == [10]
    with pytest.raises(BundleError, match=r"found dtype float64 with inf"):
        numeric.predict({"age": [1], "size": [np.inf]})


def test_one_column_may_be_sent_as_a_matrix_of_width_one(numeric):
    flat = numeric.predict({"age": [1.0, 2.0], "size": [1, 2]})
    tall = numeric.predict({"age": [[1.0], [2.0]], "size": [[1], [2]]})
    np.testing.assert_array_equal(flat["logits"], tall["logits"])
    assert flat["logits"].tolist() == [[2.5], [4.5]]


def test_a_folder_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(MissingFileError, match="expected a bundle's folder"):
        export.load(tmp_path / "nothing")


def test_the_newest_complete_version_is_loaded(tmp_path):
    servable = servables.numeric_servable()
    clock = iter([1700000005.0, 1700000009.0])
    for _ in range(2):
        export.write_bundle(
            servable, tmp_path, platforms=("cpu",), now=lambda: next(clock)
        )
    (tmp_path / "1700000010").mkdir()  # still being copied: no manifest yet
    (tmp_path / "v9").mkdir()
    assert export.load(tmp_path).path.name == "1700000009"


def test_another_platform_is_refused_at_load(tmp_path):
    export.write_bundle(servables.numeric_servable(), tmp_path, platforms=("tpu",))
    with pytest.raises(BundleError, match="exported for tpu, but jax runs on cpu"):
        export.load(tmp_path)
