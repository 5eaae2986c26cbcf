"""TFRecord files: what is written is read again, from any record on."""

import gzip
import os
import sys
import zlib

import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.formats.records import (
    RecordError,
    RecordReader,
    TFRecordOptions,
    TFRecordWriter,
    iter_record_blocks,
    read_records,
    write_records,
)

RECORDS = [b"", b"a", b"longer " * 50, bytes(range(256)), b"end"]
COMPRESSIONS = [None, "", "GZIP", "ZLIB"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("block_bytes", [1, 64, 1 << 20])
def test_records_are_read_as_they_were_written(tmp_path, compression, block_bytes):
    path = tmp_path / "a"
    write_records(path, RECORDS, compression)
    blocks = iter_record_blocks(path, compression, block_bytes=block_bytes)
    assert [r for block in blocks for r in block.records.tolist()] == RECORDS


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_writer_writes_one_by_one_and_many_at_once(tmp_path, compression):
    path = tmp_path / "a"
    with TFRecordWriter(str(path), compression) as writer:
        writer.write(b"one")
        writer.write_all(Strings.of([b"two", b"three"])[1:])
        writer.write(b"four")
    assert read_records(path, compression).tolist() == [b"one", b"three", b"four"]


def test_flushed_records_are_readable_before_the_writer_closes(tmp_path):
    path = tmp_path / "a"
    with TFRecordWriter(path, TFRecordOptions("GZIP", compression_level=1)) as writer:
        writer.write(b"one")
        writer.flush()
        with RecordReader(path, "GZIP") as reader:
            assert reader.read_block().records.tolist() == [b"one"]
    assert read_records(path, "GZIP").tolist() == [b"one"]


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_reading_starts_at_any_record(tmp_path, compression):
    path = tmp_path / "a"
    write_records(path, RECORDS, compression)
    (block,) = iter_record_blocks(path, compression)
    for i, offset in enumerate(block.offsets[:-1].tolist()):
        (rest,) = iter_record_blocks(path, compression, offset, start_record=i)
        assert rest.records.tolist() == RECORDS[i:]
        assert (rest.start, rest.first, rest.end) == (offset, i, block.end)


def test_positions_count_on_from_block_to_block(tmp_path):
    path = tmp_path / "a"
    write_records(path, RECORDS)
    with RecordReader(path, block_bytes=64) as reader:
        while (block := reader.read_block()) is not None:
            assert reader.position == (block.end, block.first + len(block))
    assert reader.position == (os.path.getsize(path), len(RECORDS))


def test_a_block_says_where_its_records_come_from(tmp_path):
    path = tmp_path / "a"
    write_records(path, RECORDS)
    (block,) = iter_record_blocks(path)
    assert block.name(2) == f"{path}, record 2 (byte 33)"


def test_joined_files_read_as_one(tmp_path):
    for name, pack in {"gz": gzip.compress, "zlib": zlib.compress}.items():
        plain, packed = tmp_path / "plain", tmp_path / name
        write_records(plain, [b"a", b"b"])
        packed.write_bytes(pack(plain.read_bytes()) * 2)
        kind = "GZIP" if name == "gz" else "ZLIB"
        assert read_records(packed, kind).tolist() == [b"a", b"b"] * 2


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_records_before_damage_in_compressed_data_are_delivered(tmp_path, compression):
    path = tmp_path / "a"
    with TFRecordWriter(path, compression) as writer:
        for i in range(50):
            writer.write(os.urandom(100))
            if i == 25:
                writer.flush()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    found = []
    with pytest.raises(RecordError, match="cut off"):
        found.extend(block.records for block in iter_record_blocks(path, compression))
    found = [record for records in found for record in records.tolist()]
    assert 25 < len(found) < 50


@pytest.mark.parametrize("bad", range(8))
def test_records_before_a_damaged_one_are_delivered(tmp_path, bad):
    path = tmp_path / "a"
    records = [bytes([i]) * (5 + 9 * i) for i in range(8)]
    write_records(path, records)
    data = bytearray(path.read_bytes())
    start = sum(16 + len(record) for record in records[:bad])
    data[start + 12 + 4] ^= 1
    path.write_bytes(data)
    with RecordReader(path) as reader:
        delivered = reader.read_block().records.tolist() if bad else []
        with pytest.raises(RecordError, match=f"record {bad} .byte {start}.") as found:
            reader.read_block()
    assert delivered == records[:bad]
    assert (found.value.record, found.value.offset) == (bad, start)


def test_a_lying_length_asks_for_no_memory(tmp_path):
    path = tmp_path / "a"
    write_records(path, RECORDS)
    data = bytearray(path.read_bytes())
    data[0:8] = (1 << 50).to_bytes(8, "little")
    path.write_bytes(data)
    with (
        RecordReader(path, check=False) as reader,
        pytest.raises(RecordError, match="cut off"),
    ):
        reader.read_block()


def test_an_error_repeats_rather_than_ending_quietly(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 40)
    with RecordReader(path) as reader:
        for _ in range(2):
            with pytest.raises(RecordError, match=r"record 0 \(byte 0\).*compressed"):
                reader.read_block()


def test_a_failed_whole_write_changes_nothing(tmp_path):
    path = tmp_path / "a"
    write_records(path, [b"old"])
    with pytest.raises(InputError, match="expected str or bytes"):
        write_records(path, [b"new", 3])
    assert read_records(path).tolist() == [b"old"]
    assert os.listdir(tmp_path) == ["a"]


def test_urls_are_opened_through_fsspec(tmp_path):
    pytest.importorskip("fsspec")
    url = f"file://{tmp_path}/a"
    with TFRecordWriter(url, "GZIP") as writer:
        writer.write_all(RECORDS)
    assert read_records(url, "GZIP").tolist() == RECORDS
    with pytest.raises(InputError, match="cannot be read"):
        read_records(url + "-missing")


def test_urls_are_opened_through_pyarrow_where_fsspec_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    url = f"file://{tmp_path}/a"
    with TFRecordWriter(url) as writer:
        writer.write_all(RECORDS)
    assert read_records(url).tolist() == RECORDS
    (rest,) = iter_record_blocks(url, None, 16, start_record=1)
    assert rest.records.tolist() == RECORDS[1:]


def test_wrong_options_and_records_are_refused(tmp_path):
    with pytest.raises(InputError, match="'BZIP2'"):
        TFRecordOptions("BZIP2")
    with pytest.raises(InputError, match="missing: cannot be read"):
        read_records(tmp_path / "missing")
    with (
        TFRecordWriter(tmp_path / "a") as writer,
        pytest.raises(InputError, match="must be bytes, got str"),
    ):
        writer.write("text")
    with pytest.raises(InputError, match="closed"):
        writer.write(b"late")


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("block_bytes", [1, 100, 1000, 1 << 20])
@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_as_many_records_as_are_wanted_come_at_once(
    tmp_path, compression, block_bytes, rows
):
    path = tmp_path / "a.tfrecord"
    records = [bytes([i % 251]) * (i * 37 % 90) for i in range(300)]
    write_records(path, records, compression)
    found, sizes = [], []
    with RecordReader(path, compression, block_bytes=block_bytes) as reader:
        while (block := reader.read_block(rows)) is not None:
            assert block.start == sum(len(r) + 16 for r in found)
            assert block.first == len(found)
            found += block.records.tolist()
            sizes.append(len(block))
        assert reader.position == (path_size(records), 300)
    assert found == records
    assert max(sizes) <= rows
    if block_bytes == 1 << 20:  # all fit the buffer
        assert sizes == [rows] * (300 // rows) + [300 % rows] * (300 % rows > 0)


def path_size(records):
    return sum(len(record) + 16 for record in records)


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_records_before_the_damage_come_first_however_many_are_wanted(
    tmp_path, rows, damage
):
    path = tmp_path / "a.tfrecord"
    write_records(path, [bytes([65 + i]) * 20 for i in range(10)])
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[7 * 36 + 20] ^= 1
    else:
        del data[7 * 36 + 20 :]
    path.write_bytes(data)
    found = []

    def read_all(reader):
        while (block := reader.read_block(rows)) is not None:
            found.extend(block.records.tolist())

    with RecordReader(path) as reader:
        with pytest.raises(RecordError, match="record 7") as caught:
            read_all(reader)
        assert (caught.value.record, caught.value.offset) == (7, 7 * 36)
    assert found == [bytes([65 + i]) * 20 for i in range(7)]
