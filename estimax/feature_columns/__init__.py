"""Feature columns: how raw features become the input of a model.

    city = categorical_column_with_hash_bucket("city", 1000)
    net = input_layer(features, [numeric_column("age"), embedding_column(city, 8)])

Names, arguments and defaults are those of `tf.feature_column`. Read `column.py` first.
What columns compute on the host is in `transforms`. A server imports that without the
rest: names are imported when they are first used. `__init__.pyi` lists them.
"""

from estimax.core import migration
from estimax.core.lazy_names import lazy_getattr, modules_of_names

__all__ = [
    "BucketizedColumn",
    "CategoricalColumn",
    "Column",
    "ComputedColumn",
    "CrossedColumn",
    "DateColumn",
    "DenseColumn",
    "DenseFeatures",
    "EmbeddingColumn",
    "FixedLenFeature",
    "HashedCategoricalColumn",
    "IdentityCategoricalColumn",
    "IndicatorColumn",
    "LinearModel",
    "NumericColumn",
    "PeriodicColumn",
    "PiecewiseLinearColumn",
    "SequenceCategoricalColumn",
    "SequenceColumn",
    "SequenceFeatures",
    "SequenceNumericColumn",
    "TextColumn",
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
    "date_column",
    "date_difference_column",
    "embedding_column",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "expression_column",
    "fingerprint64",
    "indicator_column",
    "input_layer",
    "is_categorical",
    "is_dense",
    "is_sequence",
    "k_means_boundaries",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "periodic_column",
    "piecewise_linear_column",
    "quantile_boundaries",
    "regressor_parse_example_spec",
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_input_layer",
    "sequence_numeric_column",
    "shared_embedding_columns",
    "shared_embeddings",
    "tabular_columns",
    "text_column",
    "text_vocabulary",
    "v1",
    "weighted_categorical_column",
]

_MODULES = modules_of_names(__file__)
__getattr__ = lazy_getattr(
    globals(),
    _MODULES,
    lambda name: migration.missing("estimax.feature_columns", name, __all__),
)
