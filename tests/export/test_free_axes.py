"""Which axes of a bundle's inputs stay open."""

import jax.numpy as jnp
import numpy as np
import pytest

from estimax import export
from estimax.core.errors import BundleError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.free_axes import symbolic_axes
from estimax.feature_columns import transforms
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import HostCall, Origin

A, B, C = (Origin("features", key) for key in "abc")


def ids_of(origin):
    return HostCall(
        origin.key,
        transforms.SequenceIds(transforms.HashBucket(origin.key, 9, is_integer=True)),
        (origin,),
    )


def lengths_of(name, *origins):
    parts = tuple((origin.key, None) for origin in origins)
    return HostCall(name, transforms.SequenceLengths(parts), origins)


def ragged():
    return Sparse.of_rows([[1, 2, 3], [4]])


def test_sequences_that_are_compared_share_their_time():
    calls = (lengths_of("n", A, B), ids_of(A), ids_of(B))
    axes = symbolic_axes(HostPlan((), calls), {A: ragged(), B: ragged()})
    assert axes == {"staged/a/ids": {1: "t0"}, "staged/b/ids": {1: "t0"}}


@pytest.mark.parametrize("length", [1, 2, 9, 11, 16, 17, 27, 60])
def test_rows_are_open_whatever_length_those_of_the_example_have(length):
    source = transforms.HashBucket("a", 9, is_integer=True)
    padded = HostCall("p", transforms.pad_ids(source, "drop"), (A,))
    batch = {A: Sparse.of_rows([list(range(length)), [4]])}
    axes = symbolic_axes(HostPlan((), (padded, ids_of(A))), batch)
    assert {name: set(found) for name, found in axes.items()} == {
        "staged/p/ids": {1},
        "staged/a/ids": {1},
    }


def test_sequences_of_two_layers_have_a_time_each():
    calls = (lengths_of("n", A, B), lengths_of("m", C), *map(ids_of, (A, B, C)))
    batch = {A: ragged(), B: ragged(), C: Sparse.of_rows([[1], [2]])}
    axes = symbolic_axes(HostPlan((), calls), batch)
    assert [axes[f"staged/{key}/ids"] for key in "abc"] == [
        {1: "t0"},
        {1: "t0"},
        {1: "t1"},
    ]


def test_a_sequence_in_two_layers_ties_their_times():
    calls = (lengths_of("n", A, B), lengths_of("m", B, C), *map(ids_of, (A, B, C)))
    batch = {origin: ragged() for origin in (A, B, C)}
    axes = symbolic_axes(HostPlan((), calls), batch)
    assert {axis[1] for axis in axes.values()} == {"t0"}


def test_a_dense_sequence_fixes_the_time_of_those_beside_it():
    calls = (lengths_of("n", A, B), ids_of(A), ids_of(B))
    dense = np.array([[1, 2, 3], [4, -1, -1]])
    axes = symbolic_axes(HostPlan((), calls), {A: ragged(), B: dense})
    assert axes == {}


def test_several_ids_of_a_step_are_open_too():
    several = Sparse.of_rows([[[1, 2], [3]], [[4]]])
    calls = (lengths_of("n", A, B), ids_of(A), ids_of(B))
    batch = {A: several, B: Sparse.of_rows([[1, 2], [3]])}
    axes = symbolic_axes(HostPlan((), calls), batch)
    assert axes == {"staged/a/ids": {1: "t0", 2: "l0"}, "staged/b/ids": {1: "t0"}}


def exported(tmp_path, function, example, calls=()):
    raw = tuple(o for o in example if not any(o in call.inputs for call in calls))
    servable = export.Servable(
        lambda weights, inputs: {"serving_default": {"y": function(weights, inputs)}},
        {"kernel": np.arange(3, dtype=np.float32)},
        HostPlan(raw, calls),
        example,
    )
    return export.load(export.write_bundle(servable, tmp_path, platforms=("cpu",)))


def inputs_of(bundle):
    return {
        spec.name: spec.shape for spec in bundle.signatures["serving_default"].inputs
    }


def test_padded_rows_have_any_length(tmp_path):
    rows = np.array([[1.0, 2.0, 0.0]], np.float32)
    bundle = exported(tmp_path, lambda w, x: x.raw["features/a"].sum(1), {A: rows})
    assert inputs_of(bundle) == {"a": (None, None)}
    assert bundle.predict({"a": [[1.0] * 5, [2.0] * 5]})["y"].tolist() == [5.0, 10.0]


def test_a_vector_that_meets_a_weight_keeps_its_length(tmp_path):
    rows = np.array([[1.0, 2.0, 0.0]], np.float32)
    bundle = exported(
        tmp_path, lambda w, x: x.raw["features/a"] @ w["kernel"], {A: rows}
    )
    assert inputs_of(bundle) == {"a": (None, 3)}
    with pytest.raises(BundleError, match=r"expected float32 of shape \[B, 3\]"):
        bundle.predict({"a": [[1.0] * 5]})


def test_a_sequence_and_its_mask_have_one_length(tmp_path):
    def masked(weights, inputs):
        return (inputs.raw["features/a"] * inputs.raw["features/b"]).sum(1)

    rows = np.array([[1.0, 2.0, 0.0]], np.float32)
    vector = np.ones((1, 2), np.float32)
    bundle = exported(
        tmp_path,
        lambda w, x: masked(w, x) + x.raw["features/c"] @ w["kernel"][:2],
        {A: rows, B: rows, C: vector},
    )
    assert inputs_of(bundle) == {"a": (None, None), "b": (None, None), "c": (None, 2)}
    ones = [[1.0] * 4]
    assert bundle.predict({"a": ones, "b": ones, "c": [[0, 0]]})["y"].tolist() == [4.0]
    with pytest.raises(BundleError, match=r"raw/features/b: expected shape \[1, 4\]"):
        bundle.predict({"a": ones, "b": [[1.0] * 5], "c": [[0, 0]]})


def test_dense_words_have_any_number_in_a_row(tmp_path):
    words = Strings.of([["x", "y", "z"]])
    call = HostCall(
        "a", transforms.pad_ids(transforms.HashBucket("a", 9), "drop"), (A,)
    )

    def counted(weights, inputs):
        return jnp.sum(inputs.staged["a"].ids >= 0, axis=1)

    bundle = exported(tmp_path, counted, {A: words}, (call,))
    assert inputs_of(bundle) == {"a": (None, None)}
    assert bundle.predict({"a": [["x"] * 7, ["y"] * 6 + [""]]})["y"].tolist() == [7, 6]


def test_a_feature_may_have_several_free_sizes(tmp_path):
    images = np.zeros((1, 4, 6), np.float32)
    bundle = exported(
        tmp_path, lambda w, x: x.raw["features/a"].mean(axis=(1, 2)), {A: images}
    )
    assert inputs_of(bundle) == {"a": (None, None, None)}
    for height, width in ((2, 3), (5, 1)):
        given = np.full((3, height, width), 7.0, np.float32)
        assert bundle.predict({"a": given})["y"].tolist() == [7.0] * 3
