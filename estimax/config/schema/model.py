"""`model:` a stock model, or a class of your own.

model:
  type: dnn_linear_combined
  linear: {features: [city, age_x_city]}
  dnn:
    features: {numeric: [age], embedding: {dim: 8, of: [city]}}
    hidden_units: [128, 64]

model:
  type: deepfm          # or dcn
  dnn: {features: {embedding: {dim: 8, of: [city, page]}}, hidden_units: [128, 64]}

model: {class: "my_package.models:MyEstimator", params: {depth: 3}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from estimax.config.decode import About

Reduction = Literal["sum_over_batch_size", "sum"]
_REDUCTION = About("How the losses of a batch become one: their mean, or their sum.")


@dataclass(frozen=True, kw_only=True)
class BinaryHeadConfig:
    """Two classes, one logit."""

    type: Annotated[Literal["binary"], About("Two classes.")] = "binary"
    loss_reduction: Annotated[Reduction, _REDUCTION] = "sum_over_batch_size"
    thresholds: Annotated[
        tuple[float, ...],
        About("Also report accuracy, precision, recall at these.", above=0, below=1),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class MultiClassHeadConfig:
    """One of several classes, a logit each."""

    type: Annotated[Literal["multi_class"], About("Several classes.")] = "multi_class"
    classes: Annotated[int, About("How many.", at_least=3)]
    loss_reduction: Annotated[Reduction, _REDUCTION] = "sum_over_batch_size"


@dataclass(frozen=True, kw_only=True)
class RegressionHeadConfig:
    """A number, by mean squared error."""

    type: Annotated[Literal["regression"], About("A number.")] = "regression"
    loss_reduction: Annotated[Reduction, _REDUCTION] = "sum_over_batch_size"


HeadConfig = BinaryHeadConfig | MultiClassHeadConfig | RegressionHeadConfig
_HEAD = About("What the logits mean.")


@dataclass(frozen=True, kw_only=True)
class EmbeddingGroup:
    """Features embedded in vectors of one width."""

    dim: Annotated[int, About("Width of each vector.", at_least=1)]
    of: Annotated[tuple[str, ...], About("The categorical features.", min_items=1)]
    combiner: Annotated[
        Literal["mean", "sum", "sqrtn"], About("Of several values in a row.")
    ] = "mean"


@dataclass(frozen=True, kw_only=True)
class DeepFeatures:
    """How features become the first layer's input."""

    numeric: Annotated[tuple[str, ...], About("Numbers as they are.")] = ()
    embedding: Annotated[
        tuple[EmbeddingGroup, ...],
        About("Learned vectors; one group, or a list of groups.", one_or_many=True),
    ] = ()
    indicator: Annotated[tuple[str, ...], About("One input for each id.")] = ()


@dataclass(frozen=True, kw_only=True)
class LinearPart:
    """The wide part: a weight for every value of every feature."""

    features: Annotated[tuple[str, ...], About("Any features.", min_items=1)]
    combiner: Annotated[
        Literal["sum", "mean", "sqrtn"], About("Of several values in a row.")
    ] = "sum"


_UNITS = About("Units of each layer.", at_least=1, min_items=1)
_DROPOUT = About("Part of the units left out in training.", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class DnnPart:
    """The deep part: layers over the concatenated inputs."""

    features: Annotated[DeepFeatures, About("What goes in.")]
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    activation: Annotated[
        Literal["relu", "elu", "gelu", "leaky_relu", "selu", "silu", "sigmoid", "tanh"],
        About("After each layer."),
    ] = "relu"
    dropout: Annotated[float | None, _DROPOUT] = None
    batch_norm: Annotated[bool, About("Normalise after each layer.")] = False


@dataclass(frozen=True, kw_only=True)
class ClickPart:
    """The deep part of a click model: layers of relu."""

    features: Annotated[DeepFeatures, About("What goes in.")]
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    dropout: Annotated[float | None, _DROPOUT] = None


@dataclass(frozen=True, kw_only=True)
class CombinedModelConfig:
    """Wide and deep: the sum of both parts' logits."""

    type: Annotated[Literal["dnn_linear_combined"], About("Wide and deep.")] = (
        "dnn_linear_combined"
    )
    linear: Annotated[LinearPart, About("The wide part.")]
    dnn: Annotated[DnnPart, About("The deep part.")]
    head: Annotated[HeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class DnnModelConfig:
    """The deep part alone."""

    type: Annotated[Literal["dnn"], About("Deep.")] = "dnn"
    dnn: Annotated[DnnPart, About("The deep part.")]
    head: Annotated[HeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class LinearModelConfig:
    """The wide part alone."""

    type: Annotated[Literal["linear"], About("Wide.")] = "linear"
    linear: Annotated[LinearPart, About("The wide part.")]
    head: Annotated[HeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class DeepFmModelConfig:
    """Products of all pairs of embedded features, and a deep and a linear part."""

    type: Annotated[Literal["deepfm"], About("Pairs of features, and deep.")] = "deepfm"
    dnn: Annotated[ClickPart, About("The deep part; its embeddings are the pairs'.")]
    head: Annotated[BinaryHeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class DcnModelConfig:
    """Cross layers, x0 * (W x + b) + x, and a deep part."""

    type: Annotated[Literal["dcn"], About("Deep and cross, v2.")] = "dcn"
    dnn: Annotated[ClickPart, About("The deep part; its inputs are crossed as well.")]
    cross_layers: Annotated[int, About("How many.", at_least=1)] = 3
    projection: Annotated[
        int | None, About("Rank of their weights, if it is not full.", at_least=1)
    ] = None
    structure: Annotated[
        Literal["parallel", "stacked"], About("The deep part beside them, or on top.")
    ] = "parallel"
    head: Annotated[BinaryHeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class CustomModelConfig:
    """An estimator of your own.

    Called with `params` as keywords, `config=RunConfig(...)`, and, when it has such an
    argument, `feature_columns={name: column}` of every feature.
    """

    class_: Annotated[str, About('"package.module:Name", called to make an estimator.')]
    params: Annotated[
        Mapping[str, Any], About("Keyword arguments, checked against its signature.")
    ] = field(default_factory=dict)


ModelConfig = (
    CombinedModelConfig
    | DnnModelConfig
    | LinearModelConfig
    | DeepFmModelConfig
    | DcnModelConfig
    | CustomModelConfig
)
