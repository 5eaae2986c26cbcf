"""Which axes of a bundle's inputs stay open."""

import numpy as np

from estimax import transforms
from estimax.core.sparse import Sparse
from estimax.export import host_plan
from estimax.staging.plan import Plan
from estimax.staging.recording import Call, Origin

A, B, C = (Origin("features", key) for key in "abc")


def ids_of(origin):
    return Call(
        origin.key,
        transforms.SequenceIds(transforms.HashBucket(origin.key, 9, is_integer=True)),
        (origin,),
    )


def lengths_of(name, *origins):
    parts = tuple((origin.key, None) for origin in origins)
    return Call(name, transforms.SequenceLengths(parts), origins)


def ragged():
    return Sparse.of_rows([[1, 2, 3], [4]])


def test_sequences_that_are_compared_share_their_time():
    calls = (lengths_of("n", A, B), ids_of(A), ids_of(B))
    axes = host_plan.symbolic_axes(Plan((), calls), {A: ragged(), B: ragged()})
    assert axes == {"staged/a/ids": {1: "t0"}, "staged/b/ids": {1: "t0"}}


def test_sequences_of_two_layers_have_a_time_each():
    calls = (lengths_of("n", A, B), lengths_of("m", C), *map(ids_of, (A, B, C)))
    batch = {A: ragged(), B: ragged(), C: Sparse.of_rows([[1], [2]])}
    axes = host_plan.symbolic_axes(Plan((), calls), batch)
    assert [axes[f"staged/{key}/ids"] for key in "abc"] == [
        {1: "t0"},
        {1: "t0"},
        {1: "t1"},
    ]


def test_a_sequence_in_two_layers_ties_their_times():
    calls = (lengths_of("n", A, B), lengths_of("m", B, C), *map(ids_of, (A, B, C)))
    batch = {origin: ragged() for origin in (A, B, C)}
    axes = host_plan.symbolic_axes(Plan((), calls), batch)
    assert {axis[1] for axis in axes.values()} == {"t0"}


def test_a_dense_sequence_fixes_the_time_of_those_beside_it():
    calls = (lengths_of("n", A, B), ids_of(A), ids_of(B))
    dense = np.array([[1, 2, 3], [4, -1, -1]])
    axes = host_plan.symbolic_axes(Plan((), calls), {A: ragged(), B: dense})
    assert axes == {}


def test_several_ids_of_a_step_are_open_too():
    several = Sparse.of_rows([[[1, 2], [3]], [[4]]])
    calls = (lengths_of("n", A, B), ids_of(A), ids_of(B))
    batch = {A: several, B: Sparse.of_rows([[1, 2], [3]])}
    axes = host_plan.symbolic_axes(Plan((), calls), batch)
    assert axes == {"staged/a/ids": {1: "t0", 2: "l0"}, "staged/b/ids": {1: "t0"}}
