"""Writing bundles: versions, sharing, refusals, and nothing left after a failure."""

import dataclasses
import os
import sys
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from estimax import export
from estimax.core.errors import BundleError, FeatureError, MissingFileError
from estimax.core.sparse import Ids
from estimax.core.strings import Strings
from estimax.feature_columns import transforms
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import HostCall, Origin

sys.path.insert(0, str(Path(__file__).parent))
import servables  # lies beside this file

CPU = ("cpu",)


def function_answering(**outputs):
    """A servable of the age alone; each output is a function of it."""

    def function(weights, inputs):
        age = inputs.raw["features/age"]
        return {"serving_default": {n: f(age) for n, f in outputs.items()}}

    return dataclasses.replace(
        servables.numeric_servable(),
        function=function,
        plan=HostPlan(raw=(servables.AGE,), calls=()),
    )


def write_at(base, seconds, servable=None):
    servable = servable or servables.numeric_servable()
    return export.write_bundle(servable, base, platforms=CPU, now=lambda: seconds)


def test_the_folder_is_named_by_the_second(tmp_path):
    assert write_at(tmp_path / "deep" / "base", 1700000000.9).name == "1700000000"


def test_two_exports_in_one_second_get_two_versions(tmp_path):
    names = [write_at(tmp_path, 1700000000).name for _ in range(2)]
    assert names == ["1700000000", "1700000001"]


def test_a_clock_that_goes_back_does_not_make_an_older_version(tmp_path):
    (tmp_path / "1700000500").mkdir()
    (tmp_path / "20240101120000").mkdir()  # somebody's own numbering
    assert write_at(tmp_path, 1700000000).name == "1700000501"


def test_exports_at_the_same_time_do_not_replace_each_other(tmp_path):
    paths = []
    threads = [
        threading.Thread(target=lambda: paths.append(write_at(tmp_path, 1700000000)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.name for p in paths) == ["1700000000", "1700000001", "1700000002"]
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in paths}
    for path in paths:
        assert export.load(path).manifest["version"] == int(path.name)


def test_equal_functions_share_their_files(tmp_path):
    path = write_at(tmp_path, 1700000000)
    stems = {p.stem for p in (path / "functions").iterdir()}
    assert stems == {"predict"}
    assert set(export.load(path).signatures) == {"predict", "serving_default"}


def test_nothing_is_left_of_an_export_that_fails(tmp_path):
    broken = function_answering(y=lambda age: age + jnp.ones(3))
    with pytest.raises(TypeError, match="add got incompatible shapes") as caught:
        write_at(tmp_path, 1700000000, broken)
    assert any("signature 'serving_default'" in note for note in caught.value.__notes__)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_answers_otherwise_than_the_function_is_not_published(tmp_path):
    # Reads its own batch size: three rows of the example, more when padded.
    of_size = function_answering(y=lambda age: age * age.shape[0])
    with pytest.raises(BundleError, match="self-test of signature 'serving_default'"):
        write_at(tmp_path, 1700000000, of_size)
    assert list(tmp_path.iterdir()) == []


def test_an_output_without_rows_is_refused(tmp_path):
    mean = function_answering(mean=lambda age: age.mean())
    with pytest.raises(BundleError, match=r"'mean': expected one row per example"):
        write_at(tmp_path, 1700000000, mean)


def test_a_function_without_a_default_signature_is_refused(tmp_path):
    servable = servables.numeric_servable()
    only = dataclasses.replace(
        servable,
        function=lambda w, x: {"predict": {"y": x.raw["features/age"]}},
    )
    with pytest.raises(BundleError, match="must answer a signature 'serving_default'"):
        write_at(tmp_path, 1700000000, only)


def test_extra_assets_are_copied_and_checked(tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("hello")
    path = export.write_bundle(
        servables.numeric_servable(),
        tmp_path / "out",
        platforms=CPU,
        assets_extra={"docs/note.txt": str(note)},
    )
    assert (path / "assets.extra" / "docs" / "note.txt").read_text() == "hello"
    assert "assets.extra/docs/note.txt" in export.load(path).manifest["files"]
    for name, source, kind in [
        ("../up.txt", note, BundleError),
        ("here.txt", tmp_path / "gone", MissingFileError),
    ]:
        with pytest.raises(kind, match="assets_extra"):
            export.write_bundle(
                servables.numeric_servable(), tmp_path, assets_extra={name: source}
            )


def test_features_that_are_one_array_are_called_feature(tmp_path):
    origin = Origin("features", None)
    servable = export.Servable(
        function=lambda w, x: {"serving_default": {"y": x.raw["features"] @ w["k"]}},
        weights={"k": np.ones((2, 1), np.float32)},
        plan=HostPlan(raw=(origin,), calls=()),
        example={origin: np.ones((1, 2), np.float32)},
    )
    bundle = export.load(write_at(tmp_path, 1700000000, servable))
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for request in (rows, {"feature": rows}):
        assert bundle.predict(request)["y"].tolist() == [[3.0], [7.0], [11.0]]


def test_a_model_that_reads_nothing_still_knows_its_rows(tmp_path):
    def baseline(weights, inputs):
        rows = next(iter(inputs.raw.values())).shape[0]
        bias = jnp.broadcast_to(weights["bias"], (rows, 1))
        return {"serving_default": {"y": bias}}

    servable = dataclasses.replace(
        servables.numeric_servable(), function=baseline, plan=HostPlan(raw=(), calls=())
    )
    bundle = export.load(write_at(tmp_path, 1700000000, servable))
    assert bundle.predict({"age": [1.0, 2.0, 3.0]})["y"].tolist() == [[0.5]] * 3


def test_small_floats_survive(tmp_path):
    servable = servables.numeric_servable()
    half = {"kernel": jnp.ones((1, 1), jnp.bfloat16), "bias": jnp.ones(1, jnp.bfloat16)}

    def function(weights, inputs):
        age = inputs.raw["features/age"][:, None].astype(jnp.bfloat16)
        return {"serving_default": {"y": age @ weights["kernel"] + weights["bias"]}}

    servable = dataclasses.replace(
        servable, function=function, weights=half, plan=HostPlan((servables.AGE,), ())
    )
    bundle = export.load(write_at(tmp_path, 1700000000, servable))
    answer = bundle.predict({"age": [1.0]})["y"]
    assert (answer.dtype.name, float(answer[0, 0])) == ("bfloat16", 2.0)


def test_a_transform_that_is_not_data_is_refused(tmp_path):
    class Own:
        name, keys = "own", ("city",)

        def __call__(self, raw):
            return np.zeros((len(raw["city"]), 1), np.int32)

    servable = export.Servable(
        function=lambda w, x: {"serving_default": {"y": x.staged["own"]}},
        weights={},
        plan=HostPlan(raw=(), calls=(HostCall("own", Own(), (servables.CITY,)),)),
        example={servables.CITY: Strings.of(["Oslo"])},
    )
    with pytest.raises(FeatureError, match="cannot write a Own into a bundle"):
        write_at(tmp_path, 1700000000, servable)


def test_a_cross_of_dense_features_may_grow_beyond_its_example(tmp_path):
    # Dropped '' make fewer combinations: the axis varies though no input is sparse.
    parts = (transforms.HashBucket("city", 10), transforms.HashBucket("tags", 10))
    cross = transforms.pad_ids(transforms.Cross(parts, 100), "drop")
    tags = Origin("features", "tags")

    def function(weights, inputs):
        ids: Ids = inputs.staged["x"]
        return {"serving_default": {"n": (ids.ids >= 0).sum(axis=1)}}

    servable = export.Servable(
        function=function,
        weights={},
        plan=HostPlan(raw=(), calls=(HostCall("x", cross, (servables.CITY, tags)),)),
        example={
            servables.CITY: Strings.of(np.array([["a", "b", ""]])),
            tags: Strings.of(np.array([["c", "d", ""]])),
        },
    )
    bundle = export.load(write_at(tmp_path, 1700000000, servable))
    full = {"city": [["a", "b", "c"]] * 2, "tags": [["d", "e", "f"], ["d", "", ""]]}
    assert bundle.predict(full)["n"].tolist() == [9, 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": {"predict": "tensorflow/serving/guess"}}, "unknown method"),
        ({"example": {servables.AGE: np.ones(1)}}, "the example has no features/size"),
        (
            {"example": {servables.AGE: np.ones(0), servables.SIZE: np.ones(0)}},
            "at least one row",
        ),
        (
            {"plan": HostPlan(raw=(Origin("labels", None),), calls=())},
            "is not a feature",
        ),
    ],
)
def test_a_servable_that_cannot_be_served_is_refused(changes, words):
    with pytest.raises(BundleError, match=words):
        dataclasses.replace(servables.numeric_servable(), **changes)


def test_features_may_have_numbers_for_names(tmp_path):
    origin = Origin("features", 0)
    servable = export.Servable(
        function=lambda w, x: {"serving_default": {"y": x.raw["features/0"] * 2}},
        weights={},
        plan=HostPlan(raw=(origin,), calls=()),
        example={origin: np.ones(1, np.float32)},
    )
    bundle = export.load(write_at(tmp_path, 1700000000, servable))
    for name in (0, "0"):
        assert bundle.predict({name: [1.5]})["y"].tolist() == [3.0]


def test_what_a_killed_export_left_is_gone_after_the_next(tmp_path):
    old, young, copied = (tmp_path / name for name in ("1600000000", "1600000001", "7"))
    for folder in (old, young, copied):
        folder.mkdir()
    (copied / "manifest.json").touch()
    for folder in (old, copied):
        os.utime(folder, (0, 0))
    export.write_bundle(servables.numeric_servable(), tmp_path, platforms=("cpu",))
    assert not old.exists()
    assert young.exists()
    assert copied.exists()
