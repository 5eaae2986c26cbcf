"""Input pipelines: read files, arrays and iterables into batches of columns.

Read `dataset.py` first. `tabular.py` and `readers.py` open files, `examples/` parses
tf.train.Example messages, and `adapters.py` converts what an `input_fn` returns.
"""

from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.formats.records import RecordError, TFRecordOptions, TFRecordWriter
from estimax.input import experimental, python_io
from estimax.input.adapters import BatchIterator, as_batches
from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.element_specs import TensorSpec
from estimax.input.examples.messages import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
    serialize_examples,
)
from estimax.input.examples.parsing import (
    ExampleParser,
    parse_example,
    parse_single_example,
)
from estimax.input.examples.sequences import (
    parse_sequence_example,
    parse_single_sequence_example,
)
from estimax.input.examples.specs import (
    ExampleError,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
)
from estimax.input.fingerprints import ChangedInputError
from estimax.input.input_fns import InputContext, numpy_input_fn, pandas_input_fn
from estimax.input.iterator import DatasetIterator
from estimax.input.ops.options import AutoShardPolicy, Options
from estimax.input.readers import (
    CsvDataset,
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
    make_batched_features_dataset,
)
from estimax.input.sources.csv_reader import decode_csv
from estimax.input.splitting import (
    as_vectors,
    part_of,
    rows_between,
    rows_where,
    split_values,
)
from estimax.input.tabular import csv_files, json_files, make_csv_dataset, parquet_files

__all__ = [
    "AUTOTUNE",
    "AutoShardPolicy",
    "BatchIterator",
    "BytesList",
    "ChangedInputError",
    "CsvDataset",
    "Dataset",
    "DatasetIterator",
    "Example",
    "ExampleError",
    "ExampleParser",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "FixedLengthRecordDataset",
    "FloatList",
    "InputContext",
    "Int64List",
    "Options",
    "RaggedFeature",
    "RecordError",
    "SequenceExample",
    "SparseFeature",
    "TFRecordDataset",
    "TFRecordOptions",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "VarLenFeature",
    "as_batches",
    "as_vectors",
    "csv_files",
    "decode_csv",
    "experimental",
    "json_files",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "numpy_input_fn",
    "pandas_input_fn",
    "parquet_files",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "part_of",
    "python_io",
    "rows_between",
    "rows_where",
    "serialize_examples",
    "split_values",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.input", name, __all__)
