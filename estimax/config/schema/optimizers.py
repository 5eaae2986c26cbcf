"""The section `optimizers`: an optimizer for each part of the model.

optimizers:
  linear: {type: ftrl, learning_rate: 0.05, l1: 0.001}
  dnn:
    type: adam
    learning_rate: {schedule: cosine, initial: 1e-3, decay_steps: 20000}

A section stands for a constructor in `estimax.optimizers` and has the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from estimax.config.schema.section import (
    CodeName,
    Decay,
    Items,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    calls,
)

# ------------------------------------------------------------------------- schedules
_SCHEDULE_ARGUMENTS = {"initial": "learning_rate", "end": "end_learning_rate"}


class ScheduleSection:
    """The descriptions of keys that several schedules have.

    Args:
      initial: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      staircase: Whether the rate stays constant for `decay_steps` steps at a time.
      num_periods: The number of periods of the cosine within `decay_steps`.
      alpha: Added to the line.
      beta: Added to the product.
    """


@calls("estimax.optimizers.exponential_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class ExponentialConfig(ScheduleSection):
    """Return the schedule learning_rate * decay_rate ** (step / decay_steps).

    Args:
      schedule: `ex.optimizers.exponential_decay`.
      decay_rate: The factor per `decay_steps` steps, e.g. 0.96.
    """

    schedule: Literal["exponential"] = "exponential"
    initial: PositiveFloat
    decay_steps: PositiveInt
    decay_rate: PositiveFloat
    staircase: bool = False


@calls("estimax.optimizers.natural_exp_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class NaturalExpConfig(ScheduleSection):
    """Return the schedule learning_rate * exp(-decay_rate * step / decay_steps).

    Args:
      schedule: `ex.optimizers.natural_exp_decay`.
      decay_rate: The decay of the exponent per `decay_steps` steps.
    """

    schedule: Literal["natural_exp"] = "natural_exp"
    initial: PositiveFloat
    decay_steps: PositiveInt
    decay_rate: PositiveFloat
    staircase: bool = False


@calls("estimax.optimizers.inverse_time_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class InverseTimeConfig(ScheduleSection):
    """Return the schedule learning_rate / (1 + decay_rate * step / decay_steps).

    Args:
      schedule: `ex.optimizers.inverse_time_decay`.
      decay_rate: The growth of the divisor per `decay_steps` steps.
    """

    schedule: Literal["inverse_time"] = "inverse_time"
    initial: PositiveFloat
    decay_steps: PositiveInt
    decay_rate: PositiveFloat
    staircase: bool = False


@calls("estimax.optimizers.polynomial_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class PolynomialConfig(ScheduleSection):
    """Return a schedule that falls to `end_learning_rate` as a power of the steps left.

    Args:
      schedule: `ex.optimizers.polynomial_decay`.
      end: The learning rate at `decay_steps` and after.
      power: The exponent; 1 is a straight line.
      cycle: Whether to start again when the decay has ended. The n-th period lasts
        until n * decay_steps and starts from a lower rate than the one before.
    """

    schedule: Literal["polynomial"] = "polynomial"
    initial: PositiveFloat
    decay_steps: PositiveInt
    end: NonNegativeFloat = 0.0001
    power: PositiveFloat = 1.0
    cycle: bool = False


@calls("estimax.optimizers.cosine_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class CosineConfig(ScheduleSection):
    """Return a schedule along half a cosine, from `learning_rate` to `alpha` times it.

    Args:
      schedule: `ex.optimizers.cosine_decay`.
      initial: The highest rate.
      decay_steps: The number of steps of the cosine, without the warm-up; positive.
      alpha: The final learning rate, as a share of the highest.
      warmup_steps: Steps in which the rate first rises from 0 to initial.
    """

    schedule: Literal["cosine"] = "cosine"
    initial: PositiveFloat
    decay_steps: PositiveInt
    alpha: Share = 0.0
    warmup_steps: NonNegativeInt = 0


@calls("estimax.optimizers.cosine_decay_restarts", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class CosineRestartsConfig(ScheduleSection):
    """Return a schedule of consecutive cosine decays, each of which starts high again.

    Args:
      schedule: `ex.optimizers.cosine_decay_restarts`.
      first_decay_steps: The number of steps of the first period, positive.
      t_mul: The length of a period relative to the one before, 1 or more.
      m_mul: The height of a period relative to the one before.
      alpha: The lowest learning rate, as a share of `learning_rate`.
    """

    schedule: Literal["cosine_restarts"] = "cosine_restarts"
    initial: PositiveFloat
    first_decay_steps: PositiveInt
    t_mul: Annotated[float, Limits(at_least=1)] = 2.0
    m_mul: PositiveFloat = 1.0
    alpha: Share = 0.0


@calls("estimax.optimizers.linear_cosine_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class LinearCosineConfig(ScheduleSection):
    """Return a schedule that is a falling line times a cosine.

    Args:
      schedule: `ex.optimizers.linear_cosine_decay`.
    """

    schedule: Literal["linear_cosine"] = "linear_cosine"
    initial: PositiveFloat
    decay_steps: PositiveInt
    num_periods: float = 0.5
    alpha: Share = 0.0
    beta: float = 0.001


@calls("estimax.optimizers.noisy_linear_cosine_decay", _SCHEDULE_ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class NoisyLinearCosineConfig(ScheduleSection):
    """Return `linear_cosine_decay` with Gaussian noise added to the line.

    Args:
      schedule: `ex.optimizers.noisy_linear_cosine_decay`.
      initial_variance: The variance of the noise at step 0.
      variance_decay: The variance is divided by (1 + step) to this power.
      seed: The seed of the noise.
    """

    schedule: Literal["noisy_linear_cosine"] = "noisy_linear_cosine"
    initial: PositiveFloat
    decay_steps: PositiveInt
    initial_variance: NonNegativeFloat = 1.0
    variance_decay: float = 0.55
    num_periods: float = 0.5
    alpha: Share = 0.0
    beta: float = 0.001
    seed: int = 0


@calls("estimax.optimizers.piecewise_constant")
@dataclass(frozen=True, kw_only=True)
class PiecewiseConfig(ScheduleSection):
    """Return a schedule that is constant between boundaries.

    Args:
      schedule: `ex.optimizers.piecewise_constant`.
      boundaries: The last step of each rate except the last.
      values: The rates, one more than boundaries.
    """

    schedule: Literal["piecewise"] = "piecewise"
    boundaries: Annotated[tuple[PositiveInt, ...], Items(at_least=1)]
    values: Annotated[tuple[PositiveFloat, ...], Items(at_least=2)]


PlainScheduleConfig = (
    ExponentialConfig
    | NaturalExpConfig
    | InverseTimeConfig
    | PolynomialConfig
    | CosineConfig
    | CosineRestartsConfig
    | LinearCosineConfig
    | NoisyLinearCosineConfig
    | PiecewiseConfig
)


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """A rate that first rises from 0 linearly, then follows another schedule.

    Args:
      schedule: `ex.optimizers.linear_warmup`.
      then: The rate afterwards: a number, or a schedule.
      warmup_steps: Steps of the rise.
    """

    schedule: Literal["warmup"] = "warmup"
    then: PositiveFloat | PlainScheduleConfig
    warmup_steps: PositiveInt


ScheduleConfig = PlainScheduleConfig | WarmupConfig
Rate = PositiveFloat | ScheduleConfig

# ------------------------------------------------------------------------ optimizers
Generation = Literal["v1", "legacy", "keras"]
_ARGUMENTS = {
    "clip_global_norm": "global_clipnorm",
    "clip_norm": "clipnorm",
    "clip_value": "clipvalue",
    "initial_accumulator": "initial_accumulator_value",
    "l1": "l1_regularization_strength",
    "l2": "l2_regularization_strength",
    "l2_shrinkage": "l2_shrinkage_regularization_strength",
}


class OptimizerSection:
    """The descriptions of keys that several optimizers have.

    Args:
      learning_rate: The learning rate: a number, or a schedule.
      nesterov: Whether to use Nesterov momentum.
      generation: Whose formula to use where they differ: "legacy" (tf.estimator), "v1"
        (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      clip_value: Clip each element of the gradients to +-this.
      clip_norm: Clip the gradient of each variable to this norm.
      clip_global_norm: Clip gradients to this global norm.
      decay: Divide the learning rate by 1 + decay * step.
      beta_1: Decay of the mean of gradients, in [0, 1).
      beta_2: Decay of the mean of squared gradients, in [0, 1).
      amsgrad: Whether to divide by the largest mean of squares so far.
      epsilon: Added to the root of the uncorrected mean of squares. None: 1e-7.
      l1: Weight of |w| in the loss, 0 or more.
      l2: Weight of w² in the loss, 0 or more.
    """


@calls("estimax.optimizers.SGD", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class SgdConfig(OptimizerSection):
    """Stochastic gradient descent, with momentum if given.

    Args:
      type: `ex.optimizers.SGD`.
      momentum: Share of the last change that is repeated, between 0 and 1.
    """

    type: Literal["sgd"] = "sgd"
    learning_rate: Rate
    momentum: Share = 0.0
    nesterov: bool = False
    generation: Generation = "legacy"
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Momentum", {**_ARGUMENTS, "nesterov": "use_nesterov"})
@dataclass(frozen=True, kw_only=True)
class MomentumConfig(OptimizerSection):
    """Gradient descent with the momentum of `tf.compat.v1.train.MomentumOptimizer`.

    Args:
      type: `ex.optimizers.Momentum`.
      momentum: Share of the velocity that is kept in each step.
    """

    type: Literal["momentum"] = "momentum"
    learning_rate: Rate
    momentum: Share
    nesterov: bool = False
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Adagrad", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class AdagradConfig(OptimizerSection):
    """Adagrad: divide each step by the root of the sum of squared gradients.

    Args:
      type: `ex.optimizers.Adagrad`.
      initial_accumulator: Initial sum of squares, 0 or more (positive in "v1").
      epsilon: Added to the root against division by 0. None: 1e-7, and 0 in "v1".
    """

    type: Literal["adagrad"] = "adagrad"
    learning_rate: Rate
    initial_accumulator: NonNegativeFloat = 0.1
    epsilon: PositiveFloat | None = None
    generation: Generation = "legacy"
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Adadelta", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class AdadeltaConfig(OptimizerSection):
    """Adadelta: steps scaled by the ratio of past changes to past gradients.

    Args:
      type: `ex.optimizers.Adadelta`.
      rho: Decay of both running means.
      epsilon: Added under both roots. None: 1e-7, and 1e-8 in "v1".
    """

    type: Literal["adadelta"] = "adadelta"
    learning_rate: Rate
    rho: Decay = 0.95
    epsilon: PositiveFloat | None = None
    generation: Generation = "legacy"
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Adam", _ARGUMENTS, own=("lazy",))
@dataclass(frozen=True, kw_only=True)
class AdamConfig(OptimizerSection):
    """Adam: a running mean of gradients divided by the root of that of their squares.

    Args:
      type: `ex.optimizers.Adam`.
      epsilon: Added to the root of the uncorrected mean of squares. None: 1e-7, and
        1e-8 in "v1".
      lazy: Update only the embedding rows that are in the batch
        (`ex.optimizers.LazyAdam`).
    """

    type: Literal["adam"] = "adam"
    learning_rate: Rate
    beta_1: Decay = 0.9
    beta_2: Decay = 0.999
    epsilon: PositiveFloat | None = None
    amsgrad: bool = False
    generation: Generation = "legacy"
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None
    lazy: bool = False


@calls("estimax.optimizers.LazyAdam", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class LazyAdamConfig(OptimizerSection):
    """Adam for large tables: rows without a gradient and their moments do not change.

    Args:
      type: `ex.optimizers.LazyAdam`.
    """

    type: Literal["lazy_adam"] = "lazy_adam"
    learning_rate: Rate
    beta_1: Decay = 0.9
    beta_2: Decay = 0.999
    epsilon: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.AdamW", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class AdamWConfig(OptimizerSection):
    """Adam with decoupled weight decay: w -= lr * weight_decay * w before each step.

    Args:
      type: `ex.optimizers.AdamW`.
      weight_decay: Share of the variable removed per step, times the learning rate.
    """

    type: Literal["adamw"] = "adamw"
    learning_rate: Rate
    weight_decay: NonNegativeFloat = 0.004
    beta_1: Decay = 0.9
    beta_2: Decay = 0.999
    epsilon: PositiveFloat | None = None
    amsgrad: bool = False
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Adamax", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class AdamaxConfig(OptimizerSection):
    """Adam with a decaying maximum of |g| in place of the root of the second moment.

    Args:
      type: `ex.optimizers.Adamax`.
      beta_2: Decay of the maximum, in [0, 1).
      epsilon: Added to the maximum. None: 1e-7.
    """

    type: Literal["adamax"] = "adamax"
    learning_rate: Rate
    beta_1: Decay = 0.9
    beta_2: Decay = 0.999
    epsilon: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Nadam", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class NadamConfig(OptimizerSection):
    """Adam with Nesterov momentum, as in Keras' legacy Nadam.

    Args:
      type: `ex.optimizers.Nadam`.
      epsilon: Added to the root of the corrected mean of squares. None: 1e-7.
    """

    type: Literal["nadam"] = "nadam"
    learning_rate: Rate
    beta_1: Decay = 0.9
    beta_2: Decay = 0.999
    epsilon: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.RMSProp", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class RmsPropConfig(OptimizerSection):
    """RMSProp: divide each step by the root of a running mean of squared gradients.

    Args:
      type: `ex.optimizers.RMSProp`.
      rho: Decay of the running mean; TensorFlow 1 calls it `decay`.
      momentum: Share of the last change that is repeated. 0: no velocity is kept.
      epsilon: Added to or under the root. None: 1e-7, and 1e-10 in "v1".
      centered: Whether to subtract the squared mean of gradients (their variance).
    """

    type: Literal["rmsprop"] = "rmsprop"
    learning_rate: Rate
    rho: Decay = 0.9
    momentum: Share = 0.0
    epsilon: PositiveFloat | None = None
    centered: bool = False
    generation: Generation = "legacy"
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.Ftrl", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class FtrlConfig(OptimizerSection):
    """FTRL-proximal, the usual optimizer of linear models over sparse features.

    Args:
      type: `ex.optimizers.Ftrl`.
      learning_rate_power: Exponent of the sum of squares, 0 or less. 0 keeps the
        learning rate fixed.
      initial_accumulator: Initial sum of squares, 0 or more.
      l2_shrinkage: Weight of an l2 penalty that is added to the gradient, 0 or more. It
        shrinks w; `l2_regularization_strength` stabilizes the update.
      beta: Added to l2 as beta / (2 * learning_rate), as in the FTRL paper.
    """

    type: Literal["ftrl"] = "ftrl"
    learning_rate: Rate
    learning_rate_power: Annotated[float, Limits(at_most=0)] = -0.5
    initial_accumulator: NonNegativeFloat = 0.1
    l1: NonNegativeFloat = 0.0
    l2: NonNegativeFloat = 0.0
    l2_shrinkage: NonNegativeFloat = 0.0
    beta: NonNegativeFloat = 0.0
    generation: Generation = "legacy"
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.ProximalAdagrad", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class ProximalAdagradConfig(OptimizerSection):
    """Adagrad followed by a proximal step, which shrinks w by l1 and l2.

    Args:
      type: `ex.optimizers.ProximalAdagrad`.
      initial_accumulator: Initial sum of squares, positive.
    """

    type: Literal["proximal_adagrad"] = "proximal_adagrad"
    learning_rate: Rate
    initial_accumulator: NonNegativeFloat = 0.1
    l1: NonNegativeFloat = 0.0
    l2: NonNegativeFloat = 0.0
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@calls("estimax.optimizers.ProximalGradientDescent", _ARGUMENTS)
@dataclass(frozen=True, kw_only=True)
class ProximalSgdConfig(OptimizerSection):
    """Gradient descent followed by a proximal step, which shrinks w by l1 and l2.

    Args:
      type: `ex.optimizers.ProximalGradientDescent`.
    """

    type: Literal["proximal_sgd"] = "proximal_sgd"
    learning_rate: Rate
    l1: NonNegativeFloat = 0.0
    l2: NonNegativeFloat = 0.0
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    clip_global_norm: PositiveFloat | None = None
    decay: NonNegativeFloat | None = None


@dataclass(frozen=True, kw_only=True)
class OptaxConfig:
    """Any optimizer of optax, by name.

    Args:
      type: An optimizer of optax.
      name: A function of optax, such as `lion` or `adabelief`.
      learning_rate: The learning rate: a number, or a schedule.
      args: More keyword arguments of the function.
    """

    type: Literal["optax"] = "optax"
    name: str
    learning_rate: Rate | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CustomOptimizerConfig:
    """A function of your own that returns an optimizer.

    Args:
      class_: "package.module:name" of the function.
      params: Its keyword arguments.
    """

    class_: CodeName
    params: Mapping[str, Any] = field(default_factory=dict)


OptimizerConfig = (
    SgdConfig
    | MomentumConfig
    | AdagradConfig
    | AdadeltaConfig
    | AdamConfig
    | LazyAdamConfig
    | AdamWConfig
    | AdamaxConfig
    | NadamConfig
    | RmsPropConfig
    | FtrlConfig
    | ProximalAdagradConfig
    | ProximalSgdConfig
    | OptaxConfig
    | CustomOptimizerConfig
)


@dataclass(frozen=True, kw_only=True)
class PartOptimizers:
    """An optimizer for each part of a model.

    Args:
      linear: Of the linear part; by default FTRL with a learning rate of 0.05.
      dnn: Of the deep part; by default Adagrad with a learning rate of 0.05, for click
        and multi-task models lazy Adam with 0.001.
      rnn: Of a recurrent model; by default Adagrad with a rate of 0.05.
      baseline: Of a baseline; by default FTRL with a learning rate of 0.3.
    """

    linear: OptimizerConfig | None = None
    dnn: OptimizerConfig | None = None
    rnn: OptimizerConfig | None = None
    baseline: OptimizerConfig | None = None


@dataclass(frozen=True, kw_only=True)
class OptimizersSection(PartOptimizers):
    """An optimizer for each part; null uses the default of a run file.

    Args:
      models: Of a model of `per_head` by name, instead of those for all models.
      freeze: Regular expressions of variable names that are not trained, such as
        `dnn/.*` or `.*embedding_weights`.
    """

    models: Mapping[str, PartOptimizers] = field(default_factory=dict)
    freeze: Annotated[tuple[str, ...], Items(or_one=True)] = ()
