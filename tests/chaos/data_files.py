"""Attacks on input files: caches, TFRecords, CSV and Parquet."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chaos import mutations
from chaos.attack import AttackFailedError, FileAttack, Outcome, shortened
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.formats.records import write_records
from estimax.input import (
    Dataset,
    TFRecordDataset,
    csv_files,
    parquet_files,
)
from estimax.native import checksum

ROWS = 60
HEADER_BYTES = 12
WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


class Caches(FileAttack):
    """Damages the files that `Dataset.cache(path)` wrote."""

    tries = 400

    def make(self, folder: Path) -> None:
        plain_rows(_cached(folder))

    def damage(self, folder: Path, draw: random.Random) -> str:
        paths = mutations.files_of(folder)
        path, other = draw.choice(paths), draw.choice(paths)
        if draw.random() < 0.1:
            return mutations.break_file(path, draw)
        if draw.random() < 0.05 and path != other:
            return mutations.swap(path, other)
        return mutations.mutate_file(path, draw, other)

    def read(self, folder: Path) -> Any:
        return plain_rows(_cached(folder))


class ForgedCaches(Caches):
    """Forges the index of a cache, with a valid checksum."""

    def damage(self, folder: Path, draw: random.Random) -> str:
        path = folder / "rows.index"
        content = json.loads(path.read_text().splitlines()[0])
        done = []
        for _ in range(draw.choice([1, 1, 2, 4])):
            if mutations.is_deep(content):
                break
            content, what = mutations.mutated_json(content, draw)
            done.append(what)
        text = mutations.json_text(content).replace("\n", "")
        path.write_bytes(_sealed(text.encode()))
        return ", ".join(done)

    def judge(self, found: Any) -> Outcome:
        return Outcome.HARMLESS if found == self.expected else Outcome.CHANGED


def _sealed(text: bytes) -> bytes:
    """Return the text of an index with its checksum."""
    return b"%b\ncrc32c %08x\n" % (text, checksum.crc32c(text))


class Records(FileAttack):
    """Damages TFRecords, plain and compressed: only written records may be read."""

    tries = 800

    def make(self, folder: Path) -> None:
        draw = random.Random(1)
        records = [draw.randbytes(draw.choice([0, 3, 40, 300])) for _ in range(30)]
        for kind in ("", "GZIP", "ZLIB"):
            write_records(folder / f"records{kind}", records, kind)
        self.records = records
        plain = (folder / "records").read_bytes()
        self.frames = _frames_of(plain, records)

    def prepare(self, folder: Path) -> None:
        self.kind = ""
        super().prepare(folder)

    def damage(self, folder: Path, draw: random.Random) -> str:
        self.kind = draw.choice(["", "GZIP", "ZLIB"])
        path = folder / f"records{self.kind}"
        if self.kind and draw.random() < 0.3:
            # Damaged records in a valid compressed file.
            data, what = mutations.mutated_bytes(
                draw, (folder / "records").read_bytes(), b"other"
            )
            packer = zlib.compressobj(6, wbits=WINDOW_BITS[self.kind])
            path.write_bytes(packer.compress(data) + packer.flush())
            return f"{path.name}, before compression: {what}"
        if draw.random() < 0.03:
            return mutations.break_file(path, draw)
        return mutations.mutate_file(path, draw, folder / "records")

    def read(self, folder: Path) -> list[bytes]:
        data = TFRecordDataset(folder / f"records{self.kind}", self.kind)
        kept = set(data.ignore_errors())
        if not kept <= set(self.records):
            raise AttackFailedError(f"rows that were never written: {shortened(kept)}")
        return list(data)

    def judge(self, found: list[bytes]) -> Outcome:
        if found == self.records:
            return Outcome.HARMLESS
        path = self.copy / f"records{self.kind}"
        if found == _rows_left(path.read_bytes(), self.kind, self.frames):
            return Outcome.CHANGED  # whole records are missing, which is not detectable
        raise AttackFailedError(
            f"{len(found)} rows that the damaged file does not hold"
        )


class CsvFiles(FileAttack):
    """Damages a CSV file, which has no checksum."""

    tries = 300

    def make(self, folder: Path) -> None:
        draw = random.Random(2)
        lines = ["number,real,text"]
        for i in range(ROWS):
            text = draw.choice(["plain", '"a, b"', '"two\nlines"', "", '"a ""q"""'])
            lines.append(f"{i - 5},{draw.random()},{text}")
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")

    def damage(self, folder: Path, draw: random.Random) -> str:
        path = folder / "rows.csv"
        if draw.random() < 0.05:
            return mutations.break_file(path, draw)
        self.block_bytes = draw.choice([64, 1000, 1 << 20])
        return mutations.mutate_file(path, draw)

    block_bytes = 1 << 20

    def read(self, folder: Path) -> Any:
        dtypes = {"number": "int64", "real": "float64", "text": "string"}
        data = csv_files(
            folder / "rows.csv", dtypes=dtypes, block_bytes=self.block_bytes
        )
        return plain_rows(data.batch(7))

    def judge(self, found: Any) -> Outcome:
        return Outcome.HARMLESS if found == self.expected else Outcome.CHANGED


class ParquetFiles(FileAttack):
    """Damages a Parquet file, most of which has no checksum."""

    tries = 300

    def make(self, folder: Path) -> None:
        draw = np.random.default_rng(3)
        table = pa.table(
            {
                "number": pa.array(draw.integers(0, 99, ROWS)),
                "real": pa.array(draw.random(ROWS)),
                "text": pa.array([f"text {i % 7}" for i in range(ROWS)]),
                "many": pa.array(
                    [list(range(i % 4)) for i in range(ROWS)], pa.list_(pa.int64())
                ),
            }
        )
        codec = {"number": "NONE", "real": "SNAPPY", "text": "ZSTD", "many": "GZIP"}
        columns = {**codec, "many.list.element": "GZIP"}
        pq.write_table(
            table, folder / "rows.parquet", row_group_size=25, compression=columns
        )

    def damage(self, folder: Path, draw: random.Random) -> str:
        path = folder / "rows.parquet"
        if draw.random() < 0.05:
            return mutations.break_file(path, draw)
        return mutations.mutate_file(path, draw)

    def read(self, folder: Path) -> Any:
        return plain_rows(parquet_files(folder / "rows.parquet").batch(7))

    def judge(self, found: Any) -> Outcome:
        return Outcome.HARMLESS if found == self.expected else Outcome.CHANGED


def plain_rows(data: Any) -> list[Any]:
    """Return the elements of a dataset as values that compare with ==."""
    return [_plain(element) for element in data]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Sparse):
        shape = tuple(map(int, value.dense_shape))
        return _plain(np.asarray(value.indices)), _plain(value.values), shape
    if isinstance(value, Strings):
        return value.shape, value.tolist()
    if isinstance(value, bytes | str):
        return value
    array = np.asarray(value)
    if array.dtype == object:
        return array.shape, array.tolist()
    return str(array.dtype), array.shape, array.tobytes()


def _cached(folder: Path) -> Dataset:
    draw = np.random.default_rng(4)
    columns = {
        "number": draw.integers(0, 99, ROWS),
        "real": draw.random((ROWS, 3), np.float32),
        "text": np.array([f"text {i % 7}" for i in range(ROWS)], object),
    }
    data = Dataset.from_tensor_slices((columns, draw.random(ROWS)))
    return data.shuffle(ROWS, seed=5).cache(str(folder / "rows")).batch(7)


def _frames_of(plain: bytes, records: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the record of every frame, by the bytes of the frame."""
    frames, at = {}, 0
    for record in records:
        size = HEADER_BYTES + len(record) + 4
        frames[plain[at : at + size]] = record
        at += size
    return frames


def _rows_left(
    data: bytes, kind: str, frames: dict[bytes, bytes]
) -> list[bytes] | None:
    """Return the records of a file of whole frames; None if it has anything else.

    Fewer bytes at the end than a header are ignored, as in TensorFlow.
    """
    if kind:
        try:
            data = _decompressed(data, WINDOW_BITS[kind])
        except zlib.error:
            return None
    rows, at = [], 0
    while len(data) - at >= HEADER_BYTES:
        frame = next((f for f in frames if data.startswith(f, at)), None)
        if frame is None:
            return None
        rows.append(frames[frame])
        at += len(frame)
    return rows


def _decompressed(data: bytes, window_bits: int) -> bytes:
    parts = []
    while data:
        member = zlib.decompressobj(window_bits)
        parts.append(member.decompress(data))
        if not member.eof:
            raise zlib.error("cut off")
        data = member.unused_data
    return b"".join(parts)
