"""Bytes: files written whole or not at all, TFRecord framing."""

from estimax.wire import atomic
from estimax.wire.records import (
    RecordBlock,
    RecordError,
    RecordReader,
    TFRecordOptions,
    TFRecordWriter,
    find_record,
    iter_record_blocks,
    read_records,
    write_records,
)

__all__ = [
    "RecordBlock",
    "RecordError",
    "RecordReader",
    "TFRecordOptions",
    "TFRecordWriter",
    "atomic",
    "find_record",
    "iter_record_blocks",
    "read_records",
    "write_records",
]
