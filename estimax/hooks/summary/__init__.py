"""Summaries: log values inside a model, write and read event files.

Read `log.py` for what a `model_fn` calls, `event_files.py` for reading and writing,
`curves.py` and `projector.py` for what evaluations and trainings write besides.
"""

from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.hooks.summary.event_files import (
    Output,
    SummaryWriter,
    read_scalars,
    times_written,
)
from estimax.hooks.summary.log import (
    audio,
    histogram,
    image,
    log_value,
    scalar,
    stride_of_sample,
    text,
)
from estimax.hooks.summary.projector import Embedding, write_embeddings

__all__ = [
    "Embedding",
    "Output",
    "SummaryWriter",
    "audio",
    "histogram",
    "image",
    "log_value",
    "read_scalars",
    "scalar",
    "stride_of_sample",
    "text",
    "times_written",
    "write_embeddings",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.summary", name, __all__)
