"""Processes that map a bundle share the memory of its weights."""

import numpy as np

from estimax import export
from tests.export import servables


def test_a_mapped_bundle_answers_the_same(tmp_path):
    export.write_bundle(servables.wide_servable(), tmp_path, platforms=("cpu",))
    bundle = export.load(tmp_path)
    mapped = export.load(tmp_path, memory_map=True)
    mapped.self_test()  # compares its answers with those of the export
    for name, value in bundle.weights.items():
        np.testing.assert_array_equal(mapped.weights[name], value)
