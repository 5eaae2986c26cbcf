"""Summaries: values logged inside a model, and event files written and read."""

from estimax.summary.log import histogram, log_value, scalar, text
from estimax.summary.reader import read_scalars
from estimax.summary.writer import SummaryWriter

__all__ = [
    "SummaryWriter",
    "histogram",
    "log_value",
    "read_scalars",
    "scalar",
    "text",
]
