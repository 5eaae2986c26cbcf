"""A bundle as a SavedModel, for TensorFlow Serving and other programs of TensorFlow.

    write_saved_model(load("export/final"), "models/clicks/1")

    estimax convert export/final models/clicks/1        # the same, on the command line

TensorFlow is not needed to write it. The compiled program is embedded as StableHLO (the
operation `XlaCallModule`), in a version that TensorFlow 2.15 reads. The steps before
the program, hashes and vocabularies, become operations of TensorFlow
(`tf_transforms.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

from estimax.core.errors import BundleError
from estimax.export import functions, host_plan
from estimax.export.bundle import Bundle
from estimax.export.signature import STRING, Signature, TensorInfo, input_name
from estimax.export.tf_transforms import (
    NoCounterpartError,
    TransformWriter,
    cast,
    or_default,
)
from estimax.formats import saved_models
from estimax.formats.saved_models import Dtype, Graph, Shape, SignatureTensors, Tensor
from estimax.staging.trace import Origin
from estimax.storage import atomic

# What TensorFlow 2.15.1 reads. Later versions read it too.
_STABLEHLO: Final = "0.14.0"
_CALLING_CONVENTION: Final = 8
_PLATFORMS: Final = {"cpu": b"CPU", "cuda": b"CUDA", "rocm": b"ROCM", "tpu": b"TPU"}


def write_saved_model(
    bundle: Bundle, folder: str | os.PathLike[str], *, transformed: bool = False
) -> Path:
    """Write a bundle as a SavedModel of TensorFlow.

    Use it where a server or a program of TensorFlow must run the model. `estimax serve`
    needs no SavedModel. All signatures take raw features, one tensor for each, and have
    the method of Predict. A sparse feature is a rectangle [B, L] of values, in which ''
    and -1 stand for no value. An id outside of its table counts as missing; a bundle
    would refuse the request.

    TensorFlow Serving compiles the program at the first request of each batch size. It
    must run with `--xla_cpu_compilation_enabled=true`.

    Args:
      bundle: The bundle, from `load`.
      folder: The folder to write, such as `models/clicks/1`. It must not exist.
      transformed: Whether the SavedModel takes the results of the host transforms in
        place of raw features, under the names in `bundle.arguments`. The caller then
        runs `bundle.transform`. Needed for sequences, and for crosses of sparse
        features or of columns that are not bucketized, which have no counterpart here.

    Returns:
      The folder.

    Raises:
      BundleError: The folder exists, a transform has no counterpart in TensorFlow, the
        program needs a newer TensorFlow, or the weights are larger than 2 GB.

    Example:
      >>> import tempfile
      >>> from estimax.export import Servable, load, write_bundle
      >>> from estimax.staging.host_plan import HostPlan
      >>> age = Origin("features", "age")
      >>> double = lambda w, x: {"serving_default": {"y": x.raw["features/age"] * 2}}
      >>> servable = Servable(double, {}, HostPlan((age,), ()), {age: np.array([31.0])})
      >>> with tempfile.TemporaryDirectory() as base:
      ...     bundle = load(write_bundle(servable, base, platforms=("cpu",)))
      ...     path = write_saved_model(bundle, f"{base}/saved/1")
      ...     sorted(file.name for file in path.iterdir())
      ['saved_model.pb', 'variables']
    """
    final = Path(folder)
    if final.exists():
        raise BundleError(f"{final}: expected a new folder, found an existing one.")
    size = sum(array.nbytes for array in bundle.weights.values())
    if size > saved_models.MOST_BYTES:
        raise BundleError(
            f"{bundle.path}: the weights have {size:,} bytes and the graph of a "
            f"SavedModel holds at most {saved_models.MOST_BYTES:,}. Use smaller "
            "tables, or `estimax serve`, which has no such limit."
        )
    writer = _Writer(bundle)
    inputs, arguments = (
        writer.transformed_inputs() if transformed else writer.raw_inputs()
    )
    signatures = {
        name: SignatureTensors(inputs, writer.outputs(signature, inputs, arguments))
        for name, signature in bundle.signatures.items()
    }
    final.parent.mkdir(parents=True, exist_ok=True)
    with atomic.folder(final) as temporary:
        saved_models.write_saved_model(temporary, writer.graph, signatures)
    return final


class _Writer:
    """Builds the graph of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self.graph = Graph()
        self._bundle = bundle
        self._weights: dict[str, str] = {}
        self._calls: dict[str, dict[str, Tensor]] = {}  # by program

    def raw_inputs(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return an input for every feature, and the node of every argument."""
        plan, graph = self._bundle.plan, self.graph
        specs = next(iter(self._bundle.signatures.values())).inputs
        inputs = {
            spec.name: self._placeholder(spec.name, spec.dtype, spec.shape)
            for spec in specs
        }
        origins = {o: inputs[input_name(o)] for o in plan.origins}
        by_name = {spec.name: spec.default for spec in specs}
        defaults = {o: by_name[input_name(o)] for o in plan.origins}
        arguments: dict[str, str] = {}
        for origin in plan.raw:
            name = f"raw/{origin.name}"
            wanted = self._bundle.arguments[name].dtype
            tensor = origins[origin]
            node = cast(graph, tensor.node, tensor.dtype, wanted)
            if wanted == "float32":
                node = or_default(graph, node, defaults[origin])
            arguments[name] = node
        self._check_counterparts(origins)
        writer = TransformWriter(graph, origins, defaults)
        for call in plan.calls:
            for path, node in writer.arrays(call).items():
                arguments[host_plan.staged_name(call.name, path)] = node
        return inputs, arguments

    def transformed_inputs(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return an input for every argument of the programs."""
        inputs = {
            name: self._placeholder(name, spec.dtype, _sizes(spec))
            for name, spec in self._bundle.arguments.items()
        }
        return inputs, {name: tensor.node for name, tensor in inputs.items()}

    def outputs(
        self,
        signature: Signature,
        inputs: Mapping[str, Tensor],
        arguments: Mapping[str, str],
    ) -> dict[str, Tensor]:
        """Return the tensor of every output of a signature."""
        stem = self._bundle.function_of(signature.name)
        if stem not in self._calls:
            self._calls[stem] = self._call(stem, arguments)
        computed = self._calls[stem]
        return {
            spec.name: self._output(spec, computed, inputs)
            for spec in signature.outputs
        }

    def _output(
        self, spec: TensorInfo, computed: Mapping[str, Tensor], inputs: Any
    ) -> Tensor:
        graph = self.graph
        if spec.forwards is not None:
            given = inputs.get(_name_of_forwarded(spec.forwards))
            if given is None or given.dtype != spec.dtype:
                raise BundleError(
                    f"output {spec.name!r} repeats a feature, which a SavedModel with "
                    "transformed inputs does not have. Leave it out of the predictions."
                )
            node = graph.add("Identity", given.node, T=Dtype(spec.dtype))
        elif spec.vocabulary is not None:
            words = np.array([word.encode() for word in spec.vocabulary], object)
            node = graph.add(
                "GatherV2",
                graph.constant(words),
                computed[spec.name].node,
                graph.constant(np.int32(0)),
                Tparams=Dtype(STRING),
                Tindices=Dtype(computed[spec.name].dtype),
                Taxis=Dtype("int32"),
            )
        else:
            found = computed[spec.name]
            node = cast(graph, found.node, found.dtype, spec.dtype)
            if node == found.node:  # a node of its own, since only first outputs count
                node = graph.add("Identity", node, T=Dtype(spec.dtype))
        return Tensor(node, spec.dtype, spec.shape)

    def _call(self, stem: str, arguments: Mapping[str, str]) -> dict[str, Tensor]:
        """Add a program; return its results by name."""
        exported = self._bundle.exported(stem)
        weights, inputs = functions.arguments_of(exported)
        flat = [self._weight(name) for name in sorted(weights)]
        dtypes = [weights[name].dtype for name in sorted(weights)]
        flat += [arguments[name] for name in sorted(inputs)]
        dtypes += [inputs[name].dtype for name in sorted(inputs)]
        kept = exported.module_kept_var_idx
        results = functions.results_of(exported)
        node = self.graph.add(
            "XlaCallModule",
            *(flat[place] for place in kept),
            version=_CALLING_CONVENTION,
            module=_portable(exported),
            Tin=[Dtype(dtypes[place]) for place in kept],
            Tout=[Dtype(spec.dtype) for spec in results.values()],
            Sout=[Shape(_sizes(spec)) for spec in results.values()],
            platforms=[_PLATFORMS[name] for name in exported.platforms],
            dim_args_spec=[],
            function_list=[],
            has_token_input_output=False,
            disabled_checks=[],
        )
        return {
            name: Tensor(f"{node}:{place}", spec.dtype, _sizes(spec))
            for place, (name, spec) in enumerate(results.items())
        }

    def _weight(self, name: str) -> str:
        if name not in self._weights:
            array = np.asarray(self._bundle.weights[name])
            self._weights[name] = self.graph.constant(array)
        return self._weights[name]

    def _placeholder(self, name: str, dtype: str, shape: tuple[Any, ...]) -> Tensor:
        node = self.graph.add("Placeholder", dtype=Dtype(dtype), shape=Shape(shape))
        return Tensor(node, dtype, shape)

    def _check_counterparts(self, origins: Mapping[Origin, Tensor]) -> None:
        """Raise one error for all transforms that TensorFlow has no operations for."""
        missing = []
        for call in self._bundle.plan.calls:
            try:
                TransformWriter(Graph(), origins).arrays(call)
            except NoCounterpartError as error:
                missing.append(f"{call.name} ({error})")
        if missing:
            raise BundleError(
                f"{self._bundle.path}: these transforms have no counterpart in a "
                f"SavedModel: {', '.join(missing)}. Write it with transformed=True "
                "(--transformed) and send the results of bundle.transform, or serve "
                "the bundle with `estimax serve`."
            )


def _name_of_forwarded(forwards: str) -> str:
    """Return the input that "forwarded/features/tags, default 0" names."""
    return forwards.removeprefix("forwarded/").removeprefix("features/")


def _sizes(spec: functions.ArgumentSpec) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in spec.shape)


def _portable(exported: functions.Exported) -> bytes:
    """Return a program as StableHLO of an old version."""
    with mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        # Old readers do not know the newer kinds of source locations.
        strip = passmanager.PassManager.parse("builtin.module(strip-debuginfo)")
        strip.run(module.operation)
        try:
            found: bytes = stablehlo.serialize_portable_artifact(module, _STABLEHLO)
        except Exception as error:
            raise BundleError(
                f"the program has an operation that StableHLO {_STABLEHLO} lacks, so "
                f"TensorFlow 2.15 cannot read it: {error}"
            ) from error
    return found
