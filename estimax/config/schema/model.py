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

model: {type: tabular, head: {type: regression}}     # all features, default sizes

model:
  type: average         # the weighted mean of several models of one label
  models: {network: {type: tabular}, linear: {type: linear, linear: {...}}}

model:
  type: per_head        # a model of its own for each label
  models:
    click: {type: linear, linear: {features: [city]}}
    seconds: {type: dnn, dnn: {...}, head: {type: regression}}
  weights: {seconds: 0.5}

model: {class: "my_package.models:MyEstimator", params: {depth: 3}}
model: {model_fn: "my_package.models:model_fn", params: {depth: 3}}

`build_model` makes an estimator of `estimax.canned` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from estimax.config.schema.heads import BinaryHeadConfig, HeadConfig, MultiHeadConfig
from estimax.config.schema.section import (
    CodeName,
    Fraction,
    Items,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    calls,
)

Initializer = Literal[
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
]
Activation = Literal[
    "relu", "elu", "gelu", "leaky_relu", "selu", "silu", "sigmoid", "tanh"
]
BINARY = BinaryHeadConfig()  # the default head


@dataclass(frozen=True, kw_only=True)
class InitializerConfig:
    """An initializer of `jax.nn.initializers`.

    Args:
      name: The function that makes it.
      args: Its arguments, such as {stddev: 0.01}.
    """

    name: Initializer
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PretrainedConfig:
    """A table that is loaded from a checkpoint when the model is first initialized.

    Args:
      checkpoint: A checkpoint or model directory, of estimax or of TensorFlow.
      variable: The name of the table there.
    """

    checkpoint: str
    variable: str


@dataclass(frozen=True, kw_only=True)
class EmbeddingGroup:
    """Categorical features with embeddings of one width.

    Args:
      dim: Width of the embeddings.
      of: The categorical features.
      combiner: How several values of a feature in one row are combined.
      initializer: Initial values; by default a truncated normal of deviation
        1/sqrt(dim).
      pretrained: Load the tables from a checkpoint.
      max_norm: Clip each row to this norm when it is looked up.
      trainable: Whether the tables are trained.
      safe_lookup: Ignore ids below 0 and rows without values.
      row_updates: Update only the rows of the batch, where the optimizer can.
      shared: One table for all features of the group.
      shared_name: The name of the shared table; null makes one.
    """

    dim: PositiveInt
    of: Annotated[tuple[str, ...], Items(at_least=1)]
    combiner: Literal["sum", "mean", "sqrtn"] = "mean"
    initializer: InitializerConfig | CodeName | None = None
    pretrained: PretrainedConfig | None = None
    max_norm: PositiveFloat | None = None
    trainable: bool = True
    safe_lookup: bool = True
    row_updates: bool = True
    shared: bool = False
    shared_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeepFeatures:
    """The features of a dense part, by how they enter the first layer.

    Args:
      numeric: Numeric features.
      embedding: Categorical features as embeddings; one group, or a list of groups.
      indicator: Categorical features, one-hot encoded.
    """

    numeric: tuple[str, ...] = ()
    embedding: Annotated[tuple[EmbeddingGroup, ...], Items(or_one=True)] = ()
    indicator: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LinearPart:
    """The linear (wide) part: a weight for every value of every feature.

    Args:
      features: Any features.
      combiner: How several values of a feature in one row are combined.
    """

    features: Annotated[tuple[str, ...], Items(at_least=1)]
    combiner: Literal["sum", "mean", "sqrtn"] = "sum"


class ModelPartSection:
    """The descriptions of keys that several dense parts have.

    Args:
      features: The inputs of the first layer.
      hidden_units: Number of units of each hidden layer.
      dropout: Probability to drop a unit in training.
    """


@dataclass(frozen=True, kw_only=True)
class DnnPart(ModelPartSection):
    """The deep part: hidden layers over the concatenated features.

    Args:
      activation: Activation function of each hidden layer.
      activation_fn: A function of your own instead of `activation`.
      batch_norm: Batch normalisation after each layer.
    """

    features: DeepFeatures
    hidden_units: Annotated[tuple[PositiveInt, ...], Items(at_least=1)]
    activation: Literal[
        "relu", "elu", "gelu", "leaky_relu", "selu", "silu", "sigmoid", "tanh"
    ] = "relu"
    activation_fn: CodeName | None = None
    dropout: Fraction | None = None
    batch_norm: bool = False


@dataclass(frozen=True, kw_only=True)
class ClickPart(ModelPartSection):
    """The deep part of a click model: hidden layers with relu."""

    features: DeepFeatures
    hidden_units: Annotated[tuple[PositiveInt, ...], Items(at_least=1)]
    dropout: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class InterestPart(ModelPartSection):
    """The deep part of a deep interest network.

    Args:
      features: The inputs besides the pairs of `attend`.
    """

    features: DeepFeatures = DeepFeatures()
    hidden_units: Annotated[tuple[PositiveInt, ...], Items(at_least=1)]
    dropout: Fraction | None = None


@dataclass(frozen=True, kw_only=True)
class ExpertPart(ModelPartSection):
    """The shared experts and the towers of a mixture of experts.

    Args:
      expert_units: Number of units of each hidden layer.
      tower_units: Number of units of each hidden layer of a task's tower.
      experts: Number of experts.
    """

    features: DeepFeatures
    expert_units: Annotated[tuple[PositiveInt, ...], Items(at_least=1)] = (128,)
    tower_units: tuple[PositiveInt, ...] = (64,)
    experts: PositiveInt = 4


@dataclass(frozen=True, kw_only=True)
class EntireSpacePart(ModelPartSection):
    """The towers of an entire space multi-task model."""

    features: DeepFeatures
    hidden_units: Annotated[tuple[PositiveInt, ...], Items(at_least=1)]


@dataclass(frozen=True, kw_only=True)
class TabularPart(ModelPartSection):
    """The network of a tabular model; null chooses a size by the number of rows.

    Args:
      features: The features, of any kind; null takes all. Numeric ones are encoded by
        bins, categorical ones are one-hot or embeddings.
      members: Number of members, which share weights and are averaged.
      bins: Largest number of bins of a numeric feature; null chooses it.
      train_rows: Number of training rows, for the sizes; null counts them.
    """

    features: Annotated[tuple[str, ...], Items(at_least=1)] | None = None
    hidden_units: Annotated[tuple[PositiveInt, ...], Items(at_least=1)] | None = None
    members: PositiveInt | None = None
    dropout: Fraction | None = None
    bins: PositiveInt | None = None
    train_rows: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class RnnPart:
    """Recurrent layers over sequence features.

    Args:
      sequence: The sequence features (those with `sequence: true`).
      context: Features without a sequence, added to each step.
      units: Units of each recurrent layer.
      cell: The kind of layer; null is simple_rnn.
      cell_fn: A function of your own that returns the cell, instead of units.
      bidirectional: Read the sequence in both directions.
      return_sequences: Predict a value for each step instead of one for the sequence.
      sequence_mask: Key of the mask of steps, with return_sequences.
    """

    sequence: DeepFeatures
    context: DeepFeatures | None = None
    units: Annotated[tuple[PositiveInt, ...], Items(or_one=True)] | None = None
    cell: Literal["simple_rnn", "lstm", "gru"] | None = None
    cell_fn: CodeName | None = None
    bidirectional: bool = False
    return_sequences: bool = False
    sequence_mask: str = "sequence_mask"


class ModelSection:
    """The description of the head that most models have.

    Args:
      linear: The linear part.
      dnn: The deep part.
      head: What the model is trained for: its loss, predictions and metrics.
    """


@calls("estimax.canned.DNNLinearCombinedEstimator")
@dataclass(frozen=True, kw_only=True)
class CombinedModelConfig(ModelSection):
    """A wide-and-deep model: the sum of the logits of both parts.

    Args:
      type: Wide and deep.
    """

    type: Literal["dnn_linear_combined"] = "dnn_linear_combined"
    linear: LinearPart
    dnn: DnnPart
    head: HeadConfig = BINARY


@calls("estimax.canned.DNNEstimator")
@dataclass(frozen=True, kw_only=True)
class DnnModelConfig(ModelSection):
    """A fully connected network.

    Args:
      type: A fully connected network.
    """

    type: Literal["dnn"] = "dnn"
    dnn: DnnPart
    head: HeadConfig = BINARY


@calls("estimax.canned.LinearEstimator")
@dataclass(frozen=True, kw_only=True)
class LinearModelConfig(ModelSection):
    """A linear model.

    Args:
      type: A linear model.
    """

    type: Literal["linear"] = "linear"
    linear: LinearPart
    head: HeadConfig = BINARY


@calls("estimax.canned.BaselineEstimator")
@dataclass(frozen=True, kw_only=True)
class BaselineModelConfig(ModelSection):
    """A baseline that ignores the features: it predicts the mean of the labels.

    Args:
      type: A baseline.
    """

    type: Literal["baseline"] = "baseline"
    head: HeadConfig = BINARY


@calls("estimax.canned.DeepFMClassifier")
@dataclass(frozen=True, kw_only=True)
class DeepFmModelConfig(ModelSection):
    """DeepFM: products of all pairs of embeddings, a deep and a linear part.

    Args:
      type: DeepFM.
      dnn: The deep part; the products use the same embeddings.
      linear_features: Features of the linear part; null takes those of the deep part.
    """

    type: Literal["deepfm"] = "deepfm"
    dnn: ClickPart
    linear_features: tuple[str, ...] | None = None
    head: BinaryHeadConfig = BINARY


@calls("estimax.canned.DCNClassifier")
@dataclass(frozen=True, kw_only=True)
class DcnModelConfig(ModelSection):
    """Deep & Cross v2: cross layers, x0 * (W x + b) + x, and a deep part.

    Args:
      type: Deep & Cross, version 2.
      dnn: The deep part; the cross layers have the same inputs.
      cross_layers: Number of cross layers.
      projection: Rank of the cross layers' weights; null for full rank.
      structure: The deep part runs beside the cross layers, or on their output.
    """

    type: Literal["dcn"] = "dcn"
    dnn: ClickPart
    cross_layers: PositiveInt = 3
    projection: PositiveInt | None = None
    structure: Literal["parallel", "stacked"] = "parallel"
    head: BinaryHeadConfig = BINARY


@dataclass(frozen=True, kw_only=True)
class AttendPair:
    """A candidate and the history that it is compared with; both share a table.

    Args:
      candidate: The categorical feature of the candidate.
      history: The sequence feature of the history.
      dim: Width of the embeddings.
    """

    candidate: str
    history: str
    dim: PositiveInt


@calls("estimax.canned.DINClassifier")
@dataclass(frozen=True, kw_only=True)
class DinModelConfig(ModelSection):
    """Deep interest network: attention of a candidate over the user's history.

    Args:
      type: Deep interest network.
      attend: Pairs of candidate and history.
      attention_units: Units of the layers of the attention.
    """

    type: Literal["din"] = "din"
    attend: Annotated[tuple[AttendPair, ...], Items(at_least=1, or_one=True)]
    attention_units: tuple[PositiveInt, ...] = (36,)
    dnn: InterestPart
    head: BinaryHeadConfig = BINARY


@calls("estimax.canned.MMoEEstimator")
@dataclass(frozen=True, kw_only=True)
class MmoeModelConfig:
    """Several tasks over shared experts, each with its own gate and tower.

    Args:
      type: Multi-gate mixture of experts.
      dnn: Experts and towers.
      head: A head for each task.
    """

    type: Literal["mmoe"] = "mmoe"
    dnn: ExpertPart
    head: MultiHeadConfig


@calls("estimax.canned.ESMMClassifier")
@dataclass(frozen=True, kw_only=True)
class EsmmModelConfig:
    """Clicks and conversions; data.labels names the columns click and conversion.

    Args:
      type: Entire space multi-task model.
      dnn: The towers.
    """

    type: Literal["esmm"] = "esmm"
    dnn: EntireSpacePart


@calls("estimax.canned.RNNEstimator")
@dataclass(frozen=True, kw_only=True)
class RnnModelConfig(ModelSection):
    """A recurrent network over sequence features.

    Args:
      type: A recurrent network.
      rnn: The recurrent layers.
    """

    type: Literal["rnn"] = "rnn"
    rnn: RnnPart
    head: HeadConfig = BINARY


@calls("estimax.canned.TabularEstimator")
@dataclass(frozen=True, kw_only=True)
class TabularModelConfig(ModelSection):
    """A network for tables: numbers by bins, and members that share weights.

    Args:
      type: A network for tables.
      dnn: The network.
    """

    type: Literal["tabular"] = "tabular"
    dnn: TabularPart = TabularPart()
    head: HeadConfig = BINARY


@calls("estimax.canned.BoostedTreesEstimator", {"features": "feature_columns"})
@dataclass(frozen=True, kw_only=True)
class BoostedTreesModelConfig(ModelSection):
    """Gradient boosted trees, which LightGBM trains; a step is an iteration.

    Args:
      type: Gradient boosted trees.
      features: The features; null takes all.
      n_trees: Number of iterations, at most.
      max_depth: Most levels of a tree; -1 for no limit.
      learning_rate: What the values of new leaves are multiplied by.
      l1_regularization: L1 penalty of leaf values, per row.
      l2_regularization: L2 penalty of leaf values, per row.
      tree_complexity: Least gain of a split, per row.
      min_node_weight: Least share of the sum of hessians in a leaf, per row.
      center_bias: Whether the first tree starts at the best constant answer.
      pruning_mode: Whether splits are pruned; "post" is the same as "pre".
      quantile_sketch_epsilon: Numbers are divided into 1 / epsilon bins.
      num_leaves: Most leaves of a tree; null is 2 ** max_depth, or 31 without a limit.
      min_data_in_leaf: Least rows in a leaf.
      subsample: Share of the rows that each tree is grown on.
      feature_fraction: Share of the columns that each tree is grown on.
      early_stopping_rounds: Stop if the loss of the evaluation data was not better for
        so many iterations; null does not stop.
      parameters: Further parameters of LightGBM by name.
    """

    type: Literal["boosted_trees"] = "boosted_trees"
    features: Annotated[tuple[str, ...], Items(at_least=1)] | None = None
    n_trees: PositiveInt = 100
    max_depth: int = 6
    learning_rate: PositiveFloat = 0.1
    l1_regularization: NonNegativeFloat = 0.0
    l2_regularization: NonNegativeFloat = 0.0
    tree_complexity: NonNegativeFloat = 0.0
    min_node_weight: NonNegativeFloat = 0.0
    center_bias: bool = False
    pruning_mode: Literal["none", "pre", "post"] = "none"
    quantile_sketch_epsilon: PositiveFloat = 0.01
    num_leaves: PositiveInt | None = None
    min_data_in_leaf: PositiveInt = 1
    subsample: PositiveFloat = 1.0
    feature_fraction: PositiveFloat = 1.0
    early_stopping_rounds: PositiveInt | None = None
    parameters: Mapping[str, Any] | None = None
    head: HeadConfig = BINARY


@calls("estimax.canned.RandomForestEstimator", {"features": "feature_columns"})
@dataclass(frozen=True, kw_only=True)
class RandomForestModelConfig(ModelSection):
    """A random forest, which LightGBM trains; a step is an iteration.

    Args:
      type: A random forest.
      features: The features; null takes all.
      n_trees: Number of iterations: a tree, or one for each class.
      max_depth: Most levels of a tree; -1 for no limit.
      num_leaves: Most leaves of a tree.
      min_data_in_leaf: Least rows in a leaf; null is 5.
      subsample: Share of the rows that each tree is grown on.
      feature_fraction: Share of the columns tried at each split; null is the square
        root of their number for classes, a third of them for numbers.
      l2_regularization: L2 penalty of leaf values, per row.
      parameters: Further parameters of LightGBM by name.
    """

    type: Literal["random_forest"] = "random_forest"
    features: Annotated[tuple[str, ...], Items(at_least=1)] | None = None
    n_trees: PositiveInt = 100
    max_depth: int = -1
    num_leaves: PositiveInt = 1024
    min_data_in_leaf: PositiveInt | None = None
    subsample: PositiveFloat = 0.632
    feature_fraction: PositiveFloat | None = None
    l2_regularization: NonNegativeFloat = 0.0
    parameters: Mapping[str, Any] | None = None
    head: HeadConfig = BINARY


TREES = BoostedTreesModelConfig | RandomForestModelConfig


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
    | TabularModelConfig
)


@calls("estimax.canned.PerHeadEstimator")
@dataclass(frozen=True, kw_only=True)
class PerHeadModelConfig:
    """A model of its own for each label, trained together.

    Args:
      type: A model for each head.
      models: The models by name; data.labels has a column for each name.
      weights: Weight of the loss of a model; by default 1.
    """

    type: Literal["per_head"] = "per_head"
    models: Mapping[str, SingleModelConfig]
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def head(self) -> MultiHeadConfig:
        """The heads of the models as one, for metrics and labels."""
        heads: Any = {name: model.head for name, model in self.models.items()}
        return MultiHeadConfig(heads=heads, weights=self.weights)


# The models of an average, which are trained one after the other.
MemberModelConfig = SingleModelConfig | TREES


@calls(
    "estimax.canned.AverageEstimator", {"models": "members", "held_out": "held_out_fn"}
)
@dataclass(frozen=True, kw_only=True)
class AverageModelConfig:
    """The average of several models of one label, with weights found on held-out rows.

    Args:
      type: An average of models.
      models: The models by name. They have the head of the average, and checkpoints in
        members/NAME of the model directory.
      held_out: The source on which checkpoints and weights are chosen; null takes the
        source of eval, and without one equal weights.
      patience_steps: A model stops if its loss on the held-out rows has not decreased
        for this many steps; null trains it to its end.
      seeds: Train each model so many times, with the seeds of the run and the numbers
        after it, and average all of them. The models are named NAME_seed_1, and so on.
      head: What all models are trained for: their loss, predictions and metrics.
    """

    type: Literal["average"] = "average"
    models: Mapping[str, MemberModelConfig]
    held_out: str | None = None
    patience_steps: PositiveInt | None = None
    seeds: PositiveInt = 1
    head: HeadConfig = BINARY

    def member(self, name: str, seed: int = 0) -> str:
        """Return the name of a model with a seed, counted from 0."""
        return name if self.seeds == 1 else f"{name}_seed_{seed + 1}"


# The sections whose models have names of their own.
SeveralModelsConfig = PerHeadModelConfig | AverageModelConfig


@calls(
    "estimax.canned.KMeans", {"clusters": "num_clusters", "features": "feature_columns"}
)
@dataclass(frozen=True, kw_only=True)
class KMeansModelConfig:
    """k-means clustering: find centers with small distances to their nearest points.

    Args:
      type: k-means clustering.
      clusters: Number of clusters.
      initial_clusters: "random" (distinct points of the first batch),
        "kmeans_plus_plus" (points of the first batch far from each other), an array
        [num_clusters, D], or a function of (points, num_clusters) that returns one.
      distance_metric: "squared_euclidean" or "cosine".
      seed: Seed of the initial centers. None: that of the run.
      use_mini_batch: Whether a center is the mean of all points assigned to it so far.
        False: a center is the mean of its points in the batch, so every batch should be
        all the data (Lloyd's algorithm).
      mini_batch_steps_per_iteration: With mini-batches, number of steps after which the
        centers that points are compared with are updated.
      kmeans_plus_plus_num_retries: How many more candidates k-means++ draws for each
        center; it keeps the best.
      relative_tolerance: Stop when the loss changes by less than this share of itself
        from one step to the next. None: do not stop.
      features: The features to cluster by; null takes all.
    """

    type: Literal["kmeans"] = "kmeans"
    clusters: PositiveInt
    initial_clusters: (
        Literal["random", "kmeans_plus_plus"] | tuple[tuple[float, ...], ...] | CodeName
    ) = "random"
    distance_metric: Literal["squared_euclidean", "cosine"] = "squared_euclidean"
    seed: int | None = None
    use_mini_batch: bool = True
    mini_batch_steps_per_iteration: PositiveInt = 1
    kmeans_plus_plus_num_retries: NonNegativeInt = 2
    relative_tolerance: PositiveFloat | None = None
    features: DeepFeatures | None = None


@dataclass(frozen=True, kw_only=True)
class CustomModelConfig:
    """An estimator class of your own.

    It is called with `params` as keyword arguments and with `config=RunConfig(...)`. If
    it has an argument `feature_columns`, it gets a dict of all columns by feature name.

    Args:
      class_: "package.module:Name" of a class or function that returns one.
      params: Keyword arguments, checked against the signature.
    """

    class_: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelFnConfig:
    """A `model_fn` of your own, as `ex.Estimator(model_fn, params=...)`.

    Args:
      model_fn: "package.module:name" of the model_fn.
      params: `params` of the model_fn; `columns` is a dict of all feature columns.
    """

    model_fn: CodeName
    params: Mapping[str, Any] = field(default_factory=dict)


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
    | TabularModelConfig
    | BoostedTreesModelConfig
    | RandomForestModelConfig
    | PerHeadModelConfig
    | AverageModelConfig
    | KMeansModelConfig
    | CustomModelConfig
    | ModelFnConfig
)
