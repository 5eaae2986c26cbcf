"""Functions as files: rebuilt from StableHLO when jax no longer reads its own."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import export as jax_export

from estimax import export
from estimax.core.errors import BundleError
from estimax.export import functions
from estimax.export.manifest import BundleFiles

sys.path.insert(0, str(Path(__file__).parent))
import servables  # lies beside this file


@pytest.fixture(scope="module", params=[("cpu",), ("cpu", "cuda", "tpu")])
def bundle(request, tmp_path_factory):
    base = tmp_path_factory.mktemp("functions")
    servable = servables.wide_servable()
    return export.load(export.write_bundle(servable, base, platforms=request.param))


def test_a_function_rebuilt_from_stablehlo_gives_the_same_answers(bundle):
    rebuilt = functions.rebuild_function(BundleFiles.open(bundle.path).read, "predict")
    assert list(rebuilt.platforms) == bundle.manifest["platforms"]
    for rows in (1, 4):
        request = servables.wide_request(rows, seed=rows)
        arrays = bundle.transform(bundle.check(request))
        found = jax.jit(rebuilt.call)(bundle.weights, arrays)
        wanted = bundle.run("predict", arrays)["logits"]
        np.testing.assert_array_equal(found["logits"], wanted)


def test_a_rebuilt_function_can_be_written_again(bundle):
    read = BundleFiles.open(bundle.path).read
    rebuilt = functions.rebuild_function(read, "predict")
    again = jax_export.deserialize(bytearray(rebuilt.serialize()))
    assert functions.arguments_of(again)[1] == bundle.arguments


def test_a_refused_export_falls_back_to_stablehlo(bundle):
    read = BundleFiles.open(bundle.path).read
    refused = lambda name: b"?" if name.endswith(".jaxexport") else read(name)  # noqa: E731
    rebuilt = functions.read_function(refused, "predict")
    assert functions.arguments_of(rebuilt)[1] == bundle.arguments


def test_neither_form_being_readable_says_what_to_do(bundle):
    with pytest.raises(BundleError, match="Use the jax version named in manifest"):
        functions.read_function(lambda name: b"?", "predict")


def test_ids_of_any_number_have_a_free_length(bundle):
    shapes = {name: spec.shape for name, spec in bundle.arguments.items()}
    assert shapes == {
        "raw/features/age": ("b",),
        "staged/city/ids": ("b", 1),
        "staged/tags/ids": ("b", "l0"),
    }


def test_side_effects_are_refused():
    def noisy(weights, inputs):
        jax.debug.print("{x}", x=inputs["x"])
        return {"y": inputs["x"]}

    spec = functions.ArgumentSpec("float32", ("b",))
    with pytest.raises(BundleError, match="calls Python"):
        functions.export_function(noisy, functions.abstract({}, {"x": spec}), ("cpu",))
