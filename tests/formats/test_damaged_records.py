"""Cut, joined and hostile TFRecord files: an error or a warning, little memory."""

import gzip
import logging
import struct
import subprocess
import sys
import zlib

import pytest

from estimax.formats.records import (
    RecordError,
    RecordReader,
    read_records,
    write_records,
)
from estimax.native import checksum

RECORDS = [b"one", b"two", b"three"]
WRITTEN = sum(16 + len(record) for record in RECORDS)
PACKERS = {
    None: bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}


def framed(path):
    write_records(path, RECORDS)
    return path.read_bytes()


def header(length):
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", checksum.masked_crc32c(packed))


@pytest.mark.parametrize("left", range(1, 12))
@pytest.mark.parametrize("compression", PACKERS)
def test_a_cut_header_ends_the_file_with_a_warning(tmp_path, caplog, compression, left):
    """TensorFlow reads it as a clean end, so it is no error; but it is told."""
    path = tmp_path / "a"
    data = framed(path) + header(5)[:left]
    path.write_bytes(PACKERS[compression](data))
    with caplog.at_level(logging.WARNING, "estimax"):
        assert read_records(path, compression).tolist() == RECORDS
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"{path}, record 3 (byte {WRITTEN})" in told
    assert f"{left} bytes" in told
    assert "3 records" in told


def test_a_file_of_whole_records_gives_no_warning(tmp_path, caplog):
    framed(tmp_path / "a")
    with caplog.at_level(logging.WARNING, "estimax"):
        read_records(tmp_path / "a")
    assert not caplog.records


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_members_in_a_row_are_one_file(tmp_path, compression):
    path = tmp_path / "a"
    packed = PACKERS[compression](framed(path))
    path.write_bytes(packed + packed)
    assert read_records(path, compression).tolist() == RECORDS * 2


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("cut", [1, 5, 9])
def test_a_cut_member_is_an_error_that_says_where(tmp_path, compression, cut):
    path = tmp_path / "a"
    packed = PACKERS[compression](framed(path))
    path.write_bytes(packed + packed[:-cut])
    with pytest.raises(RecordError, match="cut off") as caught:
        read_records(path, compression)
    assert str(path) in str(caught.value)
    assert f"byte {len(packed) * 2 - cut} of the file" in str(caught.value)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_bytes_behind_the_last_member_are_an_error_that_says_where(
    tmp_path, compression
):
    path = tmp_path / "a"
    packed = PACKERS[compression](framed(path))
    path.write_bytes(packed + b"not compressed")
    with RecordReader(path, compression) as reader:
        assert reader.read_block().records.tolist() == RECORDS
        with pytest.raises(RecordError, match=f"byte {len(packed)} of the file"):
            reader.read_block()


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_an_empty_compressed_file_has_no_records(tmp_path, compression):
    (tmp_path / "a").write_bytes(b"")
    assert read_records(tmp_path / "a", compression).tolist() == []


READ = """
import resource, sys
from estimax.core.errors import InputError
from estimax.formats.records import RecordReader, write_records
path, compression = sys.argv[1], sys.argv[2] or None
write_records(path + ".small", [b"one"], compression)
with RecordReader(path + ".small", compression) as reader:
    reader.read_block()  # compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with RecordReader(path, compression) as reader:
        while reader.read_block() is not None:
            pass
except InputError as error:
    print(error)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) // 1024)
"""


def read_in_a_process(path, compression):
    """What reading a file said, and how many megabytes it took."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), compression or ""],
        capture_output=True,
        text=True,
        check=True,
    )
    *words, grown = done.stdout.splitlines()
    return " ".join(words), int(grown)


def test_a_compressed_record_of_a_gigabyte_takes_little_memory(tmp_path):
    path = tmp_path / "a"
    with gzip.open(path, "wb", 1) as file:
        file.write(header(1 << 30))
        for _ in range(1 << 10):
            file.write(bytes(1 << 20))
    said, grown = read_in_a_process(path, "GZIP")
    assert f"{path}, record 0 (byte 0)" in said
    assert "1073741824 bytes" in said
    assert grown < 600


def test_a_compressed_header_that_promises_more_than_comes_takes_little_memory(
    tmp_path,
):
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(header(200 << 20) + b"only this"))
    said, grown = read_in_a_process(path, "GZIP")
    assert "expected 209715200 bytes of data, found 9" in said
    assert grown < 100


def test_a_plain_header_that_promises_more_than_the_file_has_takes_little_memory(
    tmp_path,
):
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(header(1 << 40))
        file.truncate(1 << 29)  # sparse: it takes no room on the disk
    said, grown = read_in_a_process(path, None)
    assert f"{path}, record 0 (byte 0)" in said
    assert "expected 1099511627776 bytes of data, found 536870900" in said
    assert grown < 100


def test_a_record_larger_than_a_block_is_read(tmp_path):
    records = [b"a", b"b" * (5 << 20), b"c"]
    for compression in (None, "GZIP"):
        write_records(tmp_path / "a", records, compression)
        assert read_records(tmp_path / "a", compression).tolist() == records


def read_to_the_end(reader):
    while reader.read_block() is not None:
        pass


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "a"
    write_records(path, [bytes(100)] * 1000)
    with RecordReader(path, block_bytes=116 * 10) as reader:
        reader.read_block()
        with path.open("r+b") as file:
            file.truncate(116 * 500)  # between two records
        with pytest.raises(RecordError, match=r"had 116000 bytes .* has 58000") as said:
            read_to_the_end(reader)
    assert str(path) in str(said.value)
