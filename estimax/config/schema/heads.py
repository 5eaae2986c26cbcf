"""The section `model.head`: what a model is trained for.

head: {type: multi_class, classes: 10}
head: {type: multi, heads: {click: {type: binary}, seconds: {type: regression}}}

A section stands for a class of `estimax.heads` and has the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from estimax.config.schema.section import (
    CodeName,
    Fraction,
    Limits,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    calls,
)

Reduction = Literal["sum_over_batch_size", "sum"]
_ARGUMENTS = {"classes": "n_classes", "weight": "weight_column"}


class HeadSection:
    """The descriptions of keys that several heads have.

    Args:
      weight: A column with the weight of each example; by default data.weight.
      thresholds: Thresholds at which to report accuracy, precision and recall as well.
      label_vocabulary: Words of the label, in the order of classes; by default
        data.label_vocabulary.
      loss_reduction: Reduce the losses of a batch to their mean or to their sum.
      name: Suffix of metrics and summaries, as in `average_loss/<name>`. `MultiHead`
        needs it.
      classes: Number of classes.
      label_dimension: Numbers to predict for each example.
      focal_gamma: Multiply the loss of each example by (1 - p)^focal_gamma, with p the
        probability of its label (focal loss): 2 is usual.
      class_weights: How much the loss of an example of each class counts, by class id
        (in quotes, such as {"1": 5}) or word; classes that are left out weigh 1.
        balanced: a class with half as many training examples as the mean of the classes
        weighs 2.
    """


@calls("estimax.heads.BinaryClassHead", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class BinaryHeadConfig(HeadSection):
    """Head for two classes: sigmoid cross entropy of one logit, [B, 1].

    Args:
      type: `ex.heads.BinaryClassHead`.
      loss_fn: Function of `labels` [B, 1] and `logits` [B, 1], and optionally
        `features`, that returns losses [B, 1]; see `ex.heads.losses`. By default
        sigmoid cross entropy.
      sampling_rate: The share of the examples of class 0 that was kept in the training
        data. Predictions and metrics are corrected to what they would be on all
        examples, on which you should evaluate.
      name: Suffix of metrics and summaries, as in `auc/<name>`. `MultiHead` needs it.
      compat: "v1" computes the areas under curves as the heads of tf.compat.v1 did:
        smoothed, and with trapezoids for precision and recall. "v2" is Keras' way.
    """

    type: Literal["binary"] = "binary"
    weight: str | None = None
    thresholds: tuple[Fraction, ...] | None = None
    label_vocabulary: tuple[str, ...] | None = None
    loss_reduction: Reduction = "sum_over_batch_size"
    loss_fn: CodeName | None = None
    name: str | None = None
    compat: Literal["v1", "v2"] = "v2"
    focal_gamma: PositiveFloat | None = None
    class_weights: Literal["balanced"] | Mapping[str, NonNegativeFloat] | None = None
    sampling_rate: Annotated[float, Limits(above=0, at_most=1)] | None = None


@calls("estimax.heads.MultiClassHead", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class MultiClassHeadConfig(HeadSection):
    """Head for K > 2 exclusive classes: softmax cross entropy of logits [B, K].

    Args:
      type: `ex.heads.MultiClassHead`.
      loss_fn: Function of `labels` (ids, int32 [B, 1]) and `logits` [B, K], and
        optionally `features`, that returns losses [B, 1]; see `ex.heads.losses`. By
        default softmax cross entropy.
      name: Suffix of metrics and summaries, as in `accuracy/<name>`. `MultiHead` needs
        it.
    """

    type: Literal["multi_class"] = "multi_class"
    classes: Annotated[int, Limits(at_least=3)]
    weight: str | None = None
    label_vocabulary: tuple[str, ...] | None = None
    loss_reduction: Reduction = "sum_over_batch_size"
    loss_fn: CodeName | None = None
    name: str | None = None
    focal_gamma: PositiveFloat | None = None
    class_weights: Literal["balanced"] | Mapping[str, NonNegativeFloat] | None = None


@calls("estimax.heads.MultiLabelHead", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class MultiLabelHeadConfig(HeadSection):
    """Head for K >= 2 classes of which an example has any number; logits [B, K].

    Args:
      type: `ex.heads.MultiLabelHead`.
      loss_fn: Function of `labels` (indicators [B, K]) and `logits` [B, K], and
        optionally `features`, that returns losses [B, 1]. By default
        `losses.multi_label_cross_entropy`.
      classes_for_class_based_metrics: Class ids, or words of `label_vocabulary`. Each
        adds the mean probability, auc and auc_precision_recall of that class.
      name: Suffix of metrics and summaries, as in `auc/<name>`. `MultiHead` needs it.
    """

    type: Literal["multi_label"] = "multi_label"
    classes: Annotated[int, Limits(at_least=2)]
    weight: str | None = None
    thresholds: tuple[Fraction, ...] | None = None
    label_vocabulary: tuple[str, ...] | None = None
    loss_reduction: Reduction = "sum_over_batch_size"
    loss_fn: CodeName | None = None
    classes_for_class_based_metrics: tuple[int | str, ...] | None = None
    name: str | None = None


@calls("estimax.heads.RegressionHead", _ARGUMENTS, own=("normalize_label",))
@dataclass(frozen=True, kw_only=True)
class RegressionHeadConfig(HeadSection):
    """Head for D numbers for each example: squared error of logits [B, D].

    Args:
      type: `ex.heads.RegressionHead`.
      loss_fn: Function of `labels` [B, D] and `logits` [B, D], and optionally
        `features`, that returns losses [B, D]; see `ex.heads.losses`. By default the
        squared error.
      inverse_link_fn: Function from logits to predictions, [B, D] to [B, D]. The loss
        is computed from the logits. By default predictions are the logits.
      normalize_label: Train on (label - mean) / std, of the train source. Predictions
        and average_loss keep the unit of the label; loss is that of the scaled label.
    """

    type: Literal["regression"] = "regression"
    label_dimension: PositiveInt = 1
    weight: str | None = None
    loss_reduction: Reduction = "sum_over_batch_size"
    loss_fn: CodeName | None = None
    inverse_link_fn: CodeName | None = None
    name: str | None = None
    normalize_label: bool = True


@calls("estimax.heads.PoissonRegressionHead", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class PoissonHeadConfig(HeadSection):
    """Head for counts: Poisson loss of logits [B, D], the logs of the rates.

    Args:
      type: `ex.heads.PoissonRegressionHead`.
      compute_full_loss: Whether the loss includes log(label!), which is approximated
        and does not depend on the logits.
    """

    type: Literal["poisson"] = "poisson"
    label_dimension: PositiveInt = 1
    weight: str | None = None
    loss_reduction: Reduction = "sum_over_batch_size"
    compute_full_loss: bool = True
    name: str | None = None


@calls("estimax.heads.LogisticRegressionHead", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class LogisticHeadConfig(HeadSection):
    """Head for a number within [0, 1]: sigmoid cross entropy of one logit, [B, 1].

    Args:
      type: `ex.heads.LogisticRegressionHead`.
    """

    type: Literal["logistic"] = "logistic"
    weight: str | None = None
    loss_reduction: Reduction = "sum_over_batch_size"
    name: str | None = None


SingleHeadConfig = (
    BinaryHeadConfig
    | MultiClassHeadConfig
    | MultiLabelHeadConfig
    | RegressionHeadConfig
    | PoissonHeadConfig
    | LogisticHeadConfig
)


@dataclass(frozen=True, kw_only=True)
class MultiHeadConfig:
    """Several heads trained together; the loss is the sum of their losses.

    Args:
      type: `ex.heads.MultiHead`.
      heads: The heads by name; data.labels has a column for each name.
      weights: Weight of the loss of a head; by default 1.
    """

    type: Literal["multi"] = "multi"
    heads: Mapping[str, SingleHeadConfig]
    weights: Mapping[str, float] = field(default_factory=dict)


HeadConfig = SingleHeadConfig | MultiHeadConfig
