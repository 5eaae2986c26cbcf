"""Input: files and arrays to batches of columns. Read `dataset.py` first."""

from estimax.input.csv_reader import csv_files
from estimax.input.dataset import AUTOTUNE, Dataset, DatasetIterator

__all__ = ["AUTOTUNE", "Dataset", "DatasetIterator", "csv_files"]
