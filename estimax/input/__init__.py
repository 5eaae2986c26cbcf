"""Input: files and arrays to batches of columns. Read `dataset.py` first."""

from estimax.input.adapters import BatchIterator, as_batches
from estimax.input.csv_reader import csv_files
from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.input_fns import numpy_input_fn, pandas_input_fn
from estimax.input.iterator import DatasetIterator
from estimax.input.options import AutoShardPolicy, Options
from estimax.input.placement import PreparedBatches, prefetch_batches
from estimax.input.signatures import TensorSpec

__all__ = [
    "AUTOTUNE",
    "AutoShardPolicy",
    "BatchIterator",
    "Dataset",
    "DatasetIterator",
    "Options",
    "PreparedBatches",
    "TensorSpec",
    "as_batches",
    "csv_files",
    "numpy_input_fn",
    "pandas_input_fn",
    "prefetch_batches",
]
