"""Every kind of array that users have, through every way into a model.

A kind is taken with the values that it means, or refused with the name of its column,
its dtype and what to do. The table says which, once for all entrances.
"""

import datetime
import decimal

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import estimax as ex
from estimax import export
from estimax import feature_columns as fc
from estimax.core.errors import EstimaxError, FeatureError, InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.requests import RequestReader
from estimax.export.signature import TensorInfo
from estimax.input import (
    Dataset,
    as_batches,
    csv_files,
    numpy_input_fn,
    pandas_input_fn,
    parquet_files,
)
from estimax.staging import Origin
from estimax.staging import host_plan as plans


def _masked(mask, values=(1, 2, 3)):
    return np.ma.masked_array(list(values), list(mask))


def _days():
    return np.array(["2026-01-01", "2026-01-02", "NaT"], "datetime64[ns]")


def _mixed():
    return np.array(["a", 1, 2.5], object)


def _words(values):
    return np.array(values, object)


# Kind -> (array, the values it means), or (array, words of the refusal).
ARRAYS = {
    "big-endian int": (np.array([1, 2, 2**40], ">i8"), [1, 2, 2**40]),
    "big-endian float": (np.array([1.5, 2, 3], ">f4"), [1.5, 2.0, 3.0]),
    "float16": (np.array([1.5, 2, 3], np.float16), [1.5, 2.0, 3.0]),
    "bfloat16": (np.array([1.5, 2, 3], ml_dtypes.bfloat16), [1.5, 2.0, 3.0]),
    "longdouble": (np.array([1.5, 2, 3], np.longdouble), [1.5, 2.0, 3.0]),
    "int8": (np.array([-1, 2, 127], np.int8), [-1, 2, 127]),
    "uint64": (np.array([1, 2, 2**64 - 1], np.uint64), [1, 2, 2**64 - 1]),
    "bool": (np.array([True, False, True]), [True, False, True]),
    "float64 with NaN": (np.array([1.5, np.nan, 3]), [1.5, "nan", 3.0]),
    "complex": (np.array([1 + 2j, 2, 3]), [1 + 2j, 2 + 0j, 3 + 0j]),
    "masked, none missing": (_masked([0, 0, 0]), [1, 2, 3]),
    "masked": (_masked([0, 1, 0]), r"missing.*\.filled\("),
    "masked text": (_masked([0, 1, 0], ["a", "b", "c"]), [b"a", b"", b"c"]),
    "datetime64": (_days(), r"datetime64\[ns\].*astype\('int64'\)"),
    "timedelta64": (_days() - _days()[0], r"timedelta64\[ns\].*astype\('int64'\)"),
    "structured": (np.array([(1, 2.0)] * 3, "i4,f4"), r"structured.*array\['f0'\]"),
    "void": (np.array([b"ab"] * 3, "V2"), r"\|V2"),
    "text": (np.array(["a", "b", "ü"]), [b"a", b"b", "ü".encode()]),
    "bytes": (np.array([b"a", b"b", b"c"]), [b"a", b"b", b"c"]),
    "StringDType": (
        np.array(["a", "", "c"], np.dtypes.StringDType()),
        b"a  c".split(b" "),
    ),
    "None in text": (_words(["a", None, "c"]), [b"a", b"", b"c"]),
    "NaN in text": (_words([np.nan, "b", "c"]), [b"", b"b", b"c"]),
    "NA in text": (_words(["a", pd.NA, "c"]), [b"a", b"", b"c"]),
    "mixed": (_mixed(), r"object.*expected str or bytes, got int: 1"),
    "numbers as objects": (_words([1, None, 3]), r"object.*got int: 1.*to_numeric"),
    "decimals": (_words([decimal.Decimal("1.5")] * 3), r"object.*got Decimal"),
    "dates": (_words([datetime.date(2026, 1, 1)] * 3), r"object.*got date"),
}

SERIES = {
    "Int64": (pd.array([1, 2, 2**40], "Int64"), [1, 2, 2**40]),
    "Int64 with NA": (pd.array([1, None, 3], "Int64"), r"Int64.*missing.*fillna"),
    "Float64": (pd.array([1.5, 2, 3], "Float64"), [1.5, 2.0, 3.0]),
    "Float64 with NA": (
        pd.array([1.5, None, 3], "Float64"),
        r"Float64.*missing.*fillna",
    ),
    "boolean": (pd.array([True, False, True], "boolean"), [True, False, True]),
    "boolean with NA": (pd.array([True, None, True], "boolean"), r"boolean.*missing"),
    "string": (pd.array(["a", "b", "c"], "string"), [b"a", b"b", b"c"]),
    "string with NA": (pd.array(["a", None, "c"], "string"), [b"a", b"", b"c"]),
    "string, all NA": (pd.array([None] * 3, "string"), [b"", b"", b""]),
    "str with NaN": (["a", None, "c"], [b"a", b"", b"c"]),
    "category of text": (pd.Categorical(["a", "b", "a"]), [b"a", b"b", b"a"]),
    "category with NA": (pd.Categorical(["a", None, "a"]), [b"a", b"", b"a"]),
    "category of ints": (pd.Categorical([5, 6, 5]), [5, 6, 5]),
    "category of ints with NA": (pd.Categorical([5, None, 5]), r"category.*missing"),
    "datetime": (pd.to_datetime(["2026-01-01"] * 3), r"datetime64.*astype"),
    "datetime with a zone": (
        pd.to_datetime(["2026-01-01"] * 3).tz_localize("CET"),
        r"datetime64\[.*, CET\].*astype",
    ),
    "period": (pd.period_range("2026-01", periods=3, freq="M"), r"period.*Period"),
    "interval": (pd.interval_range(0, 3), r"interval.*Interval"),
    "arrow int": (pd.array([1, 2, 3], pd.ArrowDtype(pa.int32())), [1, 2, 3]),
    "arrow int with NA": (
        pd.array([1, None, 3], pd.ArrowDtype(pa.int32())),
        r"missing",
    ),
    "sparse int": (pd.arrays.SparseArray([0, 0, 3]), [0, 0, 3]),
    "objects": (_mixed(), r"object.*got int: 1"),
}


def _dictionary(values):
    return pa.array(values).dictionary_encode()


MS = 1_767_225_600_000  # 2026-01-01
ARROW = {
    "int64": (pa.array([1, 2, 2**40]), [1, 2, 2**40]),
    "int64 with null": (pa.array([1, None, 3]), r"int64.*missing.*fill_null"),
    "uint64": (pa.array([1, 2, 2**64 - 1], pa.uint64()), [1, 2, 2**64 - 1]),
    "halffloat": (pa.array(np.array([1.5, 2, 3], np.float16)), [1.5, 2.0, 3.0]),
    "double with null": (pa.array([1.5, None, 3]), r"double.*missing.*fill_null"),
    "bool": (pa.array([True, False, True]), [True, False, True]),
    "bool with null": (pa.array([True, None, True]), r"bool.*missing"),
    "string": (pa.array(["a", None, "c"]), [b"a", b"", b"c"]),
    "large_string": (pa.array(["a", "b", None], pa.large_string()), [b"a", b"b", b""]),
    "string_view": (
        pa.array(["a", None, "a string of many letters"], pa.string_view()),
        [b"a", b"", b"a string of many letters"],
    ),
    "binary": (pa.array([b"a", b"b", b"c"]), [b"a", b"b", b"c"]),
    "binary_view": (pa.array([b"a", b"b", None], pa.binary_view()), [b"a", b"b", b""]),
    "fixed binary": (pa.array([b"ab", b"cd", None], pa.binary(2)), [b"ab", b"cd", b""]),
    "dictionary of text": (_dictionary(["a", None, "a"]), [b"a", b"", b"a"]),
    "dictionary of ints": (_dictionary([5, 6, 5]), [5, 6, 5]),
    "dictionary of ints with null": (_dictionary([5, None, 5]), r"int64.*missing"),
    "decimal": (pa.array([decimal.Decimal("1.5")] * 3), [1.5, 1.5, 1.5]),
    "date": (pa.array([datetime.date(1970, 1, 2)] * 3), [1, 1, 1]),
    "timestamp": (pa.array([MS] * 3, pa.timestamp("ms", "UTC")), [MS] * 3),
    "time": (pa.array([datetime.time(0, 0, 1)] * 3), [1_000_000] * 3),
    "duration": (pa.array([5, 6, 7], pa.duration("s")), [5, 6, 7]),
    "timestamp with null": (pa.array([MS, None, MS], pa.timestamp("ms")), r"missing"),
    "null": (pa.nulls(3), r"type null"),
    "struct": (pa.array([{"x": 1}] * 3), r"type struct.*flatten"),
    "map": (pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())), r"type map"),
    "list": (pa.array([[1, 2], [], None]), {0: [1, 2], 1: [], 2: []}),
    "list of text": (
        pa.array([["a"], ["b", "c"], []]),
        {0: [b"a"], 1: [b"b", b"c"], 2: []},
    ),
    "large_list": (
        pa.array([[1], [2, 3], []], pa.large_list(pa.int64())),
        {0: [1], 1: [2, 3], 2: []},
    ),
    "list with null": (pa.array([[1, None], [2], [3]]), r"int64.*missing"),
    "fixed list": (pa.array([[1, 2]] * 3, pa.list_(pa.int64(), 2)), [[1, 2]] * 3),
    "fixed list with null": (
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        r"fixed_size_list.*missing",
    ),
    "list of structs": (pa.array([[{"x": 1}]] * 3), r"type struct"),
}


def _first(data):
    """The column of the only batch."""
    features, _ = next(as_batches(data))
    return features["c"]


def _request(value, expected):
    """As a bundle reads it that was exported with such values."""
    sample = expected[0] if isinstance(expected, dict | list) else 0
    is_sparse = isinstance(expected, dict)
    while isinstance(sample, list):
        sample = sample[0]
    dtype = {bytes: "string", int: "int64"}.get(type(sample), type(sample).__name__)
    if not isinstance(expected, str) and 2**64 - 1 in expected:
        dtype = "uint64"
    tail = np.shape(expected)[1:] if isinstance(expected, list) else ()
    shape = (None, None) if is_sparse else (None, *tail)
    kind = "sparse" if is_sparse else "dense"
    spec = TensorInfo(
        "c",
        dtype.replace("float", "float32").replace("complex", "complex128"),
        shape,
        kind,
    )
    origin = Origin("features", "c")
    return RequestReader([spec], [origin])({"c": value})[origin]


def _elements(value):
    def rows():
        for row in value:
            yield {"c": row}

    return Dataset.from_generator(rows).batch(3)


INTO_ARRAYS = {
    "constant": lambda v: _first({"c": v}),
    "generator": lambda v: _first(iter([{"c": v}])),
    "numpy_input_fn": lambda v: _first(numpy_input_fn({"c": v}, shuffle=False)()),
    "slices": lambda v: _first(Dataset.from_tensor_slices({"c": v}).batch(3)),
    "tensors": lambda v: _first(Dataset.from_tensors({"c": v})),
    "from_batches": lambda v: _first(Dataset.from_batches([{"c": v}])),
    "from_generator": lambda v: _first(_elements(v)),
    "map_blocks": lambda v: _first(
        Dataset.range(3).map_blocks(lambda _: {"c": v}).batch(3)
    ),
    "eager columns": lambda v: plans.flatten({"c": v}, None)[Origin("features", "c")],
}


def _frame(value):
    return pd.DataFrame({"c": value}, index=[7, 5, 3])


INTO_FRAMES = {
    "pandas_input_fn": lambda f: _first(pandas_input_fn(f, shuffle=False)()),
    "slices of a frame": lambda f: _first(Dataset.from_tensor_slices(f).batch(3)),
    "slices of a Series": lambda f: _first(
        Dataset.from_tensor_slices({"c": f["c"]}).batch(3)
    ),
    "constant frame": _first,
    "generator of frames": lambda f: _first(iter([f])),
    "from_batches of frames": lambda f: _first(Dataset.from_batches([f])),
    "from_table": lambda f: _first(Dataset.from_table(f).batch(3)),
    "eager columns": lambda f: plans.flatten(dict(f), None)[Origin("features", "c")],
}


class _OtherTable:
    """A table of another library (polars, say) that speaks Arrow's C protocol."""

    def __init__(self, table):
        self._table = table
        self.columns = table.column_names

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def _table(value):
    return pa.table({"c": value})


INTO_TABLES = {
    "slices of a table": lambda v: _first(
        Dataset.from_tensor_slices(_table(v)).batch(3)
    ),
    "slices of an array": lambda v: _first(
        Dataset.from_tensor_slices({"c": v}).batch(3)
    ),
    "slices of a chunked array": lambda v: _first(
        Dataset.from_tensor_slices({"c": pa.chunked_array([v[:1], v[1:]])}).batch(3)
    ),
    "constant table": lambda v: _first(_table(v)),
    "generator of record batches": lambda v: _first(iter(_table(v).to_batches())),
    "from_table": lambda v: _first(Dataset.from_table(_table(v)).batch(3)),
    "another library's": lambda v: _first(
        Dataset.from_tensor_slices(_OtherTable(_table(v))).batch(3)
    ),
}


def _listed(column):
    """The values of a column as Python's; rows of a sparse one by their number."""
    if isinstance(column, Sparse):
        rows = {i: [] for i in range(len(column))}
        for (row, *_), value in zip(
            column.indices.tolist(), _listed(column.values), strict=True
        ):
            rows[row].append(value)
        return rows
    if isinstance(column, Strings):
        return column.tolist()
    assert type(column) is np.ndarray
    assert column.dtype.isnative
    assert column.dtype.kind in "biufc" or column.dtype == ml_dtypes.bfloat16
    assert column.dtype.itemsize <= 8 or column.dtype.kind == "c"
    return ["nan" if value != value else value for value in column.tolist()]


def _check(enter, value, expected):
    if not isinstance(expected, str):
        found = _listed(enter(value))
        assert found == expected
        assert repr(found) == repr(expected)  # 1 is not 1.0, nor True
        return
    with pytest.raises(EstimaxError, match=r"(?s)" + expected) as caught:
        enter(value)
    assert "c" in str(caught.value).replace("column", "")


@pytest.mark.parametrize("enter", INTO_ARRAYS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays(kind, enter):
    _check(INTO_ARRAYS[enter], *ARRAYS[kind])


@pytest.mark.parametrize("enter", INTO_FRAMES)
@pytest.mark.parametrize("kind", SERIES)
def test_pandas(kind, enter):
    value, expected = SERIES[kind]
    _check(INTO_FRAMES[enter], _frame(value), expected)


@pytest.mark.parametrize("enter", INTO_TABLES)
@pytest.mark.parametrize("kind", ARROW)
def test_arrow(kind, enter):
    _check(INTO_TABLES[enter], *ARROW[kind])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(*pair, id=kind)
        for kind, pair in {**ARRAYS, **SERIES, **ARROW}.items()
    ],
)
def test_requests(value, expected):
    _check(lambda v: _request(v, expected), value, expected)


@pytest.mark.parametrize("kind", ARROW)
def test_parquet(kind, tmp_path):
    value, expected = ARROW[kind]
    path = tmp_path / "a.parquet"
    parquet.write_table(_table(value), path)
    _check(lambda _: _first(parquet_files(path).batch(3)), value, expected)


def test_two_columns_of_one_name_are_refused():
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InputError, match=r"column 'a' is there twice"):
        Dataset.from_tensor_slices(frame)
    with pytest.raises(InputError, match=r"column '1' is there twice"):
        pandas_input_fn(pd.DataFrame({1: [0], "1": [0]}), shuffle=False)()


def test_frames_with_any_index_give_rows_in_their_order():
    frame = pd.DataFrame({"x": [1.5, 2.5], "city": ["Oslo", None]}, index=["b", "a"])
    labels = pd.Series([1, 0], index=["b", "a"], dtype="Int64")
    batches = pandas_input_fn(frame, labels, shuffle=False)()
    features, found = next(iter(batches))
    assert features["x"].tolist() == [1.5, 2.5]
    assert features["city"].tolist() == [b"Oslo", b""]
    assert found.tolist() == [1, 0]
    assert found.dtype == np.int64


def test_missing_labels_of_a_frame_are_refused():
    frame = pd.DataFrame({"x": [1.5, 2.5]})
    labels = pd.Series([1, None], dtype="Int64")
    with pytest.raises(InputError, match=r"\[1\]: dtype Int64: 1 of 2 .*fillna"):
        pandas_input_fn(frame, labels, shuffle=False)()


def test_the_values_of_sparse_features_are_converted_too():
    given = Sparse(np.array([[0, 0]]), np.array([2**40], ">i8"), (1, 1))
    assert _first({"c": given}).values.dtype.isnative
    dates = Sparse(np.array([[0, 0]]), _days()[:1], (1, 1))
    with pytest.raises(InputError, match=r"'c'.*datetime64"):
        _first({"c": dates})


def test_csv_files_keep_integers_of_64_bits(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"c,t\n{2**40},{2**62}\n1,2\n")
    (batch,) = csv_files(path).batch(2)
    assert batch["c"].tolist() == [2**40, 1]
    assert batch["t"].tolist() == [2**62, 2]


def test_strings_of_arrow_numbers_are_refused():
    with pytest.raises(InputError, match="Arrow type int64"):
        Strings.of(pa.array([1, 2]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.longdouble])
def test_columns_take_floats_of_any_width(dtype):
    values = np.array([1.5, 2.5], dtype)
    number = fc.numeric_column("x")
    layer = fc.DenseFeatures([number, fc.bucketized_column(number, [2.0])])
    found = layer.apply({}, {"x": values}).tolist()
    assert found == [[1.5, 1.0, 0.0], [2.5, 0.0, 1.0]]


def test_a_numeric_column_of_complex_numbers_is_refused():
    layer = fc.DenseFeatures([fc.numeric_column("x")])
    with pytest.raises(FeatureError, match=r"'x' is complex64.*real numbers"):
        layer.apply({}, {"x": np.array([1 + 2j])})


def test_a_model_trains_on_a_frame_of_nullable_columns(tmp_path):
    frame = pd.DataFrame(
        {
            "user": pd.array([2**40, 2**41, 7, 8], "Int64"),
            "age": pd.array([31, 46, 5, 6], "Int8"),
            "city": pd.Categorical(["Oslo", None, "Rome", "Oslo"]),
            "member": pd.array([True, False, True, True], "boolean"),
        }
    )
    columns = [
        fc.categorical_column_with_hash_bucket("user", 10, dtype=np.int64),
        fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"]),
        fc.numeric_column("age"),
        fc.numeric_column("member"),
    ]
    model = ex.LinearClassifier(columns, tmp_path / "model")
    labels = pd.Series([0, 1, 1, 0], dtype="UInt8")
    model.train(pandas_input_fn(frame, labels, shuffle=False))
    found = [p["logits"] for p in model.predict(pandas_input_fn(frame, shuffle=False))]
    receiver = export.build_raw_serving_input_receiver_fn(dict(frame))
    bundle = export.load(model.export_saved_model(tmp_path / "export", receiver))
    for given in (frame, pa.Table.from_pandas(frame), dict(frame)):
        answer = bundle.predict(given, "predict")["logits"]
        np.testing.assert_allclose(answer, np.stack(found), rtol=1e-6)
