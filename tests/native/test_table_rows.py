"""Calls from XLA programs: proven, checked before memory is read, or left to XLA."""

import logging
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax.native import loading, table_rows

pytestmark = pytest.mark.usefixtures("native_on")
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def fresh(monkeypatch):
    """A process in which no kernel has proven itself yet."""
    monkeypatch.setattr(loading, "_loaded", {})


def call(name, result, *arguments):
    struct = jax.ShapeDtypeStruct(result, jnp.float32)
    return jax.jit(lambda *given: jax.ffi.ffi_call(name, struct)(*given))(*arguments)


def ids(*values):
    return np.array(values, np.int32)


def line(*values):
    """Ids of one column: a matrix with one line."""
    return ids(*values)[None]


ROWS = np.ones((2, 3), np.float32)
ONE = np.float32(1)
NUMBERS = table_rows.AdamNumbers(0.9, 0.1, 0.99, 0.01, 0.5, 1e-3, 0.0)
LAY, ADD = "estimax_lay_rows", "estimax_add_rows"
WRONG = {
    "ids of floats": (LAY, (2, 3), TABLE, ROWS[:, 0][None], ids(0)),
    "too few ids": (LAY, (2, 3), TABLE, line(1), ids(0)),
    "ids of rank 1": (LAY, (2, 3), TABLE, ids(0, 1), ids(0)),
    "a table without ids": (LAY, (2, 3), TABLE),
    "a table without starts": (LAY, (2, 3), TABLE, line(0, 1)),
    "a table of integers": (LAY, (1, 3), TABLE.view(np.int32), line(0), ids(0)),
    "a wider output": (LAY, (2, 300), TABLE, line(0, 1), ids(0)),
    "columns beyond": (LAY, (2, 3), TABLE, line(0, 1), ids(1)),
    "columns below": (LAY, (2, 3), TABLE, line(0, 1), ids(-1)),
    "more starts": (LAY, (2, 3), TABLE, line(0, 1), ids(0, 0)),
    "a table of rank 1": (LAY, (2, 12), TABLE.ravel(), line(0, 1), ids(0)),
    "an empty table": (LAY, (1, 3), TABLE[:0], line(0), ids(0)),
    "an output of rank 1": (LAY, (6,), TABLE, line(0, 1), ids(0)),
    "a start beyond": (ADD, (4, 3), ROWS, ids(5), line(0, 1), line(0, 1)),
    "a start below": (ADD, (4, 3), ROWS, ids(-9), line(0, 1), line(0, 1)),
    "too few places": (ADD, (4, 3), ROWS, ids(0), line(0, 1), line(0)),
    "more places": (
        ADD,
        (4, 3),
        ROWS,
        ids(0),
        line(0, 1),
        ids(0, 1, 0, 1).reshape(2, 2),
    ),
    "nothing": ("estimax_add_rows", (4, 3)),
    "one output of adam": ("estimax_adam", (4, 3), ids(0), ROWS[:1], *[ONE] * 7, TABLE),
    "one output": ("estimax_adagrad", (4, 3), ids(0), ROWS[:1], ONE, ONE, ONE, TABLE),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_call_with_other_buffers_is_an_error(case):
    assert table_rows.has_lookup_kernels()
    assert table_rows.has_update_kernel()
    assert table_rows.has_adam_kernel()
    with pytest.raises(jax.errors.JaxRuntimeError, match="was not written for"):
        jax.block_until_ready(call(*case))


@pytest.mark.parametrize("wrong", [ids(2, 0), ids(1, 1)], ids=["unsorted", "repeated"])
def test_adam_refuses_ids_that_do_not_ascend(wrong):
    update = jax.jit(table_rows.update_adam)
    with pytest.raises(jax.errors.JaxRuntimeError, match="was not written for"):
        jax.block_until_ready(update(TABLE, TABLE, TABLE, wrong, ROWS, NUMBERS))


def test_functions_refuse_arrays_before_a_program_is_made():
    match = r"ids: expected int32 .1, 2., got float32 .1, 2."
    with pytest.raises(ValueError, match=match):
        table_rows.concat_rows([(TABLE, ROWS[:, 0][None], (0,))])
    with pytest.raises(ValueError, match="each column of the result once"):
        table_rows.concat_rows([(TABLE, line(0, 1), (0,)), (TABLE, line(0, 1), (2,))])
    with pytest.raises(ValueError, match=r"grads: expected float32 .1, 3."):
        table_rows.update_adagrad(TABLE, TABLE, ids(0), ROWS, ONE, (0, 0))
    with pytest.raises(ValueError, match=r"v: expected float32 .4, 3., got .* .2, 3."):
        table_rows.update_adam(TABLE, TABLE, ROWS, ids(0), ROWS[:1], NUMBERS)
    with pytest.raises(ValueError, match=r"columns 2.3 are not in"):
        table_rows.sum_row_gradients(ROWS, (2,), line(0, 1), line(0, 1), (4, 3), ROWS)


def test_the_proof_runs_while_a_model_is_traced(fresh):
    def model(table):
        assert table_rows.has_lookup_kernels()
        assert table_rows.has_update_kernel()
        assert table_rows.has_adam_kernel()
        return 2 * table

    text = jax.jit(model).lower(TABLE).as_text()
    assert "custom_call" not in text


def test_a_kernel_that_disagrees_is_left_off_with_one_warning(
    fresh, monkeypatch, caplog
):
    right = table_rows.sum_row_gradients
    monkeypatch.setattr(
        table_rows, "sum_row_gradients", lambda *given: 2 * right(*given)
    )
    caplog.set_level(logging.WARNING, "estimax")
    assert not table_rows.has_lookup_kernels()
    assert not table_rows.has_lookup_kernels()
    (record,) = caplog.records
    assert "'lookups' are off for this process" in record.message
    assert f"jax {jax.__version__}" in record.message
    assert table_rows.has_update_kernel()


def test_off_leaves_all_to_xla(monkeypatch, caplog):
    monkeypatch.setattr("estimax.native.loading.setting", "off")
    assert not table_rows.has_lookup_kernels()
    assert not table_rows.has_update_kernel()
    assert not table_rows.has_adam_kernel()
    assert not caplog.records


def test_checks_hold_in_optimised_python():
    code = """
import numpy as np
from estimax.core.strings import Strings
from estimax.native import hashing
bad = Strings(np.frombuffer(b"abc", np.uint8), np.array([0, 1, 2, 10**9]), (3,))
try:
    hashing.hash_strings(bad, 10, drop_empty=False)
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True
    )
    assert "string 2 begins at 2 and ends at 1000000000" in done.stdout
