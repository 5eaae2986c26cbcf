"""The public names of feature columns, and the module of each."""

from estimax.core.parse_spec import FixedLenFeature as FixedLenFeature
from estimax.core.parse_spec import VarLenFeature as VarLenFeature
from estimax.feature_columns.bucketized import BucketizedColumn as BucketizedColumn
from estimax.feature_columns.bucketized import bucketized_column as bucketized_column
from estimax.feature_columns.categorical import CrossedColumn as CrossedColumn
from estimax.feature_columns.categorical import (
    HashedCategoricalColumn as HashedCategoricalColumn,
)
from estimax.feature_columns.categorical import (
    IdentityCategoricalColumn as IdentityCategoricalColumn,
)
from estimax.feature_columns.categorical import (
    VocabularyFileCategoricalColumn as VocabularyFileCategoricalColumn,
)
from estimax.feature_columns.categorical import (
    VocabularyListCategoricalColumn as VocabularyListCategoricalColumn,
)
from estimax.feature_columns.categorical import (
    WeightedCategoricalColumn as WeightedCategoricalColumn,
)
from estimax.feature_columns.categorical import (
    categorical_column_with_hash_bucket as categorical_column_with_hash_bucket,
)
from estimax.feature_columns.categorical import (
    categorical_column_with_identity as categorical_column_with_identity,
)
from estimax.feature_columns.categorical import (
    categorical_column_with_vocabulary_file as categorical_column_with_vocabulary_file,
)
from estimax.feature_columns.categorical import (
    categorical_column_with_vocabulary_list as categorical_column_with_vocabulary_list,
)
from estimax.feature_columns.categorical import crossed_column as crossed_column
from estimax.feature_columns.categorical import (
    weighted_categorical_column as weighted_categorical_column,
)
from estimax.feature_columns.column import CategoricalColumn as CategoricalColumn
from estimax.feature_columns.column import Column as Column
from estimax.feature_columns.column import DenseColumn as DenseColumn
from estimax.feature_columns.column import SequenceColumn as SequenceColumn
from estimax.feature_columns.column import is_categorical as is_categorical
from estimax.feature_columns.column import is_dense as is_dense
from estimax.feature_columns.column import is_sequence as is_sequence
from estimax.feature_columns.computed import ComputedColumn as ComputedColumn
from estimax.feature_columns.computed import (
    date_difference_column as date_difference_column,
)
from estimax.feature_columns.computed import expression_column as expression_column
from estimax.feature_columns.dates import DateColumn as DateColumn
from estimax.feature_columns.dates import date_column as date_column
from estimax.feature_columns.embedding import EmbeddingColumn as EmbeddingColumn
from estimax.feature_columns.embedding import IndicatorColumn as IndicatorColumn
from estimax.feature_columns.embedding import embedding_column as embedding_column
from estimax.feature_columns.embedding import indicator_column as indicator_column
from estimax.feature_columns.embedding import (
    shared_embedding_columns as shared_embedding_columns,
)
from estimax.feature_columns.embedding import shared_embeddings as shared_embeddings
from estimax.feature_columns.embedding_lookups import (
    embedding_lookup as embedding_lookup,
)
from estimax.feature_columns.embedding_lookups import (
    embedding_lookup_sparse as embedding_lookup_sparse,
)
from estimax.feature_columns.encodings import PeriodicColumn as PeriodicColumn
from estimax.feature_columns.encodings import (
    PiecewiseLinearColumn as PiecewiseLinearColumn,
)
from estimax.feature_columns.encodings import k_means_boundaries as k_means_boundaries
from estimax.feature_columns.encodings import periodic_column as periodic_column
from estimax.feature_columns.encodings import (
    piecewise_linear_column as piecewise_linear_column,
)
from estimax.feature_columns.encodings import quantile_boundaries as quantile_boundaries
from estimax.feature_columns.layers import DenseFeatures as DenseFeatures
from estimax.feature_columns.layers import LinearModel as LinearModel
from estimax.feature_columns.layers import SequenceFeatures as SequenceFeatures
from estimax.feature_columns.layers import (
    concatenate_context_input as concatenate_context_input,
)
from estimax.feature_columns.layers import input_layer as input_layer
from estimax.feature_columns.layers import linear_model as linear_model
from estimax.feature_columns.layers import sequence_input_layer as sequence_input_layer
from estimax.feature_columns.numeric import NumericColumn as NumericColumn
from estimax.feature_columns.numeric import numeric_column as numeric_column
from estimax.feature_columns.parse_specs import (
    classifier_parse_example_spec as classifier_parse_example_spec,
)
from estimax.feature_columns.parse_specs import (
    make_parse_example_spec as make_parse_example_spec,
)
from estimax.feature_columns.parse_specs import (
    regressor_parse_example_spec as regressor_parse_example_spec,
)
from estimax.feature_columns.sequence import (
    SequenceCategoricalColumn as SequenceCategoricalColumn,
)
from estimax.feature_columns.sequence import (
    SequenceNumericColumn as SequenceNumericColumn,
)
from estimax.feature_columns.sequence import (
    sequence_categorical_column_with_hash_bucket as sequence_categorical_column_with_hash_bucket,
)
from estimax.feature_columns.sequence import (
    sequence_categorical_column_with_identity as sequence_categorical_column_with_identity,
)
from estimax.feature_columns.sequence import (
    sequence_categorical_column_with_vocabulary_file as sequence_categorical_column_with_vocabulary_file,
)
from estimax.feature_columns.sequence import (
    sequence_categorical_column_with_vocabulary_list as sequence_categorical_column_with_vocabulary_list,
)
from estimax.feature_columns.sequence import (
    sequence_numeric_column as sequence_numeric_column,
)
from estimax.feature_columns.tables import tabular_columns as tabular_columns
from estimax.feature_columns.text import TextColumn as TextColumn
from estimax.feature_columns.text import text_column as text_column
from estimax.feature_columns.text import text_vocabulary as text_vocabulary
from estimax.feature_columns.transforms import fingerprint64 as fingerprint64
from estimax.v1 import feature_columns as v1  # noqa: F401 - public under this name
