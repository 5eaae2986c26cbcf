"""The section `model`: a canned model, or a class of your own.

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

_COMBINER = About("How several values of a feature in one row are combined.")
Reduction = Literal["sum_over_batch_size", "sum"]
_REDUCTION = About("Reduce the losses of a batch to their mean or to their sum.")


@dataclass(frozen=True, kw_only=True)
class BinaryHeadConfig:
    """Binary classification with one logit."""

    type: Annotated[Literal["binary"], About("Two classes.")] = "binary"
    loss_reduction: Annotated[Reduction, _REDUCTION] = "sum_over_batch_size"
    thresholds: Annotated[
        tuple[float, ...],
        About(
            "Thresholds at which to report accuracy, precision and recall as well.",
            above=0,
            below=1,
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class MultiClassHeadConfig:
    """Classification into one of several classes, with a logit for each."""

    type: Annotated[Literal["multi_class"], About("Several classes.")] = "multi_class"
    classes: Annotated[int, About("Number of classes.", at_least=3)]
    loss_reduction: Annotated[Reduction, _REDUCTION] = "sum_over_batch_size"


@dataclass(frozen=True, kw_only=True)
class RegressionHeadConfig:
    """Regression with the mean squared error."""

    type: Annotated[Literal["regression"], About("A number.")] = "regression"
    loss_reduction: Annotated[Reduction, _REDUCTION] = "sum_over_batch_size"


HeadConfig = BinaryHeadConfig | MultiClassHeadConfig | RegressionHeadConfig
_HEAD = About("What the model is trained for: its loss, predictions and metrics.")


@dataclass(frozen=True, kw_only=True)
class EmbeddingGroup:
    """Categorical features with embeddings of one width."""

    dim: Annotated[int, About("Width of the embeddings.", at_least=1)]
    of: Annotated[tuple[str, ...], About("The categorical features.", min_items=1)]
    combiner: Annotated[Literal["mean", "sum", "sqrtn"], _COMBINER] = "mean"


@dataclass(frozen=True, kw_only=True)
class DeepFeatures:
    """The features of the deep part, by how they enter the first layer."""

    numeric: Annotated[tuple[str, ...], About("Numeric features.")] = ()
    embedding: Annotated[
        tuple[EmbeddingGroup, ...],
        About(
            "Categorical features as embeddings; one group, or a list of groups.",
            one_or_many=True,
        ),
    ] = ()
    indicator: Annotated[
        tuple[str, ...], About("Categorical features, one-hot encoded.")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class LinearPart:
    """The linear (wide) part: a weight for every value of every feature."""

    features: Annotated[tuple[str, ...], About("Any features.", min_items=1)]
    combiner: Annotated[Literal["sum", "mean", "sqrtn"], _COMBINER] = "sum"


_UNITS = About("Number of units of each hidden layer.", at_least=1, min_items=1)
_DROPOUT = About("Probability to drop a unit in training.", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class DnnPart:
    """The deep part: hidden layers over the concatenated features."""

    features: Annotated[DeepFeatures, About("The inputs of the first layer.")]
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    activation: Annotated[
        Literal["relu", "elu", "gelu", "leaky_relu", "selu", "silu", "sigmoid", "tanh"],
        About("Activation function of each hidden layer."),
    ] = "relu"
    dropout: Annotated[float | None, _DROPOUT] = None
    batch_norm: Annotated[bool, About("Batch normalisation after each layer.")] = False


@dataclass(frozen=True, kw_only=True)
class ClickPart:
    """The deep part of a click model: hidden layers with relu."""

    features: Annotated[DeepFeatures, About("The inputs of the first layer.")]
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    dropout: Annotated[float | None, _DROPOUT] = None


@dataclass(frozen=True, kw_only=True)
class CombinedModelConfig:
    """A wide-and-deep model: the sum of the logits of both parts."""

    type: Annotated[Literal["dnn_linear_combined"], About("Wide and deep.")] = (
        "dnn_linear_combined"
    )
    linear: Annotated[LinearPart, About("The linear part.")]
    dnn: Annotated[DnnPart, About("The deep part.")]
    head: Annotated[HeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class DnnModelConfig:
    """A fully connected network."""

    type: Annotated[Literal["dnn"], About("A fully connected network.")] = "dnn"
    dnn: Annotated[DnnPart, About("The deep part.")]
    head: Annotated[HeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class LinearModelConfig:
    """A linear model."""

    type: Annotated[Literal["linear"], About("A linear model.")] = "linear"
    linear: Annotated[LinearPart, About("The linear part.")]
    head: Annotated[HeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class DeepFmModelConfig:
    """DeepFM: products of all pairs of embeddings, a deep and a linear part."""

    type: Annotated[Literal["deepfm"], About("DeepFM.")] = "deepfm"
    dnn: Annotated[
        ClickPart, About("The deep part; the products use the same embeddings.")
    ]
    head: Annotated[BinaryHeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class DcnModelConfig:
    """Deep & Cross v2: cross layers, x0 * (W x + b) + x, and a deep part."""

    type: Annotated[Literal["dcn"], About("Deep & Cross, version 2.")] = "dcn"
    dnn: Annotated[
        ClickPart, About("The deep part; the cross layers have the same inputs.")
    ]
    cross_layers: Annotated[int, About("Number of cross layers.", at_least=1)] = 3
    projection: Annotated[
        int | None,
        About("Rank of the cross layers' weights; null for full rank.", at_least=1),
    ] = None
    structure: Annotated[
        Literal["parallel", "stacked"],
        About("The deep part runs beside the cross layers, or on their output."),
    ] = "parallel"
    head: Annotated[BinaryHeadConfig, _HEAD] = BinaryHeadConfig()


@dataclass(frozen=True, kw_only=True)
class CustomModelConfig:
    """An estimator class of your own.

    It is called with `params` as keyword arguments and with `config=RunConfig(...)`. If
    it has an argument `feature_columns`, it gets a dict of all columns by feature name.
    """

    class_: Annotated[
        str, About('"package.module:Name" of a class or function that returns one.')
    ]
    params: Annotated[
        Mapping[str, Any], About("Keyword arguments, checked against the signature.")
    ] = field(default_factory=dict)


ModelConfig = (
    CombinedModelConfig
    | DnnModelConfig
    | LinearModelConfig
    | DeepFmModelConfig
    | DcnModelConfig
    | CustomModelConfig
)
