"""Summaries: log values inside a model, write and read event files.

Read `log.py` for what a `model_fn` calls, `writer.py` and `reader.py` for event files.
"""

from estimax.summary.log import (
    histogram,
    image,
    log_value,
    scalar,
    stride_of_sample,
    text,
)
from estimax.summary.reader import read_scalars
from estimax.summary.writer import Output, SummaryWriter, times_written

__all__ = [
    "Output",
    "SummaryWriter",
    "histogram",
    "image",
    "log_value",
    "read_scalars",
    "scalar",
    "stride_of_sample",
    "text",
    "times_written",
]
