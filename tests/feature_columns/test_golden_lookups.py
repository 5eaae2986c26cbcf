"""Lookups and their gradients beside TensorFlow's, eagerly and in a train step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

import estimax as ex
from estimax import training
from estimax.staging import host_plan as plans
from estimax.staging.packing import pack

pytestmark = pytest.mark.golden

CASES = load_golden("lookups.json")["cases"]
NAMES = [case["id"] for case in CASES]


def decode(tensor):
    values = [float(v) for v in tensor["data"]]
    return np.array(values).reshape(tensor["shape"]).astype(tensor["dtype"])


def is_sparse(case):
    return case["id"].startswith("embedding_lookup_sparse")


def inputs_of(case):
    """The ids and weights of a case, as they come from an input."""
    if not is_sparse(case):
        return {"ids": decode(case["ids"])}
    indices, shape = np.array(case["indices"], np.int64), tuple(case["dense_shape"])
    given = {"ids": ex.Sparse(indices, np.array(case["ids"], np.int64), shape)}
    if case["weights"] is not None:
        given["weights"] = ex.Sparse(indices, decode(case["weights"]), shape)
    return given


def look_up(case, table, given):
    if not is_sparse(case):
        return ex.embedding_lookup(table, given["ids"], case["max_norm"])
    return ex.embedding_lookup_sparse(
        table,
        given["ids"],
        given.get("weights"),
        combiner=case["combiner"],
        max_norm=case["max_norm"],
    )


def close(found, expected):
    np.testing.assert_allclose(found, decode(expected), rtol=1e-5, atol=1e-6)


def test_all_cases_are_here():
    assert len(CASES) == 30


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_output_and_gradient_are_tensorflow_s(case):
    given, upstream = inputs_of(case), decode(case["upstream"])

    def total(table):
        found = look_up(case, table, given)
        return jnp.sum(found * upstream), found

    gradient, output = jax.grad(total, has_aux=True)(
        jnp.asarray(decode(case["params"]))
    )
    close(output, case["output"])
    close(gradient, case["gradient"])


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_step_updates_rows_by_tensorflow_s_gradient(size):
    # All cases of one batch size share a program, each with a table of its own.
    cases = [case for case in CASES if case["upstream"]["shape"][0] == size]
    features = {
        f"{case['id']}/{name}": value
        for case in cases
        for name, value in inputs_of(case).items()
    }

    def function(features, labels):
        loss = 0.0
        for case in cases:
            table = ex.get_variable(
                case["id"].replace("/", "_"), initializer=decode(case["params"])
            )
            given = {name: features[f"{case['id']}/{name}"] for name in inputs_of(case)}
            loss += jnp.sum(look_up(case, table, given) * decode(case["upstream"]))
        return ex.EstimatorSpec("train", loss=loss, train_op=ex.optimizers.SGD(1.0))

    batch = plans.flatten(features, None)
    program = training.compile(training.record(function, batch, "train"))
    assert not program.shapes.params  # all of them are tables, updated by row
    arrays = pack(program.plan.prepare(batch))
    state, _ = program.step(program.init(jax.random.key(0), arrays), arrays)
    for case in cases:
        after = state.tables[case["id"].replace("/", "_")]
        close(decode(case["params"]) - after, case["gradient"])
