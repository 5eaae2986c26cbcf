"""The section `model.head`: what a model is trained for.

head: {type: multi_class, classes: 10}
head: {type: multi, heads: {click: {type: binary}, seconds: {type: regression}}}

The heads are derived from the classes in `estimax.heads`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from estimax.config.decode import About
from estimax.config.schema.derive import CodeName, derive, described

Reduction = Literal["sum_over_batch_size", "sum"]
_LIMITS = {
    "n_classes": About("Number of classes.", at_least=2),
    "label_dimension": About("Numbers to predict for each example.", at_least=1),
    "thresholds": About(
        "Thresholds at which to report accuracy, precision and recall as well.",
        above=0,
        below=1,
    ),
    "weight_column": About(
        "A column with the weight of each example; by default data.weight."
    ),
    "label_vocabulary": About(
        "Words of the label, in the order of classes; by default data.label_vocabulary."
    ),
    "loss_reduction": About(
        "Reduce the losses of a batch to their mean or to their sum."
    ),
}


def _head(title: str, file: str, name: str, tag: str, **options: Any) -> Any:
    limits = {**_LIMITS, **options.pop("limits", {})}
    return derive(
        title,
        f"heads/{file}.py",
        name,
        calls=f"estimax.heads.{name}",
        tag=("type", tag),
        tag_doc=f"`ex.heads.{name}`.",
        keys={"n_classes": "classes", "weight_column": "weight"},
        kinds={
            "WeightColumn": str,
            "LossFn": CodeName,
            "InverseLink": CodeName,
            "loss_reduction": Reduction,
        },
        limits=limits,
        **options,
    )


BinaryHeadConfig = _head(
    "BinaryHeadConfig", "binary_class", "BinaryClassHead", "binary"
)
MultiClassHeadConfig = _head(
    "MultiClassHeadConfig",
    "multi_class",
    "MultiClassHead",
    "multi_class",
    limits={"n_classes": About("Number of classes.", at_least=3)},
)
MultiLabelHeadConfig = _head(
    "MultiLabelHeadConfig", "multi_label", "MultiLabelHead", "multi_label"
)
RegressionHeadConfig = _head(
    "RegressionHeadConfig",
    "regression",
    "RegressionHead",
    "regression",
    elsewhere={
        "label_mean": "`normalize_label: true` computes it from the train source",
        "label_std": "`normalize_label: true` computes it from the train source",
    },
    extra={
        "normalize_label": (
            Annotated[
                bool,
                About(
                    "Train on (label - mean) / std, of the train source. Predictions "
                    "and average_loss keep the unit of the label; loss is that of the "
                    "scaled label."
                ),
            ],
            True,
        )
    },
)
PoissonHeadConfig = _head(
    "PoissonHeadConfig", "regression", "PoissonRegressionHead", "poisson"
)
LogisticHeadConfig = _head(
    "LogisticHeadConfig", "regression", "LogisticRegressionHead", "logistic"
)
SINGLE_HEADS = (
    BinaryHeadConfig,
    MultiClassHeadConfig,
    MultiLabelHeadConfig,
    RegressionHeadConfig,
    PoissonHeadConfig,
    LogisticHeadConfig,
)
if TYPE_CHECKING:
    # Derived sections are classes made at run time.
    SingleHeadConfig = Any
    HeadConfig = Any
else:
    SingleHeadConfig = functools.reduce(operator.or_, SINGLE_HEADS)


@described(
    "estimax.heads.MultiHead",
    "heads/multi_head.py",
    "MultiHead",
    keys={"head_weights": "weights"},
)
@dataclass(frozen=True, kw_only=True)
class MultiHeadConfig:
    """Several heads trained together; the loss is the sum of their losses."""

    type: Annotated[Literal["multi"], About("`ex.heads.MultiHead`.")] = "multi"
    heads: Annotated[
        Mapping[str, SingleHeadConfig],
        About("The heads by name; data.labels has a column for each name."),
    ]
    weights: Annotated[
        Mapping[str, float], About("Weight of the loss of a head; by default 1.")
    ] = field(default_factory=dict)


if not TYPE_CHECKING:
    HeadConfig = SingleHeadConfig | MultiHeadConfig
