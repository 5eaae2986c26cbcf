"""Programs that call native code: refused at loading and at exporting."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax import export as jax_export
from jax.extend import mlir as extended
from jax.extend.mlir import ir
from jax.interpreters import mlir

from estimax.core.errors import BundleError
from estimax.export import functions, program_check
from estimax.export.functions import ArgumentSpec
from estimax.export.program_check import check_program

PLAIN = """
func.func public @main(%a: tensor<5x3xf32>) -> tensor<5x3xf32> {
  return %a : tensor<5x3xf32>
}
"""
BAD_CALL = (
    "stablehlo.custom_call @estimax_lay_rows(%a) {api_version = 4 : i32} : "
    "(tensor<5x3xf32>) -> tensor<5x3xf32>"
)


def program(text, **changes):
    """An exported function whose program is this text."""
    spec = jax.ShapeDtypeStruct((5, 3), jnp.float32)
    like = jax_export.export(jax.jit(lambda x: x), platforms=("cpu",))(spec)
    with mlir.make_ir_context():
        module = ir.Module.parse(f"module @m {{ {text} }}")
        data = extended.serialize_portable_artifact(module, "1.8.0")
    return dataclasses.replace(like, mlir_module_serialized=data, **changes)


def in_main(line, returned="%0"):
    return f"""
    func.func public @main(%a: tensor<5x3xf32>) -> tensor<5x3xf32> {{
      {line}
      return {returned} : tensor<5x3xf32>
    }}
    """


NESTED = {
    "in main": in_main(f"%0 = {BAD_CALL}"),
    "in a function that main calls": in_main(
        "%0 = func.call @inner(%a) : (tensor<5x3xf32>) -> tensor<5x3xf32>"
    )
    + f"""
    func.func private @inner(%a: tensor<5x3xf32>) -> tensor<5x3xf32> {{
      %0 = {BAD_CALL}
      return %0 : tensor<5x3xf32>
    }}""",
    "in a composite": in_main(
        '%0 = stablehlo.composite "my.op" %a {decomposition = @inner} : '
        "(tensor<5x3xf32>) -> tensor<5x3xf32>"
    )
    + f"""
    func.func private @inner(%a: tensor<5x3xf32>) -> tensor<5x3xf32> {{
      %0 = {BAD_CALL}
      return %0 : tensor<5x3xf32>
    }}""",
    "in a branch": in_main(
        f"""%p = stablehlo.constant dense<true> : tensor<i1>
        %0 = "stablehlo.if"(%p) ({{
          %1 = {BAD_CALL}
          stablehlo.return %1 : tensor<5x3xf32>
        }}, {{
          stablehlo.return %a : tensor<5x3xf32>
        }}) : (tensor<i1>) -> tensor<5x3xf32>"""
    ),
    "in a function that nobody calls": PLAIN
    + f"""
    func.func private @unused(%a: tensor<5x3xf32>) -> tensor<5x3xf32> {{
      %0 = {BAD_CALL}
      return %0 : tensor<5x3xf32>
    }}""",
    "with another's name in an attribute": in_main(
        f"%0 = {BAD_CALL}".replace(
            "{api", '{mhlo.frontend_attributes = {target = "@Sharding"}, api'
        )
    ),
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_our_own_kernel_is_refused_wherever_it_is_called(text):
    with pytest.raises(BundleError, match="custom call of 'estimax_lay_rows'"):
        check_program(program(text), where="functions/predict")


def test_a_name_in_an_attribute_calls_nothing():
    line = (
        '%0 = stablehlo.add %a, %a {mhlo.frontend_attributes = {note = "'
        'stablehlo.custom_call @estimax_lay_rows"}} : tensor<5x3xf32>'
    )
    check_program(program(in_main(line)), where="here")


@pytest.mark.parametrize(
    "target", ["xla_ffi_python_cpu_callback", "tpu_custom_call", "tf.call_tf_function"]
)
def test_other_targets_are_refused(target):
    text = in_main(f"%0 = {BAD_CALL}".replace("estimax_lay_rows", target))
    with pytest.raises(BundleError, match=f"custom call of '{target}'"):
        check_program(program(text), where="here")


def test_operations_that_wait_are_refused():
    line = """%t = stablehlo.create_token : !stablehlo.token
    %0:2 = "stablehlo.infeed"(%t) {infeed_config = ""} :
      (!stablehlo.token) -> (tensor<5x3xf32>, !stablehlo.token)"""
    with pytest.raises(BundleError, match=r"operation 'stablehlo\.infeed'"):
        check_program(program(in_main(line, "%0#0")), where="here")


def test_side_effects_are_refused():
    class Effect:
        pass

    with pytest.raises(BundleError, match="without side effects"):
        check_program(program(PLAIN, unordered_effects=(Effect(),)), where="here")


ALGEBRA = {
    "cholesky": lambda w: jnp.linalg.cholesky(w @ w.T),
    "inv": jnp.linalg.inv,
    "solve": lambda w: jnp.linalg.solve(w, w[:, :1]),
    "det": jnp.linalg.slogdet,
    "qr": jnp.linalg.qr,
    "complete qr": lambda w: jnp.linalg.qr(w[:, :2], mode="complete"),
    "wide lu": lambda w: jax.lax.linalg.lu(w[:2]),
    "eigh": lambda w: jnp.linalg.eigh(w @ w.T),
    "complex eigh": lambda w: jnp.linalg.eigh(w.astype(jnp.complex64)),
    "solve from the right": lambda w: jax.lax.linalg.triangular_solve(w, w[:2]),
    "a batch": lambda w: jnp.linalg.inv(jnp.stack([w, w, w])),
}


@pytest.mark.parametrize("function", ALGEBRA.values(), ids=ALGEBRA)
@pytest.mark.parametrize("platforms", [("cpu", "cuda", "tpu"), ("rocm",)], ids=str)
def test_linear_algebra_of_fixed_shapes_can_be_exported(function, platforms):
    spec = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    exported = jax_export.export(jax.jit(function), platforms=platforms)(spec)
    check_program(exported, where="here")


def test_what_models_are_made_of_can_be_exported():
    def function(weights, inputs):
        x, w = inputs["x"], weights["w"]
        return {
            "top": jax.lax.top_k(x @ w, 2)[0],
            "near": jax.lax.approx_max_k(x @ w, 2)[0],
            "sum": jnp.cumsum(x, axis=0),
            "sorted": jnp.sort(x),
            "noise": x + jax.random.normal(jax.random.key(0), x.shape),
            "roots": jax.lax.map(lambda row: jnp.linalg.cholesky(w + row), x),
        }

    weights = {"w": ArgumentSpec("float32", (3, 3))}
    inputs = {"x": ArgumentSpec("float32", ("b", 3))}
    exported = functions.export_function(
        function, functions.abstract(weights, inputs), ("cpu", "cuda", "tpu")
    )
    assert set(functions.results_of(exported)) > {"top", "roots"}


def test_an_export_that_could_not_be_loaded_fails():
    def per_example(weights, inputs):
        return {"root": jnp.linalg.cholesky(inputs["x"])}

    inputs = {"x": ArgumentSpec("float32", ("b", 3, 3))}
    with pytest.raises(BundleError, match=r"not fixed.*use jax\.lax\.map"):
        functions.export_function(per_example, functions.abstract({}, inputs), ("cpu",))

    def lay_rows(weights, inputs):
        call = jax.ffi.ffi_call(
            "estimax_lay_rows", jax.ShapeDtypeStruct((3, 3), jnp.float32)
        )
        return {"rows": call(inputs["x"])}

    inputs = {"x": ArgumentSpec("float32", (3, 3))}
    with pytest.raises(ValueError, match="estimax_lay_rows"):
        functions.export_function(lay_rows, functions.abstract({}, inputs), ("cpu",))


WRONG = {
    "lapack_spotrf_ffi": ("2000x2000", "3x3, "),
    "lapack_sgetrf_ffi": ("2000x2000", "2000x2000, 1, "),
    "lapack_sgeqrf_ffi": ("2000x2000", "2000x2000, 1"),
    "lapack_sorgqr_ffi": ("2000x2000, 1", "3x3"),
    "lapack_ssyevd_ffi": ("2000x2000", "2000x2000, 1, "),
    "lapack_strsm_ffi": ("2000x2000, 3x3", "3x3"),
    "ProductOfElementaryHouseholderReflectors": ("5x3", "5x3"),
    "Qr": ("5x3", "5x3, 9"),
    "cusolver_potrf_ffi": ("5x3", "5x3, "),
    "hip_lu_pivots_to_permutation": ("9", "3"),
}


@pytest.mark.parametrize("target", WRONG)
def test_routines_with_other_shapes_are_refused(target):
    operands, results = (
        [f"tensor<{s}xf32>" if s else "tensor<i32>" for s in text.split(", ")]
        for text in WRONG[target]
    )
    names = [f"%o{i}" for i in range(len(operands))]
    made = [
        f"{name} = stablehlo.constant dense<1.0> : {kind}"
        for name, kind in zip(names, operands, strict=True)
    ]
    line = (
        f"%r:{len(results)} = stablehlo.custom_call @{target}({', '.join(names)}) "
        "{has_side_effect = true, backend_config = {side = 76 : ui8}, "
        "api_version = 4 : i32} : "
        f"({', '.join(operands)}) -> ({', '.join(results)})"
    )
    text = in_main("\n".join([*made, line]), "%a")
    with pytest.raises(BundleError, match=f"'{target}' with shapes that do not fit"):
        check_program(program(text), where="here")


def test_every_accepted_target_is_one_that_jax_promises_to_keep():
    source = (
        "from jax._src.export import _export\n"
        "print(*sorted(_export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    stable = set(done.stdout.split())
    accepted = program_check.SAFE | program_check.ROUTINES.keys()
    assert accepted <= stable
    assert not any(target.startswith("estimax_") for target in accepted)
