"""Bytes on disk: TFRecord files, atomic writes, locks, tensors, JSON, messages.

Read `records.py` for TFRecords and `atomic.py` for how files are replaced.
"""

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
