"""Functions as files: exported by jax with free dimensions, loaded without their code.

    exported = export_function(call, abstract(weights, inputs), platforms)
    write_function(folder, "predict", exported)    # .jaxexport, .stablehlo, .json
    read_function(files.read, "predict").call(weights, inputs)

Each function is written twice. jax guarantees to read its own format (.jaxexport) for
half a year, and StableHLO for five years. If a newer jax rejects the first, the
function is rebuilt from the StableHLO and the JSON beside it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import jax
from jax import export

from estimax.core.errors import BundleError
from estimax.export.program_check import check_program
from estimax.storage import json_text

Exported = export.Exported

BATCH = "b"  # name of the batch dimension
FOLDER = "functions"
SUFFIXES = (".jaxexport", ".stablehlo", ".json")  # the files of a function

ArgumentShape = tuple[int | str, ...]  # a number is a fixed size, a name a free one
Read = Callable[[str], bytes]  # file name, relative to the bundle -> content


@dataclasses.dataclass(frozen=True)
class ArgumentSpec:
    """The dtype and shape of one argument or result."""

    dtype: str
    shape: ArgumentShape


def export_function(
    function: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    arguments: Sequence[dict[str, Any]],
    platforms: Sequence[str],
) -> export.Exported:
    """Lower `function(weights, inputs) -> outputs` for all platforms at once.

    The arguments are `abstract` ones. Raises BundleError for a program that
    `read_function` would reject.
    """
    jitted = jax.jit(function)
    # Checked before lowering, whose own errors do not name the cause.
    _check_no_python(jitted.trace(*arguments).jaxpr)
    exported = export.export(jitted, platforms=tuple(platforms))(*arguments)
    check_program(exported, where="the exported function")
    return exported


# Operations that a bundle cannot hold -> the functions of jax that make them.
_CALLS = {
    "debug_callback": "Python (jax.debug.print or jax.debug.callback)",
    "debug_print": "Python (jax.debug.print)",
    "ffi_call": "native code (jax.ffi.ffi_call of {target_name!r})",
    "io_callback": "Python (jax.experimental.io_callback)",
    "pure_callback": "Python (jax.pure_callback)",
}


def _check_no_python(jaxpr: Any) -> None:
    """Raise BundleError for a program that calls Python or native code of the user."""
    found = sorted(_calls(jaxpr.jaxpr))
    if found:
        raise BundleError(
            f"the model calls {', '.join(found)}, which cannot be exported: a bundle "
            "has no Python and no native code. Leave the call out in mode 'infer', "
            "compute the value with jax.numpy, or make it a feature in the input_fn."
        )
    if jaxpr.effects:
        raise BundleError(
            "the function has side effects (a print or a callback into Python), which "
            "cannot be exported. Remove them in mode 'infer'."
        )


def _calls(jaxpr: Any) -> set[str]:
    """Return what a jaxpr, and the jaxprs inside it, call outside of XLA."""
    found: set[str] = set()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        found |= {_CALLS[name].format(**equation.params)} if name in _CALLS else set()
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                found |= _calls(getattr(value, "jaxpr", value))
    return found


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def is_traceable(
    function: Callable[[dict[str, Any], dict[str, Any]], Any],
    weights: Mapping[str, ArgumentSpec],
    inputs: Mapping[str, ArgumentSpec],
) -> bool:
    """Return whether a function can be traced with the free sizes of the inputs."""
    try:
        jax.eval_shape(function, *abstract(weights, inputs))
    # Any error: jax, Flax and the model each refuse a size that is not known.
    except Exception:
        return False
    return True


def abstract(*groups: Mapping[str, ArgumentSpec]) -> list[dict[str, Any]]:
    """Return groups of arguments without values, with the same names for sizes."""
    scope = export.SymbolicScope()
    return [{n: _struct(spec, scope) for n, spec in group.items()} for group in groups]


def results_of(exported: export.Exported) -> dict[str, ArgumentSpec]:
    """Return the named results of an exported function, with free dimensions."""
    specs = [_spec_of(aval) for aval in exported.out_avals]
    named: dict[str, ArgumentSpec] = jax.tree.unflatten(exported.out_tree, specs)
    return named


def arguments_of(
    exported: export.Exported,
) -> tuple[dict[str, ArgumentSpec], dict[str, ArgumentSpec]]:
    """Return the named weights and the named inputs of an exported function."""
    specs = [_spec_of(aval) for aval in exported.in_avals]
    (weights, inputs), _ = jax.tree.unflatten(exported.in_tree, specs)
    return weights, inputs


def write_function(bundle: Path, stem: str, exported: export.Exported) -> None:
    """Write the three files of a function into the folder of a bundle."""
    folder = bundle / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / f"{stem}.jaxexport").write_bytes(exported.serialize())
    (folder / f"{stem}.stablehlo").write_bytes(exported.mlir_module_serialized)
    described = json.dumps(_description(exported), indent=1)
    (folder / f"{stem}.json").write_text(described)


@dataclasses.dataclass(frozen=True, eq=False)
class BundleProgram:
    """A function of a bundle, shared by all loaded versions that have the same files.

    `content` tells programs apart. `call(weights, inputs)` is compiled by jax for each
    shape at its first call. `together` keeps what `compile_together` has compiled.
    """

    content: str
    exported: export.Exported
    call: Any
    together: dict[Any, Any] = dataclasses.field(default_factory=dict)


_lock = threading.Lock()  # bundles may be loaded in several threads
_in_use: WeakValueDictionary[str, BundleProgram] = WeakValueDictionary()  # by content


def load_program(read: Read, stem: str, content: str) -> BundleProgram:
    """Return the program with this content; read it unless it is in use.

    A new version of a model, which has other weights only, is neither read nor compiled
    again. Raises BundleError as `read_function` does.
    """
    found = _in_use.get(content)
    if found is None:
        _forget_dropped_programs()
        exported = read_function(read, stem)
        made = BundleProgram(content, exported, jax.jit(exported.call))
        with _lock:
            found = _in_use.setdefault(content, made)
    return found


def _forget_dropped_programs() -> None:
    """Clear two caches of jax, which keep the last few thousand programs it called.

    Without this, a server that swaps programs grows with each swap. The caches hold the
    shapes of results, which are computed again when a function is next traced; compiled
    functions stay.
    """
    for module, name in (
        ("jax._src.interpreters.partial_eval", "_cached_abstract_eval"),
        ("jax._src.export._export", "_call_exported_abstract_eval"),
    ):
        # Not public. A version of jax without them keeps the programs.
        cache: Any = getattr(sys.modules.get(module), name, None)
        if hasattr(cache, "cache_clear"):
            cache.cache_clear()


def is_in_use(content: str) -> bool:
    """Return whether `load_program` has given out the program with this content."""
    return content in _in_use


def compile_together(
    programs: Mapping[str, BundleProgram],
    weights: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> Any:
    """Compile programs as one, which returns name to results.

    Another version with the same programs gets what was compiled for the same shapes:
    the weights are arguments.
    """
    key = (
        tuple((name, program.content) for name, program in programs.items()),
        tuple((name, a.shape, a.dtype.str) for name, a in inputs.items()),
    )
    together = next(iter(programs.values())).together
    if key not in together:
        calls = {name: program.call for name, program in programs.items()}

        def answer(weights: Any, inputs: Any) -> Any:
            return {name: call(weights, inputs) for name, call in calls.items()}

        together[key] = jax.jit(answer).lower(dict(weights), dict(inputs)).compile()
    return together[key]


def read_function(read: Read, stem: str) -> export.Exported:
    """Read a function from jax's own format, or rebuild it if this jax rejects that.

    Raises BundleError for a program that does more than compute.
    """
    exported = _deserialize(read, stem)
    try:
        check_program(exported, where=f"{FOLDER}/{stem}")
    except BundleError:
        raise
    except Exception as error:  # jax raises several kinds for an invalid program
        raise BundleError(
            f"{FOLDER}/{stem}: expected a StableHLO program, found other content "
            f"({error})."
        ) from error
    return exported


def _deserialize(read: Read, stem: str) -> export.Exported:
    data = read(f"{FOLDER}/{stem}.jaxexport")
    try:
        return export.deserialize(bytearray(data))
    # Any error: hashes show that the bytes are as written, so this jax is too new or
    # too old for them.
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
    """Return an exported function made from its StableHLO and description alone."""
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
    # The fields differ between versions of jax. Pass those that this one has.
    fields = {field.name for field in dataclasses.fields(export.Exported)}
    return export.Exported(**{name: v for name, v in known.items() if name in fields})


def runs_here(platforms: Collection[str]) -> bool:
    """Return whether the devices of this process are among the platforms."""
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
    """Return abstract values, by tracing the identity: jax has no public class."""
    specs, structure = jax.tree.flatten(tree)
    structs = [_struct(spec, scope) for spec in specs]
    traced = jax.make_jaxpr(lambda *values: values)(*structs)
    return tuple(traced.in_avals), structure
