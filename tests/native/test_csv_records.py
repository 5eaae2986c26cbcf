"""CSV records are decoded by compiled code as by the reference, and numbers exactly."""

from __future__ import annotations

import random

import numpy as np
import pytest

from estimax.core.strings import Strings
from estimax.input import decode_csv
from estimax.native import loading
from estimax.native.csv_records import RecordFormat
from estimax.native.reference.csv_records import RecordField, nearest

FIELDS = (
    RecordField(0, "int32", -1),
    RecordField(1, "string", b"none"),
    RecordField(3, "float32", 0.5),
    RecordField(4, "int64"),
)
FORM = RecordFormat(FIELDS, 5, na=b"NA")


def decoded(form: RecordFormat, records: list[str]) -> list | None:
    columns = form.decode(Strings.of(records))
    return None if columns is None else [column.tolist() for column in columns]


@pytest.fixture(params=["wait", "off"])
def native(request, monkeypatch):
    monkeypatch.setattr(loading, "setting", request.param)


@pytest.mark.usefixtures("native")
def test_quotes_defaults_and_blanks_are_read():
    records = ['7,"a ""b"", c",,1.5,-3', ",,x,NA, 12 ", ' -4 ,"NA",,"2e1",0']
    assert decoded(FORM, records) == [
        [7, -1, -4],
        [b'a "b", c', b"none", b"none"],
        [1.5, 0.5, 20.0],
        [-3, 12, 0],
    ]


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(
    "record",
    [
        "",
        "1,a,b,2",  # too few fields
        "1,a,b,2,3,4",
        '1,a"b,b,2,3',
        '1,"a"b,b,2,3',
        '1,"a,b,2,3',
        "1,a\n,b,2,3",
        "1,a,b,2,",  # a required value is missing
        "+1,a,b,2,3",
        "1.0,a,b,2,3",
        "2147483648,a,b,2,3",
        "1,a,b,nan,3",
        "1,a,b,1e,3",
        "1,a,b,.,3",
        "1,a,b,1e39,3",
        "1,a,b,2,9223372036854775808",
        " ,a,b,2,3",
    ],
)
def test_records_that_are_not_plain_are_left_to_the_caller(record):
    assert decoded(FORM, ["1,a,b,2,3", record]) is None


@pytest.mark.usefixtures("native")
def test_other_marks_and_no_quotes():
    fields = (RecordField(0, "string"), RecordField(1, "string"))
    form = RecordFormat(fields, 2, delimiter=b"|", quote=b"")
    assert decoded(form, ['"a,|b"']) == [[b'"a,'], [b'b"']]


def test_random_records_are_decoded_as_by_the_reference(monkeypatch):
    rng = random.Random(5)
    pieces = ['"', ",", "1", "-", ".", "e", " ", "a", "NA", '""', "12", "\n", "0.1"]
    plain = 0
    for _ in range(3000):
        record = "".join(rng.choices(pieces, k=rng.randint(0, 9)))
        fields = (RecordField(0, "float32", 0.0), RecordField(1, "string", b"-"))
        form = RecordFormat(fields, 2, na=b"NA")
        found = decoded(form, [record])
        monkeypatch.setattr(loading, "setting", "off")
        assert found == decoded(form, [record]), record
        monkeypatch.setattr(loading, "setting", "wait")
        plain += found is not None
    assert plain > 100


def numbers(n: int) -> list[str]:
    rng = random.Random(0)
    made = []
    for i in range(n):
        single = np.float32(rng.gauss(0, 100))
        middle = (float(single) + float(np.nextafter(single, np.float32(9e9)))) / 2
        made += [
            repr(rng.gauss(0, 1) * 10 ** rng.randint(-8, 8)),
            f"{rng.gauss(0, 1):.3f}",
            f"{middle:.40f}"[: 10 + i % 40],
            f"{rng.randint(-(10**18), 10**18)}.{rng.randint(0, 10**9)}",
            f"{rng.randint(0, 999)}e{rng.randint(-30, 30)}",
        ]
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_rounded_to_the_nearest(dtype):
    pyarrow = pytest.importorskip("pyarrow")
    texts = numbers(2000)
    kind = pyarrow.from_numpy_dtype(np.dtype(dtype))
    expected = pyarrow.array(texts).cast(kind).to_numpy()
    (found,) = RecordFormat((RecordField(0, dtype),), 1).decode(Strings.of(texts))
    np.testing.assert_array_equal(found, expected)
    slow = [nearest(text.encode(), dtype) for text in texts[:500]]
    np.testing.assert_array_equal(np.array(slow, dtype), expected[:500])


def test_a_format_with_impossible_fields_is_refused():
    with pytest.raises(ValueError, match="must ascend"):
        RecordFormat((RecordField(2, "int32"),), 2)
    with pytest.raises(ValueError, match="dtypes"):
        RecordFormat((RecordField(0, "bool"),), 1)
    with pytest.raises(ValueError, match="one byte"):
        RecordFormat((), 1, delimiter=b"ab")


def test_decode_csv_tells_defaults_apart_by_their_type():
    assert decode_csv(["5"], [0])[0].dtype == np.int32
    assert decode_csv(["5"], [0.0])[0].dtype == np.float32
    assert decode_csv(["5"], [[0]])[0].dtype == np.int32
    assert decode_csv(["5"], [np.float64])[0].dtype == np.float64
    assert decode_csv(["5"], [b""])[0].tolist() == [b"5"]
