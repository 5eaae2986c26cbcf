"""The names of `tf.python_io`, for programs that write and read TFRecord files.

    with ex.input.python_io.TFRecordWriter(path) as writer:
        writer.write(example.SerializeToString())
    for record in ex.input.python_io.tf_record_iterator(path): ...

New programs use `ex.input.TFRecordWriter` and `ex.input.TFRecordDataset`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from estimax.formats.records import TFRecordOptions, TFRecordWriter
from estimax.input.readers import TFRecordDataset

__all__ = [
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "tf_record_iterator",
]


class TFRecordCompressionType:
    """The compressions that `TFRecordOptions` takes.

    Example:
      >>> TFRecordOptions(TFRecordCompressionType.GZIP).compression_type
      'GZIP'
    """

    NONE = ""
    GZIP = "GZIP"
    ZLIB = "ZLIB"


def tf_record_iterator(
    path: str | os.PathLike[str], options: TFRecordOptions | None = None
) -> Iterator[bytes]:
    """Yield the records of a TFRecord file.

    Use it to port programs. `ex.input.TFRecordDataset` also shuffles, batches and
    resumes.

    Args:
      path: The file.
      options: The compression of the file; None for none.

    Yields:
      The bytes of each record.

    Raises:
      InputError: The file does not exist or is damaged.

    Example:
      >>> import os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = os.path.join(folder, "a.tfrecord")
      ...     with TFRecordWriter(path) as writer:
      ...         writer.write(b"one")
      ...     list(tf_record_iterator(path))
      [b'one']
    """
    kind = None if options is None else options.compression_type
    yield from TFRecordDataset(os.fspath(path), kind)
