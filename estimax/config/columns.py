"""The columns of the data that a run reads, and how it reads each of them.

    columns = data_columns(run)
    columns["age"]                # DataColumn(kind='float', …)

Features, label and weight may read the same column. `clashes` finds those that cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from estimax.config.schema.features import (
    COMPUTED,
    DateConfig,
    DateDifferenceConfig,
    ExpressionConfig,
    FeatureConfig,
    HashedConfig,
    IdentityConfig,
    NumericConfig,
    TextConfig,
    VocabularyConfig,
    WeightedConfig,
)
from estimax.config.schema.heads import (
    MultiClassHeadConfig,
    MultiHeadConfig,
    MultiLabelHeadConfig,
    PoissonHeadConfig,
    RegressionHeadConfig,
)
from estimax.config.schema.model import (
    TREES,
    AverageModelConfig,
    CustomModelConfig,
    ModelFnConfig,
    TabularModelConfig,
)
from estimax.config.schema.run import Run
from estimax.core import formulas

ColumnKind = Literal["float", "int", "text"]
KIND_NAMES = {"float": "numbers", "int": "whole numbers", "text": "text"}


@dataclass(frozen=True)
class DataColumn:
    """How a column is read.

    Args:
      kind: What its values are; None lets the reader infer it.
      many: Whether a row has a list of values.
      shape: The shape of a vector; None for a single value or a list.
      delimiter: What separates values in one text; None if nothing does.
    """

    kind: ColumnKind | None
    many: bool = False
    shape: tuple[int, ...] | None = None
    delimiter: str | None = None


def data_columns(run: Run) -> dict[str, DataColumn]:
    """Return the columns that a run reads from each source, label and weight last."""
    found: dict[str, DataColumn] = {}
    for name, feature in run.features.items():
        for column, read in _columns_of(name, feature):
            known = found.get(column)
            if known is not None and isinstance(feature, COMPUTED):
                continue  # it takes any numbers
            # If two features read a column as "int" and "float", read it as "int": an
            # integer converts to a float, but not every float to an integer.
            if known is not None and known.kind == "int":
                read = replace(read, kind="int")
            found[column] = read
    for column in weight_columns(run):
        found[column] = DataColumn("float")
    for column, head in label_columns(run).items():
        found[column] = _label_column(run, head)
    return found


def _columns_of(name: str, feature: FeatureConfig) -> list[tuple[str, DataColumn]]:
    if isinstance(feature, WeightedConfig):
        weights = DataColumn("float", many=True, delimiter=feature.delimiter)
        return [(feature.weights, weights)]
    if isinstance(feature, ExpressionConfig) and isinstance(feature.expression, str):
        # A text that is no formula is reported by `feature_checks`.
        names = formulas.check(feature.expression, lambda _: None)
        return [(column, DataColumn("float")) for column in names]
    if isinstance(feature, DateDifferenceConfig):
        return [(column, DataColumn("text")) for column in (feature.from_, feature.to)]
    kind = kind_of(feature)
    if kind is None:
        return []
    delimiter: str | None = getattr(feature, "delimiter", None)
    shape = None
    if isinstance(feature, NumericConfig) and not feature.sequence:
        is_vector = delimiter is not None or tuple(feature.shape) != (1,)
        shape = tuple(feature.shape) if is_vector else None
    many = bool(getattr(feature, "many", False) or getattr(feature, "sequence", False))
    is_list = many or (delimiter is not None and shape is None)
    column = DataColumn(kind, is_list, shape, delimiter)
    return [(column_of(name, feature), column)]


def columns_read(name: str, feature: FeatureConfig) -> list[str]:
    """Return the columns that a feature itself reads; not those of its sources."""
    return [column for column, _ in _columns_of(name, feature)]


def column_of(name: str, feature: FeatureConfig) -> str:
    """Return the column that a feature reads."""
    return getattr(feature, "column", None) or name


def columns_of(run: Run) -> dict[str, ColumnKind | None]:
    """Return the kind of each column; None lets the reader infer it."""
    return {name: column.kind for name, column in data_columns(run).items()}


def kind_of(feature: FeatureConfig) -> ColumnKind | None:
    """Return how a feature reads its column; None if it reads several or none."""
    if isinstance(feature, DateConfig | TextConfig):
        return "text"
    if isinstance(feature, NumericConfig):
        if feature.text is not None:
            return "text"
        return "int" if feature.dtype == "int64" else "float"
    if isinstance(feature, IdentityConfig):
        return "int"
    if isinstance(feature, VocabularyConfig):
        words = feature.list_ or ()
        is_int = words and not isinstance(words[0], str)
        return "int" if is_int or feature.dtype == "int64" else "text"
    if isinstance(feature, HashedConfig):
        return "int" if feature.dtype == "int64" else "text"
    return None


def may_be_missing(run: Run, feature: FeatureConfig) -> bool:
    """Return whether a number may be missing.

    It has a default, or all models that read it take missing values as they are. A
    column of an expression may be: its results may have a default.
    """
    if isinstance(feature, COMPUTED):
        return True
    assert isinstance(feature, NumericConfig)
    if feature.default is not None:
        return True
    model: Any = run.model
    models = model.models.values() if isinstance(model, AverageModelConfig) else [model]
    is_scaled = feature.transform or feature.normalize or feature.normalizer_fn
    return all(
        isinstance(one, TREES)
        or (isinstance(one, TabularModelConfig) and not is_scaled)
        for one in models
    )


def heads_of(run: Run) -> dict[str, Any]:
    """Return the heads of a model by name; "" is the name of a single one."""
    head = getattr(run.model, "head", None)
    if isinstance(head, MultiHeadConfig):
        return dict(head.heads)
    return {} if head is None else {"": head}


def label_columns(run: Run) -> dict[str, Any]:
    """Return the head of each label column; None for a custom model."""
    heads = heads_of(run)
    if run.data.labels:
        return {column: heads.get(name) for name, column in run.data.labels.items()}
    return {} if run.data.label is None else {run.data.label: heads.get("")}


def weight_columns(run: Run) -> list[str]:
    """Return the columns with the weights of examples."""
    given = [
        run.data.weight,
        *(getattr(h, "weight", None) for h in heads_of(run).values()),
    ]
    return list(dict.fromkeys(name for name in given if name is not None))


def words_of_label(run: Run, head: Any) -> tuple[str, ...] | None:
    """Return the words of a label, in the order of classes; None for numbers."""
    return getattr(head, "label_vocabulary", None) or run.data.label_vocabulary


def _label_column(run: Run, head: Any) -> DataColumn:
    delimiter = run.data.label_delimiter
    if words_of_label(run, head) is not None:
        kind: ColumnKind | None = "text"
    elif isinstance(run.model, CustomModelConfig | ModelFnConfig):
        kind = None
    elif isinstance(head, MultiClassHeadConfig | MultiLabelHeadConfig):
        kind = "int"
    else:
        kind = "float"
    if isinstance(head, MultiLabelHeadConfig):
        return DataColumn(kind, many=True, delimiter=delimiter)
    width = 1
    if isinstance(head, RegressionHeadConfig | PoissonHeadConfig):
        width = head.label_dimension
    if width > 1:
        return DataColumn(kind, shape=(width,), delimiter=delimiter)
    is_sequence = bool(
        getattr(getattr(run.model, "rnn", None), "return_sequences", False)
    )
    return DataColumn(
        kind, many=is_sequence or delimiter is not None, delimiter=delimiter
    )


def clashes(features: Mapping[str, FeatureConfig]) -> list[tuple[str, str]]:
    """Return features that read a column as text and another as numbers, or vice versa.

    Each result is the name of the later feature and the text of a message.
    """
    readers: dict[str, tuple[str, ColumnKind]] = {}
    found = []
    for name, feature in features.items():
        for column, read in _columns_of(name, feature):
            assert read.kind is not None
            first, other = readers.setdefault(column, (name, read.kind))
            if (read.kind == "text") != (other == "text"):
                text = f"reads column {column!r} as {KIND_NAMES[read.kind]}, "
                found.append((name, f"{text}{first!r} as {KIND_NAMES[other]}"))
    return found
