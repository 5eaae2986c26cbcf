"""The section `model`: a canned model, or code of your own.

model:
  type: dnn_linear_combined
  linear: {features: [city, age_x_city]}
  dnn:
    features: {numeric: [age], embedding: {dim: 8, of: [city]}}
    hidden_units: [128, 64]

model:
  type: deepfm          # or dcn
  dnn: {features: {embedding: {dim: 8, of: [city, page]}}, hidden_units: [128, 64]}

model:
  type: per_head        # a model of its own for each label
  models:
    click: {type: linear, linear: {features: [city]}}
    seconds: {type: dnn, dnn: {...}, head: {type: regression}}
  weights: {seconds: 0.5}

model: {class: "my_package.models:MyEstimator", params: {depth: 3}}
model: {model_fn: "my_package.models:model_fn", params: {depth: 3}}

`described` notes which arguments of the class in `estimax.canned` each key stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from estimax.config.decode import About
from estimax.config.schema.derive import CodeName, derive, described
from estimax.config.schema.heads import (
    BinaryHeadConfig,
    HeadConfig,
    MultiHeadConfig,
)

_COMBINER = About("How several values of a feature in one row are combined.")
Combiner = Literal["mean", "sum", "sqrtn"]
BINARY = BinaryHeadConfig()  # the default head
_HEAD = About("What the model is trained for: its loss, predictions and metrics.")
_MODEL_ELSEWHERE = {
    "head": "`model.head`",
    "model_dir": "`run.model_dir`",
    "config": "`run`",
    "warm_start_from": "`warm_start`",
    "weight_column": "`data.weight`",
}
_COMPAT = {"compat": "defaults of tf.compat.v1; a run file has defaults of its own"}


@dataclass(frozen=True, kw_only=True)
class InitializerConfig:
    """An initializer of `jax.nn.initializers`."""

    name: Annotated[
        Literal[
            "glorot_normal",
            "glorot_uniform",
            "he_normal",
            "he_uniform",
            "lecun_normal",
            "lecun_uniform",
            "normal",
            "truncated_normal",
            "uniform",
            "variance_scaling",
            "constant",
            "orthogonal",
        ],
        About("The function that makes it."),
    ]
    args: Annotated[
        Mapping[str, Any], About("Its arguments, such as {stddev: 0.01}.")
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PretrainedConfig:
    """A table that is loaded from a checkpoint when the model is first initialized."""

    checkpoint: Annotated[
        str, About("A checkpoint or model directory, of estimax or of TensorFlow.")
    ]
    variable: Annotated[str, About("The name of the table there.")]


_EMBEDDING_KEYS = {
    "categorical_column": "of",
    "categorical_columns": "of",
    "dimension": "dim",
    "ckpt_to_load_from": "pretrained.checkpoint",
    "tensor_name_in_ckpt": "pretrained.variable",
    "use_safe_embedding_lookup": "safe_lookup",
    "shared_embedding_collection_name": "shared_name",
}


@described(
    "estimax.feature_columns.embedding_column",
    "feature_columns/embedding.py",
    "embedding_column",
    keys=_EMBEDDING_KEYS,
)
@described(
    "estimax.feature_columns.shared_embeddings",
    "feature_columns/embedding.py",
    "shared_embeddings",
    keys=_EMBEDDING_KEYS,
)
@dataclass(frozen=True, kw_only=True)
class EmbeddingGroup:
    """Categorical features with embeddings of one width."""

    dim: Annotated[int, About("Width of the embeddings.", at_least=1)]
    of: Annotated[tuple[str, ...], About("The categorical features.", min_items=1)]
    combiner: Annotated[Combiner, _COMBINER] = "mean"
    initializer: Annotated[
        InitializerConfig | CodeName | None,
        About(
            "Initial values; by default a truncated normal of deviation 1/sqrt(dim)."
        ),
    ] = None
    pretrained: Annotated[
        PretrainedConfig | None, About("Load the tables from a checkpoint.")
    ] = None
    max_norm: Annotated[
        float | None, About("Clip each row to this norm when it is looked up.", above=0)
    ] = None
    trainable: Annotated[bool, About("Whether the tables are trained.")] = True
    safe_lookup: Annotated[
        bool, About("Ignore ids below 0 and rows without values.")
    ] = True
    row_updates: Annotated[
        bool, About("Update only the rows of the batch, where the optimizer can.")
    ] = True
    shared: Annotated[bool, About("One table for all features of the group.")] = False
    shared_name: Annotated[
        str | None, About("The name of the shared table; null makes one.")
    ] = None


@described(
    "estimax.feature_columns.indicator_column",
    "feature_columns/embedding.py",
    "indicator_column",
    keys={"categorical_column": "indicator"},
)
@dataclass(frozen=True, kw_only=True)
class DeepFeatures:
    """The features of a dense part, by how they enter the first layer."""

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
_INPUTS = About("The inputs of the first layer.")


@dataclass(frozen=True, kw_only=True)
class DnnPart:
    """The deep part: hidden layers over the concatenated features."""

    features: Annotated[DeepFeatures, _INPUTS]
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    activation: Annotated[
        Literal["relu", "elu", "gelu", "leaky_relu", "selu", "silu", "sigmoid", "tanh"],
        About("Activation function of each hidden layer."),
    ] = "relu"
    activation_fn: Annotated[
        CodeName | None, About("A function of your own instead of `activation`.")
    ] = None
    dropout: Annotated[float | None, _DROPOUT] = None
    batch_norm: Annotated[bool, About("Batch normalisation after each layer.")] = False


@dataclass(frozen=True, kw_only=True)
class ClickPart:
    """The deep part of a click model: hidden layers with relu."""

    features: Annotated[DeepFeatures, _INPUTS]
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    dropout: Annotated[float | None, _DROPOUT] = None


@dataclass(frozen=True, kw_only=True)
class InterestPart:
    """The deep part of a deep interest network."""

    features: Annotated[
        DeepFeatures, About("The inputs besides the pairs of `attend`.")
    ] = DeepFeatures()
    hidden_units: Annotated[tuple[int, ...], _UNITS]
    dropout: Annotated[float | None, _DROPOUT] = None


@dataclass(frozen=True, kw_only=True)
class ExpertPart:
    """The shared experts and the towers of a mixture of experts."""

    features: Annotated[DeepFeatures, _INPUTS]
    expert_units: Annotated[tuple[int, ...], _UNITS] = (128,)
    tower_units: Annotated[
        tuple[int, ...],
        About("Number of units of each hidden layer of a task's tower.", at_least=1),
    ] = (64,)
    experts: Annotated[int, About("Number of experts.", at_least=1)] = 4


@dataclass(frozen=True, kw_only=True)
class EntireSpacePart:
    """The towers of an entire space multi-task model."""

    features: Annotated[DeepFeatures, _INPUTS]
    hidden_units: Annotated[tuple[int, ...], _UNITS]


@dataclass(frozen=True, kw_only=True)
class RnnPart:
    """Recurrent layers over sequence features."""

    sequence: Annotated[
        DeepFeatures, About("The sequence features (those with `sequence: true`).")
    ]
    context: Annotated[
        DeepFeatures | None, About("Features without a sequence, added to each step.")
    ] = None
    units: Annotated[
        tuple[int, ...] | None,
        About("Units of each recurrent layer.", at_least=1, one_or_many=True),
    ] = None
    cell: Annotated[
        Literal["simple_rnn", "lstm", "gru"] | None,
        About("The kind of layer; null is simple_rnn."),
    ] = None
    cell_fn: Annotated[
        CodeName | None,
        About("A function of your own that returns the cell, instead of units."),
    ] = None
    bidirectional: Annotated[bool, About("Read the sequence in both directions.")] = (
        False
    )
    return_sequences: Annotated[
        bool, About("Predict a value for each step instead of one for the sequence.")
    ] = False
    sequence_mask: Annotated[
        str, About("Key of the mask of steps, with return_sequences.")
    ] = "sequence_mask"


def _deep_keys(prefix: str = "") -> dict[str, str]:
    return {
        f"{prefix}feature_columns": "dnn.features",
        f"{prefix}hidden_units": "dnn.hidden_units",
        f"{prefix}activation_fn": "dnn.activation",
        f"{prefix}dropout": "dnn.dropout",
        "batch_norm": "dnn.batch_norm",
    }


@described(
    "estimax.canned.DNNLinearCombinedEstimator",
    "canned/dnn_linear_combined.py",
    "DNNLinearCombinedEstimator",
    keys={
        **_deep_keys("dnn_"),
        "linear_feature_columns": "linear.features",
        "linear_sparse_combiner": "linear.combiner",
    },
    elsewhere={
        **_MODEL_ELSEWHERE,
        "linear_optimizer": "`optimizers.linear`",
        "dnn_optimizer": "`optimizers.dnn`",
    },
    python_only=_COMPAT,
)
@dataclass(frozen=True, kw_only=True)
class CombinedModelConfig:
    """A wide-and-deep model: the sum of the logits of both parts."""

    type: Annotated[Literal["dnn_linear_combined"], About("Wide and deep.")] = (
        "dnn_linear_combined"
    )
    linear: Annotated[LinearPart, About("The linear part.")]
    dnn: Annotated[DnnPart, About("The deep part.")]
    head: Annotated[HeadConfig, _HEAD] = BINARY


_DNN_ELSEWHERE = {**_MODEL_ELSEWHERE, "optimizer": "`optimizers.dnn`"}


@described(
    "estimax.canned.DNNEstimator",
    "canned/dnn.py",
    "DNNEstimator",
    keys=_deep_keys(),
    elsewhere=_DNN_ELSEWHERE,
    python_only=_COMPAT,
)
@dataclass(frozen=True, kw_only=True)
class DnnModelConfig:
    """A fully connected network."""

    type: Annotated[Literal["dnn"], About("A fully connected network.")] = "dnn"
    dnn: Annotated[DnnPart, About("The deep part.")]
    head: Annotated[HeadConfig, _HEAD] = BINARY


@described(
    "estimax.canned.LinearEstimator",
    "canned/linear.py",
    "LinearEstimator",
    keys={"feature_columns": "linear.features", "sparse_combiner": "linear.combiner"},
    elsewhere={**_MODEL_ELSEWHERE, "optimizer": "`optimizers.linear`"},
    python_only=_COMPAT,
)
@dataclass(frozen=True, kw_only=True)
class LinearModelConfig:
    """A linear model."""

    type: Annotated[Literal["linear"], About("A linear model.")] = "linear"
    linear: Annotated[LinearPart, About("The linear part.")]
    head: Annotated[HeadConfig, _HEAD] = BINARY


@described(
    "estimax.canned.BaselineEstimator",
    "canned/baseline.py",
    "BaselineEstimator",
    elsewhere={**_MODEL_ELSEWHERE, "optimizer": "`optimizers.baseline`"},
    python_only=_COMPAT,
)
@dataclass(frozen=True, kw_only=True)
class BaselineModelConfig:
    """A baseline that ignores the features: it predicts the mean of the labels."""

    type: Annotated[Literal["baseline"], About("A baseline.")] = "baseline"
    head: Annotated[HeadConfig, _HEAD] = BINARY


@described(
    "estimax.canned.DeepFMClassifier",
    "canned/click_models.py",
    "DeepFMClassifier",
    keys={**_deep_keys(), "linear_feature_columns": "linear_features"},
    elsewhere=_DNN_ELSEWHERE,
)
@dataclass(frozen=True, kw_only=True)
class DeepFmModelConfig:
    """DeepFM: products of all pairs of embeddings, a deep and a linear part."""

    type: Annotated[Literal["deepfm"], About("DeepFM.")] = "deepfm"
    dnn: Annotated[
        ClickPart, About("The deep part; the products use the same embeddings.")
    ]
    linear_features: Annotated[
        tuple[str, ...] | None,
        About("Features of the linear part; null takes those of the deep part."),
    ] = None
    head: Annotated[BinaryHeadConfig, _HEAD] = BINARY


@described(
    "estimax.canned.DCNClassifier",
    "canned/click_models.py",
    "DCNClassifier",
    keys=_deep_keys(),
    elsewhere=_DNN_ELSEWHERE,
)
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
    head: Annotated[BinaryHeadConfig, _HEAD] = BINARY


@dataclass(frozen=True, kw_only=True)
class AttendPair:
    """A candidate and the history that it is compared with; both share a table."""

    candidate: Annotated[str, About("The categorical feature of the candidate.")]
    history: Annotated[str, About("The sequence feature of the history.")]
    dim: Annotated[int, About("Width of the embeddings.", at_least=1)]


@described(
    "estimax.canned.DINClassifier",
    "canned/click_models.py",
    "DINClassifier",
    keys=_deep_keys(),
    elsewhere=_DNN_ELSEWHERE,
)
@dataclass(frozen=True, kw_only=True)
class DinModelConfig:
    """Deep interest network: attention of a candidate over the user's history."""

    type: Annotated[Literal["din"], About("Deep interest network.")] = "din"
    attend: Annotated[
        tuple[AttendPair, ...],
        About("Pairs of candidate and history.", min_items=1, one_or_many=True),
    ]
    attention_units: Annotated[
        tuple[int, ...], About("Units of the layers of the attention.", at_least=1)
    ] = (36,)
    dnn: Annotated[InterestPart, About("The deep part.")]
    head: Annotated[BinaryHeadConfig, _HEAD] = BINARY


@described(
    "estimax.canned.MMoEEstimator",
    "canned/multi_task.py",
    "MMoEEstimator",
    keys={
        "feature_columns": "dnn.features",
        "expert_units": "dnn.expert_units",
        "tower_units": "dnn.tower_units",
        "experts": "dnn.experts",
    },
    elsewhere=_DNN_ELSEWHERE,
)
@dataclass(frozen=True, kw_only=True)
class MmoeModelConfig:
    """Several tasks over shared experts, each with its own gate and tower."""

    type: Annotated[Literal["mmoe"], About("Multi-gate mixture of experts.")] = "mmoe"
    dnn: Annotated[ExpertPart, About("Experts and towers.")]
    head: Annotated[MultiHeadConfig, About("A head for each task.")]


@described(
    "estimax.canned.ESMMClassifier",
    "canned/multi_task.py",
    "ESMMClassifier",
    keys=_deep_keys(),
    elsewhere=_DNN_ELSEWHERE,
)
@dataclass(frozen=True, kw_only=True)
class EsmmModelConfig:
    """Clicks and conversions; data.labels names the columns click and conversion."""

    type: Annotated[Literal["esmm"], About("Entire space multi-task model.")] = "esmm"
    dnn: Annotated[EntireSpacePart, About("The towers.")]


@described(
    "estimax.canned.RNNEstimator",
    "canned/rnn.py",
    "RNNEstimator",
    keys={
        "sequence_feature_columns": "rnn.sequence",
        "context_feature_columns": "rnn.context",
        "units": "rnn.units",
        "cell_type": "rnn.cell",
        "rnn_cell_fn": "rnn.cell_fn",
        "return_sequences": "rnn.return_sequences",
        "bidirectional": "rnn.bidirectional",
    },
    elsewhere={**_MODEL_ELSEWHERE, "optimizer": "`optimizers.rnn`"},
)
@described(
    "estimax.heads.SequentialHeadWrapper",
    "heads/sequential.py",
    "SequentialHeadWrapper",
    keys={"static_head": "head", "sequence_length_mask": "rnn.sequence_mask"},
    python_only={"feature_columns": "for heads with weights of each step"},
)
@dataclass(frozen=True, kw_only=True)
class RnnModelConfig:
    """A recurrent network over sequence features."""

    type: Annotated[Literal["rnn"], About("A recurrent network.")] = "rnn"
    rnn: Annotated[RnnPart, About("The recurrent layers.")]
    head: Annotated[HeadConfig, _HEAD] = BINARY


# The models of single heads, which can be trained beside others.
SingleModelConfig = (
    CombinedModelConfig
    | DnnModelConfig
    | LinearModelConfig
    | BaselineModelConfig
    | DeepFmModelConfig
    | DcnModelConfig
    | DinModelConfig
    | RnnModelConfig
)


@described(
    "estimax.canned.PerHeadEstimator",
    "canned/per_head.py",
    "PerHeadEstimator",
    keys={"head_weights": "weights"},
    elsewhere={k: _MODEL_ELSEWHERE[k] for k in ("model_dir", "config")}
    | {"warm_start_from": "`warm_start`"},
)
@dataclass(frozen=True, kw_only=True)
class PerHeadModelConfig:
    """A model of its own for each label, trained together."""

    type: Annotated[Literal["per_head"], About("A model for each head.")] = "per_head"
    models: Annotated[
        Mapping[str, SingleModelConfig],
        About("The models by name; data.labels has a column for each name."),
    ]
    weights: Annotated[
        Mapping[str, float], About("Weight of the loss of a model; by default 1.")
    ] = field(default_factory=dict)

    @property
    def head(self) -> MultiHeadConfig:
        """The heads of the models as one, for metrics and labels."""
        heads = {name: model.head for name, model in self.models.items()}
        return MultiHeadConfig(heads=heads, weights=self.weights)


KMeansModelConfig = derive(
    "KMeansModelConfig",
    "canned/kmeans.py",
    "KMeans",
    calls="estimax.canned.KMeans",
    tag=("type", "kmeans"),
    tag_doc="k-means clustering.",
    keys={"num_clusters": "clusters", "feature_columns": "features"},
    elsewhere={k: _MODEL_ELSEWHERE[k] for k in ("model_dir", "config")},
    kinds={
        "initial_clusters": Literal["random", "kmeans_plus_plus"]
        | tuple[tuple[float, ...], ...]
        | CodeName,
        "distance_metric": Literal["squared_euclidean", "cosine"],
        "feature_columns": DeepFeatures,
    },
    limits={
        "num_clusters": About("Number of clusters.", at_least=1),
        "mini_batch_steps_per_iteration": About("", at_least=1),
        "kmeans_plus_plus_num_retries": About("", at_least=0),
        "relative_tolerance": About("", above=0),
        "feature_columns": About("The features to cluster by; null takes all."),
    },
)


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


@described(
    "estimax.estimator.Estimator",
    "estimator/estimator.py",
    "Estimator",
    elsewhere={
        k: v for k, v in _MODEL_ELSEWHERE.items() if k not in ("head", "weight_column")
    },
)
@dataclass(frozen=True, kw_only=True)
class ModelFnConfig:
    """A `model_fn` of your own, as `ex.Estimator(model_fn, params=...)`."""

    model_fn: Annotated[CodeName, About('"package.module:name" of the model_fn.')]
    params: Annotated[
        Mapping[str, Any],
        About("`params` of the model_fn; `columns` is a dict of all feature columns."),
    ] = field(default_factory=dict)


if TYPE_CHECKING:
    ModelConfig = Any  # KMeansModelConfig is made at run time
else:
    ModelConfig = (
        CombinedModelConfig
        | DnnModelConfig
        | LinearModelConfig
        | BaselineModelConfig
        | DeepFmModelConfig
        | DcnModelConfig
        | DinModelConfig
        | MmoeModelConfig
        | EsmmModelConfig
        | RnnModelConfig
        | PerHeadModelConfig
        | KMeansModelConfig
        | CustomModelConfig
        | ModelFnConfig
    )
