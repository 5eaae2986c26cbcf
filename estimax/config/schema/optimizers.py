"""`optimizers:` how each part of the model learns.

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


@dataclass(frozen=True, kw_only=True)
class ExponentialConfig:
    """initial · rate^(step / decay_steps)."""

    schedule: Annotated[Literal["exponential"], About("Geometric decay.")] = (
        "exponential"
    )
    initial: Annotated[float, About("The rate at step 0.", above=0)]
    decay_steps: Annotated[int, About("Steps for one factor of the rate.", at_least=1)]
    decay_rate: Annotated[float, About("The factor.", above=0)]
    staircase: Annotated[bool, About("Decay in jumps, not smoothly.")] = False


@dataclass(frozen=True, kw_only=True)
class InverseTimeConfig:
    """initial / (1 + rate · step / decay_steps)."""

    schedule: Annotated[Literal["inverse_time"], About("Hyperbolic decay.")] = (
        "inverse_time"
    )
    initial: Annotated[float, About("The rate at step 0.", above=0)]
    decay_steps: Annotated[int, About("The unit of time.", at_least=1)]
    decay_rate: Annotated[float, About("How fast.", above=0)]
    staircase: Annotated[bool, About("Decay in jumps, not smoothly.")] = False


@dataclass(frozen=True, kw_only=True)
class PolynomialConfig:
    """From initial to end in decay_steps, along a power."""

    schedule: Annotated[Literal["polynomial"], About("Polynomial decay.")] = (
        "polynomial"
    )
    initial: Annotated[float, About("The rate at step 0.", above=0)]
    decay_steps: Annotated[int, About("When the end is reached.", at_least=1)]
    end: Annotated[float, About("The rate from then on.", at_least=0)] = 1e-4
    power: Annotated[float, About("1 is a straight line.", above=0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class CosineConfig:
    """Half a cosine from initial down to alpha · initial, after an optional warm-up."""

    schedule: Annotated[Literal["cosine"], About("Cosine decay.")] = "cosine"
    initial: Annotated[float, About("The rate at the top.", above=0)]
    decay_steps: Annotated[int, About("Steps from top to bottom.", at_least=1)]
    alpha: Annotated[
        float, About("The bottom, as a part of the top.", at_least=0, at_most=1)
    ] = 0.0
    warmup_steps: Annotated[
        int, About("Rise from 0 to the top in so many steps first.", at_least=0)
    ] = 0


@dataclass(frozen=True, kw_only=True)
class PiecewiseConfig:
    """Constant rates that change after given steps."""

    schedule: Annotated[Literal["piecewise"], About("Constant pieces.")] = "piecewise"
    boundaries: Annotated[
        tuple[int, ...], About("The last step of each piece.", at_least=1, min_items=1)
    ]
    values: Annotated[
        tuple[float, ...], About("One rate more than boundaries.", above=0, min_items=2)
    ]


ScheduleConfig = (
    ExponentialConfig
    | InverseTimeConfig
    | PolynomialConfig
    | CosineConfig
    | PiecewiseConfig
)
_RATE = About("A number, or a schedule.", above=0)
_CLIP = About("Scale all gradients so that their joint norm is at most this.", above=0)


@dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Gradient descent, with momentum when asked."""

    type: Annotated[Literal["sgd"], About("Gradient descent.")] = "sgd"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    momentum: Annotated[float, About("Of the last step.", at_least=0, at_most=1)] = 0.0
    nesterov: Annotated[bool, About("Look ahead by the momentum.")] = False
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class AdagradConfig:
    """Rates that fall with the gradients seen so far."""

    type: Annotated[Literal["adagrad"], About("Adagrad.")] = "adagrad"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    initial_accumulator: Annotated[
        float, About("What the sum of squares starts at.", at_least=0)
    ] = 0.1
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """Moments of the gradient, corrected for their start."""

    type: Annotated[Literal["adam"], About("Adam.")] = "adam"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    beta_1: Annotated[float, About("First moment.", at_least=0, below=1)] = 0.9
    beta_2: Annotated[float, About("Second moment.", at_least=0, below=1)] = 0.999
    epsilon: Annotated[float, About("Added to the root.", above=0)] = 1e-7
    lazy: Annotated[
        bool, About("Move only the embedding rows that a batch touches.")
    ] = False
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class RmsPropConfig:
    """Gradients over a running root mean square."""

    type: Annotated[Literal["rmsprop"], About("RMSProp.")] = "rmsprop"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    rho: Annotated[float, About("Decay of the mean.", at_least=0, below=1)] = 0.9
    momentum: Annotated[float, About("Of the last step.", at_least=0, below=1)] = 0.0
    epsilon: Annotated[float, About("Added to the root.", above=0)] = 1e-7
    centered: Annotated[bool, About("Subtract the mean gradient.")] = False
    clip_global_norm: Annotated[float | None, _CLIP] = None


@dataclass(frozen=True, kw_only=True)
class FtrlConfig:
    """Follow the regularised leader: sparse weights for wide models."""

    type: Annotated[Literal["ftrl"], About("FTRL.")] = "ftrl"
    learning_rate: Annotated[float | ScheduleConfig, _RATE]
    learning_rate_power: Annotated[float, About("How rates fall.", at_most=0)] = -0.5
    initial_accumulator: Annotated[
        float, About("What the sum of squares starts at.", at_least=0)
    ] = 0.1
    l1: Annotated[float, About("Makes exact zeros.", at_least=0)] = 0.0
    l2: Annotated[float, About("Keeps weights small.", at_least=0)] = 0.0
    l2_shrinkage: Annotated[float, About("L2 on the gradient.", at_least=0)] = 0.0
    beta: Annotated[float, About("Damps early steps.", at_least=0)] = 0.0
    clip_global_norm: Annotated[float | None, _CLIP] = None


OptimizerConfig = SgdConfig | AdagradConfig | AdamConfig | RmsPropConfig | FtrlConfig


@dataclass(frozen=True, kw_only=True)
class OptimizersSection:
    """One optimizer for each part; null takes tf.estimator's default for the model."""

    linear: Annotated[
        OptimizerConfig | None, About("For the wide part; FTRL by default.")
    ] = None
    dnn: Annotated[
        OptimizerConfig | None, About("For the deep part; Adagrad by default.")
    ] = None
