"""Check that a program of a bundle does nothing but compute.

    check_program(exported, where="functions/predict")     # or BundleError

A StableHLO program may call native code by name (a custom call). XLA does not check who
calls it, nor, for most targets, that the arrays have the sizes that the code expects.
With wrong sizes it writes outside of the arrays. A bundle may come from anybody, so

- only targets that jax itself exports and XLA verifies are accepted (`SAFE`);
- the linear algebra routines that jax exports are accepted if their shapes are fixed
  and fit each other (`ROUTINES`);
- all others are rejected, including estimax's own kernels, which training registers;
- operations that wait for another process or for the host are rejected.

The check walks the operations of the parsed module, in all functions and regions. It
does not search the text, because names may also occur in attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import export
from jax.extend.mlir import ir as mlir_ir
from jax.interpreters import mlir

from estimax.core.errors import BundleError

ir: Any = mlir_ir  # the module has no type annotations

SAFE = frozenset(
    {
        "ApproxTopK",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "shape_assertion",
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
    }
)

# The last axes of operands and of results, after batch axes that all share. A letter is
# a size: k is the smaller of m and n, and p <= n <= m. The singular value decomposition
# is missing, because the sizes that it writes depend on its options.
_SQUARE = (("mm",), ("mm", ""))
_LU = (("mn",), ("mn", "k", ""))
_QR = (("mn",), ("mn", "k"))
_HOUSEHOLDER = (("mn", "p"), ("mn",))
_EIGEN = (("mm",), ("mm", "m", ""))
_PIVOTS = (("p",), ("m",))
_LEFT, _RIGHT = (("mm", "mn"), ("mn",)), (("nn", "mn"), ("mn",))

Shapes = tuple[tuple[str, ...], tuple[str, ...]]

ROUTINES: dict[str, Shapes] = {
    "Eigh": (("mm",), ("mm", "m")),
    "LuDecomposition": (("mn",), ("mn", "k", "m")),
    "ProductOfElementaryHouseholderReflectors": _HOUSEHOLDER,
    "Qr": _QR,
    "cu_lu_pivots_to_permutation": _PIVOTS,
    "hip_lu_pivots_to_permutation": _PIVOTS,
    **{
        f"{library}_{routine}_ffi": shapes
        for library in ("cusolver", "hipsolver")
        for routine, shapes in (
            ("geqrf", _QR),
            ("getrf", _LU),
            ("orgqr", _HOUSEHOLDER),
            ("potrf", _SQUARE),
            ("syevd", _EIGEN),
        )
    },
    **{
        f"lapack_{kind}{routine}_ffi": shapes
        for routine, kinds, shapes in (
            ("geqrf", "sdcz", _QR),
            ("getrf", "sdcz", _LU),
            ("heevd", "cz", _EIGEN),
            ("orgqr", "sd", _HOUSEHOLDER),
            ("potrf", "sdcz", _SQUARE),
            ("syevd", "sd", _EIGEN),
            ("trsm", "sdcz", _LEFT),  # _RIGHT if its option `side` is "R"
            ("ungqr", "cz", _HOUSEHOLDER),
        )
        for kind in kinds
    },
}

_DIALECTS = frozenset({"builtin", "chlo", "func", "sdy", "stablehlo"})
# Operations that wait for the host, another device or another process. jax.export emits
# none of them for a program of one device.
_WAITING = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "cross-replica-sum",
        "infeed",
        "outfeed",
        "recv",
        "reduce_scatter",
        "send",
    )
)


def check_program(exported: export.Exported, *, where: str) -> None:
    """Raise BundleError if a program does more than compute its results."""
    if exported.ordered_effects or exported.unordered_effects:
        raise BundleError(f"{where}: expected a program without side effects.")
    with mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        if "main" not in ir.SymbolTable(module.operation):
            raise BundleError(f"{where}: expected a program with a function 'main'.")
        problem = _first_problem(module.operation)
    if problem is not None:
        raise BundleError(
            f"{where}: the program has {problem}. Accepted are StableHLO operations "
            "and the custom calls that jax exports for Cholesky, LU, QR, symmetric "
            "eigenvalues and triangular solves of fixed shapes. Compute others outside "
            "of the exported function. For one matrix per example use jax.lax.map, "
            "which fixes the shapes."
        )


def _first_problem(root: Any) -> str | None:
    """Return a description of the first operation that is not accepted, or None."""
    pending = [root]
    while pending:  # no recursion: a hostile program may nest regions deeply
        operation = pending.pop()
        problem = _problem(operation)
        if problem is not None:
            return problem
        for region in operation.regions:
            for block in region:
                pending += [inner.operation for inner in block]
    return None


def _problem(operation: Any) -> str | None:
    name = operation.name
    if name == "stablehlo.custom_call":
        return _custom_call_problem(operation)
    if name.partition(".")[0] not in _DIALECTS or name in _WAITING:
        return f"the operation {name!r}"
    return None


def _custom_call_problem(operation: Any) -> str | None:
    target = str(ir.StringAttr(operation.attributes["call_target_name"]).value)
    if target in SAFE:
        return None
    shown = f"a custom call of {target!r}"
    if target not in ROUTINES:
        return shown
    rule = ROUTINES[target]
    if rule is _LEFT:
        side = _option(operation, "side")
        if side not in (b"L", b"R"):
            return f"{shown} without a side"
        rule = _LEFT if side == b"L" else _RIGHT
    operands = [_shape(value) for value in operation.operands]
    results = [_shape(value) for value in operation.results]
    if not _fits(rule, operands, results):
        return f"{shown} with shapes that do not fit or are not fixed"
    return None


def _option(operation: Any, name: str) -> bytes | None:
    """Return a character among the options of a call; None if there is none or many."""
    keys = ("backend_config", "mhlo.backend_config")
    given = [operation.attributes[key] for key in keys if key in operation.attributes]
    try:
        (options,) = (ir.DictAttr(value) for value in given)
        return bytes([ir.IntegerAttr(options[name]).value])
    except (ValueError, KeyError, TypeError):
        return None


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an operand or result; None if it is not fixed."""
    try:
        kind = ir.RankedTensorType(value.type)
    except (ValueError, TypeError):
        return None
    return tuple(kind.shape) if kind.has_static_shape else None


def _fits(
    rule: Shapes,
    operands: Sequence[tuple[int, ...] | None],
    results: Sequence[tuple[int, ...] | None],
) -> bool:
    """Return whether the shapes of a routine's operands and results fit its rule."""
    letters = [*rule[0], *rule[1]]
    shapes = [shape for shape in (*operands, *results) if shape is not None]
    if (len(operands), len(results)) != (len(rule[0]), len(rule[1])):
        return False
    if len(shapes) < len(letters):
        return False
    sizes: dict[str, int] = {}
    batches = set()
    for axes, shape in zip(letters, shapes, strict=True):
        if len(shape) < len(axes):
            return False
        batches.add(shape[: len(shape) - len(axes)])
        for letter, size in zip(axes, shape[len(shape) - len(axes) :], strict=True):
            if sizes.setdefault(letter, size) != size:
                return False
    if "k" in sizes and sizes["k"] != min(sizes["m"], sizes["n"]):
        return False
    m = sizes.get("m", 0)
    return len(batches) == 1 and (
        "p" not in sizes or sizes["p"] <= sizes.get("n", m) <= m
    )
