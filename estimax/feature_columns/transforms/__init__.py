"""The host transforms of columns: raw features to ids and numbers, without JAX.

A source (`HashBucket`, `Vocabulary`, `Cross`, …) says which id each value has;
`pad_ids` makes it a transform, which the input thread and exported bundles run.
Everything here uses NumPy and compiled kernels only. Read `transform.py` first.
"""

from estimax.feature_columns.transforms.categorical import (
    Cross,
    HashBucket,
    Identity,
    Vocabulary,
    Weighted,
)
from estimax.feature_columns.transforms.dates import DateDifference, DateParts
from estimax.feature_columns.transforms.embedding_lookups import TableBags, TableIds
from estimax.feature_columns.transforms.formulas import Expression
from estimax.feature_columns.transforms.labels import LabelNumbers
from estimax.feature_columns.transforms.numeric import (
    Bucketize,
    NumberMatrix,
    Numbers,
    RowCount,
    Scaling,
)
from estimax.feature_columns.transforms.sequence import (
    TIME_AXIS,
    SequenceIds,
    SequenceLengths,
    SequenceNumbers,
)
from estimax.feature_columns.transforms.serialize import from_json, to_json
from estimax.feature_columns.transforms.texts import TextNumbers
from estimax.feature_columns.transforms.tokens import Tokens
from estimax.feature_columns.transforms.transform import (
    IdSource,
    PadIds,
    Transform,
    pad_ids,
)
from estimax.feature_columns.transforms.words import (
    WordList,
    count_words,
    fingerprint64,
    fingerprint_cat64,
    hash_buckets,
    load_words,
)

__all__ = [
    "TIME_AXIS",
    "Bucketize",
    "Cross",
    "DateDifference",
    "DateParts",
    "Expression",
    "HashBucket",
    "IdSource",
    "Identity",
    "LabelNumbers",
    "NumberMatrix",
    "Numbers",
    "PadIds",
    "RowCount",
    "Scaling",
    "SequenceIds",
    "SequenceLengths",
    "SequenceNumbers",
    "TableBags",
    "TableIds",
    "TextNumbers",
    "Tokens",
    "Transform",
    "Vocabulary",
    "Weighted",
    "WordList",
    "count_words",
    "fingerprint64",
    "fingerprint_cat64",
    "from_json",
    "hash_buckets",
    "load_words",
    "pad_ids",
    "to_json",
]
