"""Summaries: values logged inside a model, and event files written and read."""

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
