"""Feature columns: how raw features become the input of a model.

    city = categorical_column_with_hash_bucket("city", 1000)
    net = input_layer(features, [numeric_column("age"), embedding_column(city, 8)])

Names, arguments and defaults are those of `tf.feature_column`. Read `column.py` first.
What columns compute on the host is in `estimax.transforms`.
"""

from typing import TYPE_CHECKING, Any

from estimax.core import tf_names
from estimax.core.parse_spec import FixedLenFeature, VarLenFeature
from estimax.feature_columns import v1
from estimax.feature_columns.categorical import (
    HashedCategoricalColumn,
    IdentityCategoricalColumn,
    VocabularyFileCategoricalColumn,
    VocabularyListCategoricalColumn,
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from estimax.feature_columns.column import (
    CategoricalColumn,
    Column,
    DenseColumn,
    SequenceColumn,
    is_categorical,
    is_dense,
    is_sequence,
)
from estimax.feature_columns.composed import (
    CrossedColumn,
    WeightedCategoricalColumn,
    crossed_column,
    weighted_categorical_column,
)
from estimax.feature_columns.embedding import (
    EmbeddingColumn,
    embedding_column,
    shared_embedding_columns,
    shared_embeddings,
)
from estimax.feature_columns.embedding_lookup import (
    embedding_lookup,
    embedding_lookup_sparse,
)
from estimax.feature_columns.indicator import IndicatorColumn, indicator_column
from estimax.feature_columns.layers import (
    DenseFeatures,
    LinearModel,
    SequenceFeatures,
    concatenate_context_input,
    input_layer,
    linear_model,
    sequence_input_layer,
)
from estimax.feature_columns.numeric import (
    BucketizedColumn,
    NumericColumn,
    bucketized_column,
    numeric_column,
)
from estimax.feature_columns.parse_specs import (
    classifier_parse_example_spec,
    make_parse_example_spec,
    regressor_parse_example_spec,
)
from estimax.feature_columns.sequence import (
    SequenceCategoricalColumn,
    SequenceNumericColumn,
    sequence_categorical_column_with_hash_bucket,
    sequence_categorical_column_with_identity,
    sequence_categorical_column_with_vocabulary_file,
    sequence_categorical_column_with_vocabulary_list,
    sequence_numeric_column,
)
from estimax.transforms import fingerprint64

__all__ = [
    "BucketizedColumn",
    "CategoricalColumn",
    "Column",
    "CrossedColumn",
    "DenseColumn",
    "DenseFeatures",
    "EmbeddingColumn",
    "FixedLenFeature",
    "HashedCategoricalColumn",
    "IdentityCategoricalColumn",
    "IndicatorColumn",
    "LinearModel",
    "NumericColumn",
    "SequenceCategoricalColumn",
    "SequenceColumn",
    "SequenceFeatures",
    "SequenceNumericColumn",
    "VarLenFeature",
    "VocabularyFileCategoricalColumn",
    "VocabularyListCategoricalColumn",
    "WeightedCategoricalColumn",
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "classifier_parse_example_spec",
    "concatenate_context_input",
    "crossed_column",
    "embedding_column",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "fingerprint64",
    "indicator_column",
    "input_layer",
    "is_categorical",
    "is_dense",
    "is_sequence",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "regressor_parse_example_spec",
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_input_layer",
    "sequence_numeric_column",
    "shared_embedding_columns",
    "shared_embeddings",
    "v1",
    "weighted_categorical_column",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        tf_names.missing("estimax.feature_columns", name, __all__)
