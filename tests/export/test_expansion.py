"""Files that decompress to far more than they hold are refused before they are read."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.export import TensorInfo
from estimax.export.scoring import tables
from estimax.export.scoring.tables import InputColumns, read_tables
from estimax.input.sources import json_reader


def _wanted(name):
    return InputColumns({name: TensorInfo(name, "float32", ())})


def _read(path):
    return list(read_tables(str(path), None, _wanted("x")))


def _write_bomb(path, rows):
    """An .npz file of zeros, written piece by piece."""
    head = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(head, header)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("x.npy", "w", force_zip64=True) as file,
    ):
        file.write(head.getvalue())
        for _ in range(rows * 4 // (1 << 20)):
            file.write(bytes(1 << 20))


def test_arrays_that_expand_a_hundredfold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_LARGE_ARRAY", 1 << 20)
    _write_bomb(tmp_path / "a.npz", rows=1 << 20)
    with pytest.raises(InputError, match=r"a\.npz.*'x' has .* save it without compres"):
        _read(tmp_path / "a.npz")


def test_compressed_arrays_of_a_usual_size_are_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(100_000, np.float32))
    assert sum(batch.rows for batch in _read(tmp_path / "a.npz")) == 100_000


def test_a_compressed_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_reader, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(json_reader, "LONGEST_ROW", 1 << 16)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"x": 1' + b" " * (1 << 20)))
    words = r"a\.jsonl\.gz, line 1 \(byte 0\): the line is longer than"
    with pytest.raises(InputError, match=words):
        _read(tmp_path / "a.jsonl.gz")


def test_a_stream_without_the_end_of_a_line_is_refused(monkeypatch):
    monkeypatch.setattr(json_reader, "LONGEST_ROW", 1 << 16)
    stream = io.BytesIO(b'{"x": 1}\n{"x": 1' + b" " * (1 << 20))
    lines = json_reader.lines_of_stream(stream, "standard input")
    assert next(lines) == (1, b'{"x": 1}\n')
    with pytest.raises(InputError, match=r"input, line 2 \(byte 9\): the line is long"):
        next(lines)
