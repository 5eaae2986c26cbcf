"""Functions as files: exported by jax with free dimensions, read back without Python.

    exported = export_function(call, weights, inputs, platforms)
    write_function(folder, "predict", exported)    # .jaxexport, .stablehlo, .json
    read_function(files.read, "predict").call(weights, inputs)

Each function is kept twice. jax promises to read its own file (.jaxexport) for half a
year; the StableHLO inside it is promised for five. So when a newer jax refuses the
first, the function is rebuilt from the second and the JSON beside it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export

from estimax.core.errors import BundleError
from estimax.export.program_check import check_program
from estimax.wire import json_text

Exported = export.Exported

BATCH = "b"  # the name of the batch dimension
FOLDER = "functions"

Shape = tuple[int | str, ...]  # numbers are fixed, names are free
Read = Callable[[str], bytes]  # file name, relative to the bundle -> content


@dataclasses.dataclass(frozen=True)
class ArgumentSpec:
    """The dtype and shape of one argument or result."""

    dtype: str
    shape: Shape


def export_function(
    function: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    weights: Mapping[str, ArgumentSpec],
    inputs: Mapping[str, ArgumentSpec],
    platforms: Sequence[str],
) -> export.Exported:
    """Lower `function(weights, inputs) -> outputs` for all platforms at once.

    Raises BundleError for a program that `read_function` would refuse.
    """
    scope = export.SymbolicScope()
    arguments = [
        {name: _struct(spec, scope) for name, spec in group.items()}
        for group in (weights, inputs)
    ]
    jitted = jax.jit(function)
    # Looked at before lowering, which fails on them without a word of sense.
    if jitted.trace(*arguments).jaxpr.effects:
        raise BundleError(
            "the function has side effects (a print or a callback into Python), which "
            "cannot be exported. Remove them in mode 'infer'."
        )
    exported = export.export(jitted, platforms=tuple(platforms))(*arguments)
    check_program(exported, where="the exported function")
    return exported


def results_of(exported: export.Exported) -> dict[str, ArgumentSpec]:
    """The named results of an exported function, with their free dimensions."""
    specs = [_spec_of(aval) for aval in exported.out_avals]
    named: dict[str, ArgumentSpec] = jax.tree.unflatten(exported.out_tree, specs)
    return named


def arguments_of(
    exported: export.Exported,
) -> tuple[dict[str, ArgumentSpec], dict[str, ArgumentSpec]]:
    """The named weights and the named inputs that an exported function takes."""
    specs = [_spec_of(aval) for aval in exported.in_avals]
    (weights, inputs), _ = jax.tree.unflatten(exported.in_tree, specs)
    return weights, inputs


def inputs_of(exported: export.Exported) -> dict[str, ArgumentSpec]:
    """The named inputs of an exported function, weights left out."""
    return arguments_of(exported)[1]


def weights_of(exported: export.Exported) -> dict[str, ArgumentSpec]:
    """The named weights that an exported function takes."""
    return arguments_of(exported)[0]


def write_function(bundle: Path, stem: str, exported: export.Exported) -> None:
    """Write the three files of a function into a bundle's folder."""
    folder = bundle / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / f"{stem}.jaxexport").write_bytes(exported.serialize())
    (folder / f"{stem}.stablehlo").write_bytes(exported.mlir_module_serialized)
    described = json.dumps(_description(exported), indent=1)
    (folder / f"{stem}.json").write_text(described)


def read_function(read: Read, stem: str) -> export.Exported:
    """Read a function: jax's own file, or rebuilt when this jax no longer takes it.

    Raises BundleError for a program that is not plain computation.
    """
    exported = _deserialized(read, stem)
    try:
        check_program(exported, where=f"{FOLDER}/{stem}")
    except BundleError:
        raise
    except Exception as error:  # of jax's, for bytes that are no program
        raise BundleError(
            f"{FOLDER}/{stem}: expected a StableHLO program, found other content "
            f"({error})."
        ) from error
    return exported


def _deserialized(read: Read, stem: str) -> export.Exported:
    data = read(f"{FOLDER}/{stem}.jaxexport")
    try:
        return export.deserialize(bytearray(data))
    # Whatever its reason: the bytes are as written, so it is their age or jax's.
    except Exception as refusal:
        try:
            return rebuild_function(read, stem)
        except Exception as error:
            raise BundleError(
                f"{FOLDER}/{stem}: jax {jax.__version__} can read neither its export "
                f"({refusal}) nor its StableHLO ({error}). Use the jax version named "
                "in manifest.json, and export again with a newer one."
            ) from error


def rebuild_function(read: Read, stem: str) -> export.Exported:
    """Make an exported function from its StableHLO and description alone."""
    record = json_text.parse(read(f"{FOLDER}/{stem}.json"))
    scope = export.SymbolicScope()
    groups = [_specs_from_json(record[part]) for part in ("weights", "inputs")]
    in_avals, in_tree = _avals(((groups[0], groups[1]), {}), scope)
    out_avals, out_tree = _avals(_specs_from_json(record["results"]), scope)
    known = {
        "fun_name": record["name"],
        "in_tree": in_tree,
        "in_avals": in_avals,
        "out_tree": out_tree,
        "out_avals": out_avals,
        "_has_named_shardings": True,
        "_in_named_shardings": (None,) * len(in_avals),
        "_out_named_shardings": (None,) * len(out_avals),
        "in_shardings_hlo": (None,) * len(in_avals),
        "out_shardings_hlo": (None,) * len(out_avals),
        "nr_devices": record["nr_devices"],
        "platforms": tuple(record["platforms"]),
        "ordered_effects": (),
        "unordered_effects": (),
        "disabled_safety_checks": (),
        "mlir_module_serialized": read(f"{FOLDER}/{stem}.stablehlo"),
        "calling_convention_version": record["calling_convention_version"],
        "module_kept_var_idx": tuple(record["kept_arguments"]),
        "uses_global_constants": record["uses_global_constants"],
        "_get_vjp": None,
    }
    # jax adds and drops fields from version to version; each must get its value.
    fields = {field.name for field in dataclasses.fields(export.Exported)}
    return export.Exported(**{name: v for name, v in known.items() if name in fields})


def runs_here(platforms: Collection[str]) -> bool:
    """Whether this process's devices are among the platforms of an export."""
    backend = jax.default_backend()
    names = {"gpu": {"cuda", "rocm"}}.get(backend, {backend})
    return not names.isdisjoint(platforms)


def _description(exported: export.Exported) -> dict[str, Any]:
    weights, inputs = arguments_of(exported)
    return {
        "name": exported.fun_name,
        "weights": _specs_to_json(weights),
        "inputs": _specs_to_json(inputs),
        "results": _specs_to_json(results_of(exported)),
        "platforms": list(exported.platforms),
        "calling_convention_version": exported.calling_convention_version,
        "kept_arguments": list(exported.module_kept_var_idx),
        "uses_global_constants": exported.uses_global_constants,
        "nr_devices": exported.nr_devices,
    }


def _spec_of(aval: Any) -> ArgumentSpec:
    dims = (dim if isinstance(dim, int) else str(dim) for dim in aval.shape)
    return ArgumentSpec(aval.dtype.name, tuple(dims))


def _specs_to_json(specs: Mapping[str, ArgumentSpec]) -> dict[str, Any]:
    return {n: {"dtype": s.dtype, "shape": list(s.shape)} for n, s in specs.items()}


def _specs_from_json(record: Mapping[str, Any]) -> dict[str, ArgumentSpec]:
    return {
        name: ArgumentSpec(r["dtype"], tuple(r["shape"])) for name, r in record.items()
    }


def _struct(spec: ArgumentSpec, scope: export.SymbolicScope) -> Any:
    text = ", ".join(str(dim) for dim in spec.shape)
    shape = export.symbolic_shape(text, scope=scope) if text else ()
    struct: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
    return struct(shape, spec.dtype)


def _avals(tree: Any, scope: export.SymbolicScope) -> tuple[tuple[Any, ...], Any]:
    """Abstract values as jax means them, by tracing the identity: no private class."""
    specs, structure = jax.tree.flatten(tree)
    structs = [_struct(spec, scope) for spec in specs]
    traced = jax.make_jaxpr(lambda *values: values)(*structs)
    return tuple(traced.in_avals), structure
