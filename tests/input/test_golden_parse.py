"""Reading, framing, encoding and parsing agree with TensorFlow, case by case."""

import base64
import contextlib
import math

import numpy as np
import pytest
from golden_files import golden_path, load_golden

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.formats.records import RecordError, iter_record_blocks, read_records
from estimax.input.examples import messages, parsing, sequences, specs
from estimax.input.streams.columns import Ragged
from estimax.native import checksum
from estimax.native.kernels.records import frame

pytestmark = [pytest.mark.golden, pytest.mark.usefixtures("native")]
GOLDEN = load_golden("parse_example.json")
APIS = {
    "parse_example": parsing.parse_example,
    "parse_single_example": parsing.parse_single_example,
    "parse_sequence_example": sequences.parse_sequence_example,
    "parse_single_sequence_example": sequences.parse_single_sequence_example,
}


def _by_name(section):
    return pytest.mark.parametrize(
        "case", GOLDEN[section], ids=[case["name"] for case in GOLDEN[section]]
    )


@_by_name("read")
@pytest.mark.parametrize("block_bytes", [16, 300, 4 << 20])
def test_as_many_records_are_read_as_tensorflow_reads(case, block_bytes):
    records = 0
    blocks = iter_record_blocks(
        golden_path(case["file"]), case["compression"], block_bytes=block_bytes
    )
    ends_well = contextlib.nullcontext()
    failure = pytest.raises(RecordError, match=f"record {case['records']} ")
    with failure if case["then"] == "error" else ends_well:
        for block in blocks:
            records += len(block)
    assert records == case["records"]


@pytest.mark.parametrize("name", GOLDEN["files"])
def test_records_hold_what_tensorflow_wrote(name):
    file = GOLDEN["files"][name]
    expected = GOLDEN["files"][file.get("same_records_as", name)]
    records = read_records(golden_path(name), file["compression"])
    assert len(records) == file["num_records"]
    if "serialized_b64" in file:
        decoded = [base64.b64decode(text) for text in file["serialized_b64"]]
        assert records.tolist() == decoded
    compared = 0
    for record, contents in zip(records, expected["records"], strict=True):
        found = messages.SequenceExample.parse(record)
        context = contents.get("features", contents.get("context"))
        _compare_features(found.context, context)
        lists = contents.get("feature_lists", {})
        assert found.feature_lists.keys() == lists.keys()
        for key, steps in lists.items():
            assert len(found.feature_lists[key]) == len(steps)
            for step, wanted in zip(found.feature_lists[key], steps, strict=True):
                _compare_features({"": step}, {"": wanted})
        compared += 1
    assert compared == file["num_records"]


@_by_name("framing")
def test_frames_and_checksums_are_tensorflows(case):
    data = base64.b64decode(case["data_b64"])
    length = len(data).to_bytes(8, "little")
    assert checksum.crc32c(length) == case["crc32c_of_length"]
    assert checksum.crc32c(data) == case["crc32c_of_data"]
    assert checksum.masked_crc32c(length) == case["masked_crc_of_length"]
    assert checksum.masked_crc32c(data) == case["masked_crc_of_data"]
    out = np.empty(len(data) + 16, np.uint8)
    records = Strings.of([data])
    frame(records.data, records.offsets, out)
    assert out.tobytes() == base64.b64decode(case["record_b64"])


@_by_name("encode")
def test_examples_are_written_as_tensorflow_writes_them(case):
    features = {
        key: messages.Feature(value["kind"], _typed(value["values"], _dtype(value)))
        for key, value in case["features"].items()
    }
    written = messages.Example(features).serialize()
    assert written == base64.b64decode(case["b64"])


@_by_name("parse")
def test_parsing_gives_what_tensorflow_gives(case):
    file = GOLDEN["files"][case["file"]]
    records = read_records(golden_path(case["file"]), file["compression"])
    serialized = [records[i] for i in case["records"]]
    if "single" in case["api"]:
        (serialized,) = serialized
    if "tf_exception" in case:
        with pytest.raises(InputError):
            APIS[case["api"]](serialized, **_described(case))
        return
    found = APIS[case["api"]](serialized, **_described(case))
    expected = case["expected"]
    if "sequence" not in case["api"]:
        _compare(found, expected)
        return
    _compare(found[0], expected["context"])
    _compare(found[1], expected["sequence"])
    if "lengths" in expected:
        assert found[2].keys() == expected["lengths"].keys()
        for key, wanted in expected["lengths"].items():
            assert found[2][key].tolist() == wanted["values"]


def test_every_case_is_compared():
    # Counted as they are run again: what is only collected proves nothing.
    checks = {
        "read": lambda case: test_as_many_records_are_read_as_tensorflow_reads(
            case, 64
        ),
        "files": test_records_hold_what_tensorflow_wrote,
        "framing": test_frames_and_checksums_are_tensorflows,
        "encode": test_examples_are_written_as_tensorflow_writes_them,
        "parse": test_parsing_gives_what_tensorflow_gives,
    }
    assert GOLDEN.keys() == {"meta", *checks}
    compared = dict.fromkeys(checks, 0)
    for section, check in checks.items():
        for case in GOLDEN[section]:
            check(case)
            compared[section] += 1
    assert compared == {section: len(GOLDEN[section]) for section in checks}
    assert sum(compared.values()) >= 93  # as many as TensorFlow 2.15.1's file has


def _described(case):
    names = ("features", "context_features", "sequence_features")
    return {
        name: {key: _feature(one) for key, one in case[name].items()}
        if case[name] is not None
        else None
        for name in names
        if name in case
    }


def _feature(description):
    arguments = dict(description)
    kind = getattr(specs, arguments.pop("type"))
    if "default_value" in arguments:
        arguments["default_value"] = _value(arguments["default_value"])
    if "partitions" in arguments:
        arguments["partitions"] = [
            getattr(specs, name)(value)
            for partition in arguments["partitions"]
            for name, value in partition.items()
        ]
    return kind(**arguments)


def _value(value):
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    if isinstance(value, list):
        return [_value(one) for one in value]
    if isinstance(value, str):
        special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        return special.get(value, value.encode())
    return value


def _typed(values, dtype):
    """Golden values, where text that says NaN is text in columns of text."""
    if isinstance(values, list):
        return [_typed(value, dtype) for value in values]
    if dtype == "string" and isinstance(values, str):
        return values.encode()
    return _value(values)


def _dtype(feature):
    return "string" if feature["kind"] == "bytes_list" else "float32"


def _compare_features(found, expected):
    assert found.keys() == expected.keys()
    for key, wanted in expected.items():
        assert found[key].kind == wanted["kind"]
        values = _typed(wanted["values"], _dtype(wanted))
        if wanted["kind"] == "float_list":
            _compare_values(np.array(found[key].values, np.float32), values, "float32")
        else:
            assert list(found[key].values) == values


def _compare(found, expected):
    assert found.keys() == expected.keys()
    for key, wanted in expected.items():
        _compare_column(found[key], wanted)


def _compare_column(found, wanted):
    dtype, values = wanted["dtype"], _typed(wanted["values"], wanted["dtype"])
    if wanted["kind"] == "sparse":
        assert isinstance(found, Sparse)
        assert found.indices.tolist() == wanted["indices"]
        assert list(found.dense_shape) == wanted["dense_shape"]
        _compare_values(found.values, values, dtype)
    elif wanted["kind"] == "ragged":
        assert isinstance(found, Ragged)
        assert found.ragged_rank == wanted["ragged_rank"]
        assert all(splits.dtype == np.int32 for splits in found.row_splits)
        _compare_nested(found.tolist(), values)
    else:
        if "shape" in wanted and not isinstance(found, bytes):
            assert list(found.shape) == wanted["shape"]
        _compare_values(found, values, dtype)


def _compare_values(found, values, dtype):
    if dtype == "string":
        assert np.asarray(found, object).tolist() == values
        return
    found = np.asarray(found)
    assert found.dtype == dtype
    wanted = np.array(values, dtype).reshape(found.shape)
    if dtype == "int64":
        assert found.tolist() == wanted.tolist()
    else:
        assert found.view(np.uint32).tolist() == wanted.view(np.uint32).tolist()


def _compare_nested(found, values):
    assert isinstance(found, list) == isinstance(values, list)
    if isinstance(found, list):
        assert len(found) == len(values)
        for one, other in zip(found, values, strict=True):
            _compare_nested(one, other)
    else:
        assert found == pytest.approx(values)
