"""The section `optimizers`: an optimizer for each part of the model.

optimizers:
  linear: {type: ftrl, learning_rate: 0.05, l1: 0.001}
  dnn:
    type: adam
    learning_rate: {schedule: cosine, initial: 1e-3, decay_steps: 20000}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from estimax.config.decode import About

_INITIAL = About("The learning rate at step 0.", above=0)
_STAIRCASE = About("Decay in steps of decay_steps instead of smoothly.")


@dataclass(frozen=True, kw_only=True)
class ExponentialConfig:
    """Exponential decay: initial * decay_rate ^ (step / decay_steps)."""

    schedule: Annotated[Literal["exponential"], About("Exponential decay.")] = (
        "exponential"
    )
    initial: Annotated[float, _INITIAL]
    decay_steps: Annotated[
        int, About("Steps after which the rate is multiplied once.", at_least=1)
    ]
    decay_rate: Annotated[float, About("The factor.", above=0)]
    staircase: Annotated[bool, _STAIRCASE] = False


@dataclass(frozen=True, kw_only=True)
class InverseTimeConfig:
    """Inverse time decay: initial / (1 + decay_rate * step / decay_steps)."""

    schedule: Annotated[Literal["inverse_time"], About("Inverse time decay.")] = (
        "inverse_time"
    )
    initial: Annotated[float, _INITIAL]
    decay_steps: Annotated[
        int, About("Steps by which the step number is divided.", at_least=1)
    ]
    decay_rate: Annotated[float, About("The speed of the decay.", above=0)]
    staircase: Annotated[bool, _STAIRCASE] = False


@dataclass(frozen=True, kw_only=True)
class PolynomialConfig:
    """Polynomial decay from initial to end in decay_steps steps."""

    schedule: Annotated[Literal["polynomial"], About("Polynomial decay.")] = (
        "polynomial"
    )
    initial: Annotated[float, _INITIAL]
    decay_steps: Annotated[
        int, About("Steps until the final rate is reached.", at_least=1)
    ]
    end: Annotated[float, About("The final rate.", at_least=0)] = 1e-4
    power: Annotated[float, About("The exponent; 1 decays linearly.", above=0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class CosineConfig:
    """Cosine decay from initial to alpha * initial, after an optional warm-up."""

    schedule: Annotated[Literal["cosine"], About("Cosine decay.")] = "cosine"
    initial: Annotated[float, About("The highest rate.", above=0)]
    decay_steps: Annotated[
        int, About("Steps from the highest to the lowest rate.", at_least=1)
    ]
    alpha: Annotated[
        float,
        About("The lowest rate, as a fraction of the highest.", at_least=0, at_most=1),
    ] = 0.0
    warmup_steps: Annotated[
        int,
        About("Steps in which the rate first rises from 0 to initial.", at_least=0),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class PiecewiseConfig:
    """Piecewise constant rates, which change after given steps."""

    schedule: Annotated[Literal["piecewise"], About("Piecewise constant.")] = (
        "piecewise"
    )
    boundaries: Annotated[
        tuple[int, ...],
        About("The last step of each rate except the last.", at_least=1, min_items=1),
    ]
    values: Annotated[
        tuple[float, ...],
        About("The rates, one more than boundaries.", above=0, min_items=2),
    ]


ScheduleConfig = (
    ExponentialConfig
    | InverseTimeConfig
    | PolynomialConfig
    | CosineConfig
    | PiecewiseConfig
)
_RATE = About("The learning rate: a number, or a schedule.", above=0)
_CLIP = About("Clip gradients to this global norm.", above=0)
_ACCUMULATOR = About("Initial value of the sums of squared gradients.", at_least=0)
_EPSILON = About("Added to the divisor for numerical stability.", above=0)


@dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Stochastic gradient descent, with optional momentum."""

    type: Annotated[Literal["sgd"], About("Stochastic gradient descent.")] = "sgd"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    momentum: Annotated[
        float, About("Momentum; 0 for none.", at_least=0, at_most=1)
    ] = 0.0
    nesterov: Annotated[bool, About("Use Nesterov momentum.")] = False
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class AdagradConfig:
    """Adagrad: the rate of each weight falls with the gradients it has had."""

    type: Annotated[Literal["adagrad"], About("Adagrad.")] = "adagrad"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    initial_accumulator: Annotated[float, _ACCUMULATOR] = 0.1
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """Adam: steps from running means of gradients and of squared gradients."""

    type: Annotated[Literal["adam"], About("Adam.")] = "adam"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    beta_1: Annotated[
        float, About("Decay rate of the first moment.", at_least=0, below=1)
    ] = 0.9
    beta_2: Annotated[
        float, About("Decay rate of the second moment.", at_least=0, below=1)
    ] = 0.999
    epsilon: Annotated[float, _EPSILON] = 1e-7
    lazy: Annotated[
        bool, About("Update only the embedding rows that are in the batch.")
    ] = False
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class RmsPropConfig:
    """RMSProp: gradients divided by a running root mean square."""

    type: Annotated[Literal["rmsprop"], About("RMSProp.")] = "rmsprop"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    rho: Annotated[
        float, About("Decay rate of the mean square.", at_least=0, below=1)
    ] = 0.9
    momentum: Annotated[float, About("Momentum; 0 for none.", at_least=0, below=1)] = (
        0.0
    )
    epsilon: Annotated[float, _EPSILON] = 1e-7
    centered: Annotated[
        bool, About("Divide by the variance: subtract the squared mean gradient.")
    ] = False
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class FtrlConfig:
    """FTRL-Proximal: makes many weights exactly zero; suited to linear models."""

    type: Annotated[Literal["ftrl"], About("FTRL.")] = "ftrl"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    learning_rate_power: Annotated[
        float,
        About("Exponent with which rates fall; 0 keeps them constant.", at_most=0),
    ] = -0.5
    initial_accumulator: Annotated[float, _ACCUMULATOR] = 0.1
    l1: Annotated[
        float, About("L1 regularization; makes weights exactly zero.", at_least=0)
    ] = 0.0
    l2: Annotated[float, About("L2 regularization.", at_least=0)] = 0.0
    l2_shrinkage: Annotated[
        float, About("L2 penalty that is added to the gradient.", at_least=0)
    ] = 0.0
    beta: Annotated[
        float, About("Added to the divisor of the rate; slows early steps.", at_least=0)
    ] = 0.0
    clip_global_norm: Annotated[float | None, _CLIP] = None


OptimizerConfig = SgdConfig | AdagradConfig | AdamConfig | RmsPropConfig | FtrlConfig


@dataclass(frozen=True, kw_only=True)
class OptimizersSection:
    """An optimizer for each part; null uses the default of the model."""

    linear: Annotated[
        OptimizerConfig | None, About("Of the linear part; FTRL by default.")
    ] = None
    dnn: Annotated[
        OptimizerConfig | None, About("Of the deep part; Adagrad by default.")
    ] = None
