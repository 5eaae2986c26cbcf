"""Write a bundle: one version folder, which appears complete or not at all.

    path = write_bundle(servable, "model/export/final", step=1000)

    1700000000/
        manifest.json            sizes and hashes of the others, versions; written last
        signatures.json          signatures with names, dtypes and shapes
        functions/<name>.*       the program, twice (see functions.py)
        weights.safetensors      one copy for all functions, passed as arguments
        transforms.json, assets/ host transforms and their vocabularies
        examples.json            how to parse tf.train.Examples, if requests have them
        csv.json                 how to decode CSV records, if requests have them
        selftest.json            example rows and their answers
        assets.extra/            the user's own files, and requests to warm up a server
        eval/                    a bundle that evaluates, if the export has one

The folder is written under a temporary name, loaded, tested and then renamed.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jax
import jaxlib.version
import numpy as np
from jax import export

from estimax.core.device_dtypes import (
    Forwarded,
    Int64,
    Words,
    device_dtype,
    materialize,
)
from estimax.core.errors import BundleError, MissingFileError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export import functions, host_plan, manifest, selftest
from estimax.export.bundle import EVAL_FOLDER, WEIGHTS, load
from estimax.export.free_axes import FreeAxes, find_free_axes, symbolic_axes
from estimax.export.functions import BATCH, ArgumentSpec
from estimax.export.manifest import write_manifest
from estimax.export.requests import RequestReader
from estimax.export.selftest import (
    WARM_UP_FILE,
    WarmUp,
    request_columns,
    write_requests,
)
from estimax.export.signature import (
    DEFAULT_SIGNATURE,
    EVALUATE,
    PREDICT,
    STRING,
    Servable,
    Signature,
    SignatureOutputs,
    TensorInfo,
    input_name,
    origins_of,
    signature_to_json,
)
from estimax.export.text_requests import CSV_FILE, EXAMPLES_FILE, specs_to_json
from estimax.formats import tensors
from estimax.staging import host_plan as plans
from estimax.staging.trace import Origin
from estimax.storage import atomic, files

_TESTED = "tested"  # in `Servable.exported`
PLATFORMS = ("cpu", "cuda", "tpu")
# jax guarantees to read its own format for half a year.
_JAXEXPORT_DAYS = 180


def write_bundle(
    servable: Servable,
    base_dir: str | os.PathLike[str],
    *,
    assets_extra: Mapping[str, str | os.PathLike[str]] | None = None,
    step: int | None = None,
    metrics: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    evaluation: Servable | None = None,
    platforms: Sequence[str] = PLATFORMS,
    now: Callable[[], float] = time.time,
) -> Path:
    """Export a servable as a new version.

    The new bundle is loaded and its self-test is run before it becomes visible, if this
    process has a device of one of the platforms.

    Args:
      servable: What to export.
      base_dir: The folder of versions, created if missing. The version is the time in
        seconds, or one more than the newest version.
      assets_extra: Files to copy: path under `assets.extra/` to the file. None: none.
      step: The training step of the weights, for the manifest.
      metrics: The result of an evaluation of these weights, for the manifest. None:
        none.
      about: More entries of the manifest, as JSON values, such as how probabilities
        were calibrated. None: none.
      evaluation: A second function, with one signature of the method `EVALUATE`. It
        becomes a bundle of its own in the folder `eval` of the version. None: none.
      platforms: The platforms that can run the bundle: "cpu", "cuda", "rocm", "tpu".
      now: Returns the current time in seconds.

    Returns:
      The folder of the new version.

    Raises:
      BundleError: The function cannot be exported, returns no "serving_default", has an
        output without one row per example, or fails the self-test.
      MissingFileError: A file of `assets_extra` does not exist.

    Example:
      >>> import tempfile
      >>> age = Origin("features", "age")
      >>> double = lambda w, x: {"serving_default": {"y": x.raw["features/age"] * 2}}
      >>> plan = plans.HostPlan(raw=(age,), calls=())
      >>> servable = Servable(double, {}, plan, {age: np.array([31.0])})
      >>> with tempfile.TemporaryDirectory() as base:
      ...     folder = write_bundle(servable, base, platforms=("cpu",))
      ...     print(load(folder).predict({"age": [1.0, 2.0, 3.0]}))
      {'y': array([2., 4., 6.], dtype=float32)}
    """
    extra = _check_extra(assets_extra or {})
    base = Path(base_dir)
    base.mkdir(parents=True, exist_ok=True)
    atomic.remove_leftovers(base)
    manifest.remove_empty(base, time.time())
    program = _export(servable, tuple(platforms))
    judged = None if evaluation is None else _export(evaluation, tuple(platforms))
    while True:
        created = now()
        version = manifest.next_version(base, created)
        entries = {
            **(about or {}),
            **_about(program, version, created, step),
            "metrics": manifest.plain_metrics(metrics or {}),
            "examples_name": servable.examples_name,
        }
        try:
            with atomic.folder(base / str(version)) as folder:
                _write_content(folder, servable, program, extra)
                if evaluation is not None and judged is not None:
                    _write_bundle_in(folder / EVAL_FOLDER, evaluation, judged, entries)
                write_manifest(folder, entries)
                if functions.runs_here(platforms):
                    _test(folder, servable)
                _take(base / str(version))
        except _TakenError:
            continue
        return base / str(version)


def _write_bundle_in(
    folder: Path, servable: Servable, program: _Program, about: Mapping[str, Any]
) -> None:
    """Write a bundle inside of another, and test it."""
    folder.mkdir()
    _write_content(folder, servable, program, {})
    write_manifest(folder, about)
    if functions.runs_here(about["platforms"]):
        _test(folder, servable)


def _test(folder: Path, servable: Servable) -> None:
    """Load the bundle and run its self-test."""
    bundle = load(folder, verify=False)
    bundle.self_test()
    # While its programs are in use, the test of the next export compiles nothing.
    servable.exported[_TESTED] = bundle._programs


class _TakenError(Exception):
    """Another export has created this version in the meantime."""


def _take(final: Path) -> None:
    """Create the empty folder of the version, which the renaming then replaces."""
    # Created just before the renaming, so that no reader sees an unfinished export.
    # mkdir fails if the folder exists. The renaming would silently replace it.
    try:
        final.mkdir()
    except FileExistsError:
        raise _TakenError from None


@dataclass(frozen=True)
class _Program:
    """All signatures of a servable, exported."""

    signatures: Mapping[str, Signature]
    stems: Mapping[str, str]  # signature -> the file of its function
    exported: Mapping[str, export.Exported]  # file -> function
    example: Mapping[Origin, Any]
    answers: selftest.AnswersBySignature
    warm_up: WarmUp | None  # a request and its answers


def _export(servable: Servable, platforms: tuple[str, ...]) -> _Program:
    example = {o: servable.example[o] for o in origins_of(servable.plan)}
    prepared = servable.plan.prepare(example)
    weights = {name: _spec_of(array) for name, array in servable.weights.items()}
    outputs = _abstract_outputs(servable, prepared)

    def inputs(free: FreeAxes) -> dict[str, ArgumentSpec]:
        return _input_specs(servable.plan, example, prepared, free)

    def is_traceable(free: FreeAxes) -> bool:
        function = _flat_function(servable, prepared)
        return functions.is_traceable(function, weights, inputs(free))

    # Examples are parsed with the shapes of a spec, which are fixed. Labels of other
    # widths would not fit the model.
    has_form = servable.parse_spec is not None or servable.csv is not None
    is_fixed = has_form or EVALUATE in servable.methods.values()
    free = {} if is_fixed else find_free_axes(servable.plan, example, is_traceable)
    try:
        exported = _lower(servable, outputs, prepared, weights, inputs(free), platforms)
    except Exception:
        if not free:
            raise
        # Some operations can be traced but not lowered for free sizes.
        free = {}
        exported = _lower(servable, outputs, prepared, weights, inputs(free), platforms)
    features = tuple(_feature_spec(o, example[o], servable.plan, free) for o in example)
    signatures, stems = {}, {}
    kept: dict[str, export.Exported] = {}
    for name, answer in outputs.items():
        results = functions.results_of(exported[name])
        method = servable.methods.get(name, PREDICT)
        specs = tuple(
            _spec_of_forwarded(k, value, features)
            if isinstance(value, Forwarded)
            else _output_spec(name, k, value, results[k], by_row=method != EVALUATE)
            for k, value in answer.items()
        )
        signatures[name] = Signature(name, method, features, specs)
        stems[name] = _stem_for(name, exported[name], kept)
        kept.setdefault(stems[name], exported[name])
    rows = selftest.first_rows(example)
    answers_of = _answering(servable)
    by_row = all(signature.is_by_row for signature in signatures.values())
    warm_up = _warm_up(features, rows, answers_of) if by_row else None
    return _Program(signatures, stems, kept, rows, answers_of(rows), warm_up)


def _lower(
    servable: Servable,
    signatures: Iterable[str],
    like: plans.PreparedBatch,
    weights: Mapping[str, ArgumentSpec],
    inputs: Mapping[str, ArgumentSpec],
    platforms: tuple[str, ...],
) -> dict[str, export.Exported]:
    """Return the exported function of every signature."""
    key = (tuple(weights.items()), tuple(inputs.items()), platforms)
    if key in servable.exported:
        kept: dict[str, export.Exported] = servable.exported[key]
        return kept
    exported = {}
    # Traced once for all signatures: `jit` remembers the trace.
    answer_all = jax.jit(_flat_function(servable, like), inline=True)
    arguments = functions.abstract(weights, inputs)
    first_of: dict[Any, str] = {}  # by what a signature returns
    for name in signatures:
        function = _function_of(answer_all, name)
        try:
            same = first_of.setdefault(_outputs_of(answer_all, arguments, name), name)
            if same == name:
                made = functions.export_function(function, arguments, platforms)
                exported[name] = made
            else:
                exported[name] = exported[same]
        except Exception as error:
            error.add_note(_advice(name, inputs, platforms))
            raise
    servable.exported[key] = exported
    return exported


def _outputs_of(answer_all: Any, arguments: Sequence[Any], signature: str) -> Any:
    """Return which arrays of the trace a signature returns, by which names.

    The default signature of a head is another of its signatures as well. Equal ones are
    lowered once: lowering for three platforms takes most of the time of an export.
    """
    traced = answer_all.trace(*arguments)
    tree = jax.tree.structure(traced.out_info)
    every = jax.tree.unflatten(tree, [id(v) for v in traced.jaxpr.jaxpr.outvars])
    leaves, form = jax.tree.flatten(every[signature])
    return tuple(leaves), form


def _input_specs(
    plan: plans.HostPlan,
    example: plans.RawBatch,
    prepared: plans.PreparedBatch,
    dense: FreeAxes,
) -> dict[str, ArgumentSpec]:
    free = symbolic_axes(plan, example, dense)
    specs = {}
    for name, array in host_plan.flat_inputs(prepared).items():
        named = {0: BATCH, **free.get(name, {})}
        shape = tuple(named.get(axis, n) for axis, n in enumerate(array.shape))
        specs[name] = ArgumentSpec(_spec_of(array).dtype, shape)
    return specs


def _abstract_outputs(
    servable: Servable, prepared: plans.PreparedBatch
) -> SignatureOutputs:
    """Return the outputs of the function with shapes in place of arrays."""
    weights = dict(servable.weights)
    outputs: SignatureOutputs = jax.eval_shape(servable.function, weights, prepared)
    unknown = sorted(set(servable.methods) - set(outputs))
    if unknown:
        raise BundleError(
            f"Servable: methods name the signature {unknown[0]!r}, but the function "
            f"answers {sorted(outputs)}."
        )
    evaluates = EVALUATE in servable.methods.values()
    if DEFAULT_SIGNATURE not in outputs and not evaluates:
        raise BundleError(
            f"Servable: the function must answer a signature {DEFAULT_SIGNATURE!r}; it "
            f"answers {sorted(outputs)}."
        )
    return outputs


def _function_of(
    answer_all: Callable[[dict[str, Any], dict[str, Any]], SignatureOutputs],
    signature: str,
) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    # All functions have the name `answer`, so that equal programs are equal bytes.
    def answer(weights: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        outputs = answer_all(weights, inputs)[signature]
        return {
            name: _on_device(value)
            for name, value in outputs.items()
            if not isinstance(value, Forwarded)
        }

    return answer


def _flat_function(
    servable: Servable, like: plans.PreparedBatch
) -> Callable[[dict[str, Any], dict[str, Any]], SignatureOutputs]:
    """Return the function of a servable, but with a flat dict of arrays as inputs."""
    return lambda weights, inputs: servable.function(
        weights, host_plan.nest_inputs(inputs, like)
    )


def _on_device(value: Any) -> Any:
    if isinstance(value, Words):
        return value.ids
    return value.values if isinstance(value, Int64) else value


def _advice(signature: str, inputs: Mapping[str, Any], platforms: Sequence[str]) -> str:
    shapes = ", ".join(f"{n} {list(spec.shape)}" for n, spec in inputs.items())
    return (
        f"While exporting signature {signature!r} for {', '.join(platforms)} with "
        f"these shapes, in which a name is a free size: {shapes}. Use x.shape in place "
        "of fixed sizes (in a reshape, or a loop over rows). If an operation does not "
        "exist on a platform, leave the platform out, such as platforms=('cpu',)."
    )


def _feature_spec(
    origin: Origin, value: Any, plan: plans.HostPlan, free: FreeAxes
) -> TensorInfo:
    name, on_device = input_name(origin), origin in plan.raw
    kind: Any = "dense"
    shape: tuple[int | None, ...]
    if isinstance(value, Sparse):
        kind, shape, value = "sparse", (None,) * len(value.dense_shape), value.values
    else:
        sizes = enumerate(value.shape)
        is_free = {0, *(axis for named, axis in free if named == origin)}
        shape = tuple(None if axis in is_free else size for axis, size in sizes)
    if isinstance(value, Strings):
        return TensorInfo(name, STRING, shape, kind)
    computed = device_dtype(value.dtype).name if on_device else None
    forwarded = any(origin == one.origin for one in plan.forwarded)
    hosted = forwarded or any(
        origin in call.inputs and not host_plan.reads_only_numbers(call)
        for call in plan.calls
    )
    # Only the device reads it, in float32, so callers need not send float64.
    narrow = value.dtype == np.float64 and not hosted
    dtype = "float32" if narrow else value.dtype.name
    # A number that is an output as it is must be given.
    is_given = kind == "sparse" or forwarded
    default = None if is_given else _default_of(origin, value, plan)
    return TensorInfo(name, dtype, shape, kind, computed, default=default)


def _default_of(origin: Origin, value: Any, plan: plans.HostPlan) -> Any:
    """Return what stands for a missing number of a feature, or None."""
    if value.dtype.kind == "i" and host_plan.is_only_ids(origin, plan):
        return -1
    default = host_plan.declared_default(origin, plan)
    if default is None or (value.dtype.kind != "f" and default != default):
        return None
    numbers = np.asarray(default)
    if numbers.shape in ((), value.shape[1:]):
        return default
    # A column of shape [1] may read a feature [B].
    return numbers.item() if numbers.size == 1 else None


def _output_spec(
    signature: str, name: str, answer: Any, result: ArgumentSpec, *, by_row: bool
) -> TensorInfo:
    if by_row and (not result.shape or result.shape[0] != BATCH):
        raise BundleError(
            f"signature {signature!r}, output {name!r}: expected one row per example, "
            f"found shape {list(result.shape)}. Spread it over the batch with "
            "jnp.broadcast_to, or leave it out."
        )
    shape = tuple(dim if isinstance(dim, int) else None for dim in result.shape)
    if isinstance(answer, Words):
        words = answer.vocabulary
        return TensorInfo(name, STRING, shape, "dense", result.dtype, words)
    dtype = "int64" if isinstance(answer, Int64) else result.dtype
    return TensorInfo(name, dtype, shape, "dense", result.dtype)


def _spec_of_forwarded(
    name: str, answer: Forwarded, features: Sequence[TensorInfo]
) -> TensorInfo:
    """Return an output with the dtype and shape of the feature that it repeats."""
    wanted = input_name(answer.origin)
    given = next(spec for spec in features if spec.name == wanted)
    forwards = host_plan.forwarded_name(answer)
    return TensorInfo(name, given.dtype, given.shape, forwards=forwards)


def _stem_for(
    signature: str, exported: export.Exported, kept: Mapping[str, export.Exported]
) -> str:
    """Return the file name of a function; equal functions share one file."""
    for stem, other in kept.items():
        same_results = functions.results_of(other) == functions.results_of(exported)
        same_program = other.mlir_module_serialized == exported.mlir_module_serialized
        if same_program and same_results:
            return stem
    return quote(signature, safe="")


def _answering(
    servable: Servable,
) -> Callable[[plans.RawBatch], selftest.AnswersBySignature]:
    """Return the function that answers a raw batch, compiled once for each shape."""
    function = jax.jit(servable.function)

    def answer(batch: plans.RawBatch) -> selftest.AnswersBySignature:
        prepared = servable.plan.prepare(batch)
        outputs = function(dict(servable.weights), prepared)
        answers: selftest.AnswersBySignature = materialize(
            outputs, servable.plan.forward(batch)
        )
        return answers

    return answer


def _warm_up(
    inputs: Sequence[TensorInfo],
    rows: plans.RawBatch,
    answers_of: Callable[[plans.RawBatch], selftest.AnswersBySignature],
) -> WarmUp | None:
    """Return a request of these rows, or of the first, with the answers to it."""
    for batch in (rows, selftest.head(rows, 1)):
        columns = request_columns(inputs, batch)
        if columns is not None:
            # Answered as it is read: reading may replace NaN by a default.
            read = RequestReader(inputs, rows)
            return WarmUp(columns, answers_of(read(columns)))
    return None


def _write_content(
    folder: Path,
    servable: Servable,
    program: _Program,
    extra: Mapping[str, Path],
) -> None:
    signatures = {
        name: {"function": program.stems[name], **signature_to_json(signature)}
        for name, signature in program.signatures.items()
    }
    _write_json(folder / "signatures.json", signatures)
    for stem, exported in program.exported.items():
        functions.write_function(folder, stem, exported)
    # Not safetensors' save_file, which makes files that only their owner can read.
    arrays = {name: np.asarray(array) for name, array in servable.weights.items()}
    tensors.write(folder / WEIGHTS, arrays)
    described = host_plan.plan_to_json(servable.plan, folder / "assets")
    _write_json(folder / "transforms.json", described)
    if servable.parse_spec is not None:
        # Only what the model reads, so that requests need not have more.
        read = {input_name(origin) for origin in origins_of(servable.plan)}
        used = {n: spec for n, spec in servable.parse_spec.items() if n in read}
        _write_json(folder / EXAMPLES_FILE, specs_to_json(used))
    if servable.csv is not None:
        used_names = [input_name(origin) for origin in origins_of(servable.plan)]
        _write_json(folder / CSV_FILE, servable.csv.reading(used_names).to_json())
    test = selftest.selftest_to_json(program.example, program.answers)
    _write_json(folder / "selftest.json", test)
    if program.warm_up is not None:
        write_requests(folder / WARM_UP_FILE, program.warm_up)
    for name, source in extra.items():  # may replace the requests
        target = folder / "assets.extra" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _about(
    program: _Program, version: int, created: float, step: int | None
) -> dict[str, Any]:
    first = next(iter(program.exported.values()))
    at = datetime.datetime.fromtimestamp(created, datetime.UTC)
    expires = at + datetime.timedelta(days=_JAXEXPORT_DAYS)
    return {
        "version": version,
        "created": at.isoformat(timespec="seconds"),
        "step": step,
        "estimax": _own_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "platforms": list(first.platforms),
        "calling_convention_version": first.calling_convention_version,
        "jaxexport_expires": expires.date().isoformat(),
    }


def _own_version() -> str:
    try:
        return importlib.metadata.version("estimax")
    except importlib.metadata.PackageNotFoundError:
        return "unknown, not installed"


def _check_extra(given: Mapping[str, str | os.PathLike[str]]) -> dict[str, Path]:
    for name, source in given.items():
        try:
            files.check_name(name)
        except ValueError:
            raise BundleError(
                f"assets_extra: {name!r} must be a relative path inside assets.extra/."
            ) from None
        if not Path(source).is_file():
            raise MissingFileError(f"assets_extra: {source} is not a file.")
    return {name: Path(source) for name, source in given.items()}


def _spec_of(array: Any) -> ArgumentSpec:
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return ArgumentSpec(np.dtype(dtype).name, tuple(array.shape))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
