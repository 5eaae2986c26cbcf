"""Columns inside a trace: what is asked of the host, what stays on the device."""

import jax
import numpy as np
import pytest
from jax import export

from estimax import feature_columns as fc
from estimax import staging
from estimax.core.raw_values import as_raw
from estimax.core.sparse import Ids
from estimax.core.strings import Strings
from estimax.feature_columns import transforms

KEY = jax.random.key(0)


def _traced(layer, raw):
    """Initialise a layer on tracers of a raw batch; the trace, and what came out."""
    origins = {key: staging.Origin("features", key) for key in raw}
    batch = {origins[key]: as_raw(value) for key, value in raw.items()}
    trace = staging.Trace(
        "train", lambda call: jax.tree.map(jax.numpy.asarray, call.run(batch))
    )
    numbers = {k: v for k, v in raw.items() if isinstance(v, np.ndarray)}

    def run(arrays):
        features = {
            key: trace.register_feature(
                arrays.get(key, staging.HostOnly(origins[key], "text")), origins[key]
            )
            for key in raw
        }
        with staging.tracing(trace):
            return layer.init_with_output(KEY, features)

    return trace, jax.eval_shape(run, numbers)


def _city():
    return fc.categorical_column_with_hash_bucket("city", 10)


def test_text_is_looked_up_through_the_host():
    trace, _ = _traced(
        fc.DenseFeatures([fc.embedding_column(_city(), 3)]),
        {"city": Strings.of(["Oslo", "Rome"])},
    )
    (lookup,) = trace.lookups
    assert lookup.table == "city_embedding/embedding_weights"
    assert lookup.call.transform == transforms.pad_ids(_city().id_source, "error")


def test_two_columns_of_one_feature_share_the_host_work():
    columns = [fc.embedding_column(_city(), 3), fc.indicator_column(_city())]
    trace, _ = _traced(fc.DenseFeatures(columns), {"city": Strings.of(["Oslo"])})
    assert len(trace.calls) == 1


def test_raw_numbers_are_bucketized_on_the_host():
    age = fc.bucketized_column(fc.numeric_column("age"), [18.0])
    trace, _ = _traced(fc.LinearModel([age]), {"age": np.ones(2, np.float32)})
    assert trace.lookups[0].call is not None


def test_normalized_numbers_are_bucketized_on_the_device():
    source = fc.numeric_column("age", normalizer_fn=lambda x: x / 10)
    age = fc.bucketized_column(source, [1.8])
    trace, _ = _traced(fc.LinearModel([age]), {"age": np.ones(2, np.float32)})
    assert not trace.calls
    assert trace.lookups[0].call is None


def test_shared_tables_are_looked_up_once_per_column():
    pair = [fc.categorical_column_with_identity(key, 5) for key in ("a", "b")]
    layer = fc.DenseFeatures(fc.shared_embeddings(pair, 2))
    trace, (block, variables) = _traced(layer, {"a": np.ones(3, int), "b": [1, 2, 3]})
    names = {lookup.table for lookup in trace.lookups}
    assert names == {"a_b_shared_embedding"}
    assert len(trace.lookups) == 2
    assert len(jax.tree.leaves(variables)) == 1
    assert block.shape == (3, 4)


def _clicks(key="clicks"):
    return fc.sequence_categorical_column_with_identity(key, 9)


def test_time_is_rounded_up_where_a_program_is_compiled():
    layer = fc.SequenceFeatures([fc.embedding_column(_clicks(), 3)])
    raw = {"clicks": np.array([[1, 2, 3, 4, 5]])}
    trace, ((block, lengths), _) = _traced(layer, raw)
    assert block.shape == (1, 8, 3)
    assert lengths.shape == (1,)
    assert trace.lookups[0].ids.shape == (1, 8, 1)
    assert layer.init_with_output(KEY, raw)[0][0].shape == (1, 5, 3)


def test_two_columns_of_one_sequence_share_the_host_work():
    columns = [fc.embedding_column(_clicks(), 3), fc.indicator_column(_clicks())]
    trace, _ = _traced(fc.SequenceFeatures(columns), {"clicks": np.array([[1]])})
    # An indicator drops what a table refuses: two of ids, one of lengths.
    assert len(trace.calls) == 3
    bounded = fc.sequence_categorical_column_with_hash_bucket("clicks", 9, dtype=int)
    columns = [fc.embedding_column(bounded, 3), fc.indicator_column(bounded)]
    trace, _ = _traced(fc.SequenceFeatures(columns), {"clicks": np.array([[1]])})
    assert len(trace.calls) == 2


def test_text_for_a_numeric_column_is_refused_while_tracing():
    layer = fc.DenseFeatures([fc.numeric_column("age")])
    with pytest.raises(ValueError, match=r"'age' is text"):
        _traced(layer, {"age": Strings.of(["3"])})


@pytest.mark.parametrize("buckets", [10, 1000])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_batch_and_number_of_ids_may_stay_open_in_an_export(buckets, combiner):
    from estimax.feature_columns.lookup import combine, count

    def both(ids, weights, table):
        given = Ids(ids, weights)
        rows = table[jax.numpy.maximum(ids, 0)]
        return combine(rows, given, combiner), count(given, buckets)

    b, n = export.symbolic_shape("b, n")
    shapes = [
        jax.ShapeDtypeStruct((b, n), np.int32),
        jax.ShapeDtypeStruct((b, n), np.float32),
        jax.ShapeDtypeStruct((buckets, 3), np.float32),
    ]
    exported = export.export(jax.jit(both))(*shapes)
    assert exported.out_avals[0].shape == (b, 3)
    assert exported.out_avals[1].shape == (b, buckets)


def test_a_table_drawn_in_blocks_is_one_normal_distribution():
    column = fc.categorical_column_with_identity("id", 150_001)
    layer = fc.DenseFeatures([fc.embedding_column(column, 16)])
    made = layer.init(KEY, {"id": np.array([0])})
    (table,) = jax.tree.leaves(made)
    assert table.shape == (150_001, 16)
    # σ = 1/4, and 0.88 of that once what lies beyond 2σ is drawn again.
    for rows in (table[:1000], table[65_000:66_000], table[-1000:]):
        np.testing.assert_allclose(np.std(rows), 0.88 * 0.25, rtol=0.02)
        assert np.abs(rows).max() <= 0.5
    # Blocks differ: a repeated one would halve this.
    assert len(np.unique(np.asarray(table[:, 0]))) > 140_000
