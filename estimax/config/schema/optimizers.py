"""The section `optimizers`: an optimizer for each part of the model.

optimizers:
  linear: {type: ftrl, learning_rate: 0.05, l1: 0.001}
  dnn:
    type: adam
    learning_rate: {schedule: cosine, initial: 1e-3, decay_steps: 20000}

Optimizers and schedules are derived from the constructors in `estimax.optimizers`; the
tables below say only what a signature does not: shorter keys and limits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from estimax.config.decode import About
from estimax.config.schema.derive import CodeName, derive, described
from estimax.config.schema.signatures import REQUIRED

_POSITIVE = About("", above=0)
_NOT_NEGATIVE = About("", at_least=0)
_DECAY = About("", at_least=0, below=1)
_STEPS = About("", at_least=1)

# ------------------------------------------------------------------------- schedules
_SCHEDULE_KEYS = {"learning_rate": "initial", "end_learning_rate": "end"}
_SCHEDULE_LIMITS = {
    "learning_rate": About("The learning rate at step 0.", above=0),
    "decay_steps": _STEPS,
    "first_decay_steps": _STEPS,
    "decay_rate": _POSITIVE,
    "end_learning_rate": _NOT_NEGATIVE,
    "power": _POSITIVE,
    "alpha": About("", at_least=0, at_most=1),
    "warmup_steps": _NOT_NEGATIVE,
    "t_mul": About("", at_least=1),
    "m_mul": _POSITIVE,
    "initial_variance": _NOT_NEGATIVE,
}
# In Python these are floats; a number of steps is a whole number.
_WHOLE = dict.fromkeys(("decay_steps", "first_decay_steps", "warmup_steps"), int)


def _schedule(title: str, name: str, tag: str, **options: Any) -> Any:
    limits = {**_SCHEDULE_LIMITS, **options.pop("limits", {})}
    return derive(
        title,
        "optimizers/schedules.py",
        name,
        calls=f"estimax.optimizers.{name}",
        tag=("schedule", tag),
        tag_doc=f"`ex.optimizers.{name}`.",
        keys=_SCHEDULE_KEYS,
        kinds={**_WHOLE, **options.pop("kinds", {})},
        limits=limits,
        **options,
    )


ExponentialConfig = _schedule("ExponentialConfig", "exponential_decay", "exponential")
NaturalExpConfig = _schedule("NaturalExpConfig", "natural_exp_decay", "natural_exp")
InverseTimeConfig = _schedule("InverseTimeConfig", "inverse_time_decay", "inverse_time")
PolynomialConfig = _schedule("PolynomialConfig", "polynomial_decay", "polynomial")
CosineConfig = _schedule(
    "CosineConfig",
    "cosine_decay",
    "cosine",
    limits={
        "learning_rate": About("The highest rate.", above=0),
        "warmup_steps": About(
            "Steps in which the rate first rises from 0 to initial.", at_least=0
        ),
    },
    elsewhere={"warmup_target": "`initial`, if there are `warmup_steps`"},
)
CosineRestartsConfig = _schedule(
    "CosineRestartsConfig", "cosine_decay_restarts", "cosine_restarts"
)
LinearCosineConfig = _schedule(
    "LinearCosineConfig", "linear_cosine_decay", "linear_cosine"
)
NoisyLinearCosineConfig = _schedule(
    "NoisyLinearCosineConfig", "noisy_linear_cosine_decay", "noisy_linear_cosine"
)
PiecewiseConfig = _schedule(
    "PiecewiseConfig",
    "piecewise_constant",
    "piecewise",
    kinds={"boundaries": tuple[int, ...]},
    limits={
        "boundaries": About(
            "The last step of each rate except the last.", at_least=1, min_items=1
        ),
        "values": About("The rates, one more than boundaries.", above=0, min_items=2),
    },
)
_SCHEDULES = (
    ExponentialConfig,
    NaturalExpConfig,
    InverseTimeConfig,
    PolynomialConfig,
    CosineConfig,
    CosineRestartsConfig,
    LinearCosineConfig,
    NoisyLinearCosineConfig,
    PiecewiseConfig,
)
if TYPE_CHECKING:
    # Derived sections are classes made at run time.
    PlainScheduleConfig = Any
    ScheduleConfig = Any
else:
    PlainScheduleConfig = functools.reduce(operator.or_, _SCHEDULES)


@described(
    "estimax.optimizers.linear_warmup",
    "optimizers/schedules.py",
    "linear_warmup",
    keys={"schedule": "then"},
)
@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """A rate that first rises from 0 linearly, then follows another schedule."""

    schedule: Annotated[Literal["warmup"], About("`ex.optimizers.linear_warmup`.")] = (
        "warmup"
    )
    then: Annotated[
        float | PlainScheduleConfig,
        About("The rate afterwards: a number, or a schedule.", above=0),
    ]
    warmup_steps: Annotated[int, About("Steps of the rise.", at_least=1)]


if not TYPE_CHECKING:
    ScheduleConfig = PlainScheduleConfig | WarmupConfig

# ------------------------------------------------------------------------ optimizers
_OPTIMIZER_KEYS = {
    "global_clipnorm": "clip_global_norm",
    "clipnorm": "clip_norm",
    "clipvalue": "clip_value",
    "initial_accumulator_value": "initial_accumulator",
    "l1_regularization_strength": "l1",
    "l2_regularization_strength": "l2",
    "l2_shrinkage_regularization_strength": "l2_shrinkage",
    "use_nesterov": "nesterov",
}
_OPTIMIZER_LIMITS = {
    "learning_rate": About("The learning rate: a number, or a schedule.", above=0),
    "momentum": About("", at_least=0, at_most=1),
    "rho": _DECAY,
    "beta_1": _DECAY,
    "beta_2": _DECAY,
    "epsilon": _POSITIVE,
    "initial_accumulator_value": _NOT_NEGATIVE,
    "learning_rate_power": About("", at_most=0),
    "l1_regularization_strength": _NOT_NEGATIVE,
    "l2_regularization_strength": _NOT_NEGATIVE,
    "l2_shrinkage_regularization_strength": _NOT_NEGATIVE,
    "beta": _NOT_NEGATIVE,
    "weight_decay": _NOT_NEGATIVE,
    "global_clipnorm": About("Clip gradients to this global norm.", above=0),
    "clipnorm": About("Clip the gradient of each variable to this norm.", above=0),
    "clipvalue": About("Clip each element of the gradients to +-this.", above=0),
    "decay": About("Divide the learning rate by 1 + decay * step.", at_least=0),
}


def _optimizer(title: str, name: str, tag: str, **options: Any) -> Any:
    return derive(
        title,
        "optimizers/constructors.py",
        name,
        calls=f"estimax.optimizers.{name}",
        tag=("type", tag),
        tag_doc=f"`ex.optimizers.{name}`.",
        keys=_OPTIMIZER_KEYS,
        python_only={"lr": "an alias of learning_rate"},
        kinds={
            "Rate": float | ScheduleConfig,
            "Generation": Literal["v1", "legacy", "keras"],
        },
        limits=_OPTIMIZER_LIMITS,
        defaults={"learning_rate": REQUIRED},
        **options,
    )


SgdConfig = _optimizer("SgdConfig", "SGD", "sgd")
MomentumConfig = _optimizer("MomentumConfig", "Momentum", "momentum")
AdagradConfig = _optimizer("AdagradConfig", "Adagrad", "adagrad")
AdadeltaConfig = _optimizer("AdadeltaConfig", "Adadelta", "adadelta")
AdamConfig = _optimizer(
    "AdamConfig",
    "Adam",
    "adam",
    extra={
        "lazy": (
            Annotated[
                bool,
                About(
                    "Update only the embedding rows that are in the batch "
                    "(`ex.optimizers.LazyAdam`)."
                ),
            ],
            False,
        )
    },
)
AdamWConfig = _optimizer("AdamWConfig", "AdamW", "adamw")
AdamaxConfig = _optimizer("AdamaxConfig", "Adamax", "adamax")
NadamConfig = _optimizer("NadamConfig", "Nadam", "nadam")
RmsPropConfig = _optimizer("RmsPropConfig", "RMSProp", "rmsprop")
FtrlConfig = _optimizer("FtrlConfig", "Ftrl", "ftrl")
ProximalAdagradConfig = _optimizer(
    "ProximalAdagradConfig", "ProximalAdagrad", "proximal_adagrad"
)
ProximalSgdConfig = _optimizer(
    "ProximalSgdConfig", "ProximalGradientDescent", "proximal_sgd"
)
LazyAdamConfig = _optimizer("LazyAdamConfig", "LazyAdam", "lazy_adam")


@dataclass(frozen=True, kw_only=True)
class OptaxConfig:
    """Any optimizer of optax, by name."""

    type: Annotated[Literal["optax"], About("An optimizer of optax.")] = "optax"
    name: Annotated[str, About("A function of optax, such as `lion` or `adabelief`.")]
    learning_rate: Annotated[
        float | ScheduleConfig | None,
        About("The learning rate: a number, or a schedule.", above=0),
    ] = None
    args: Annotated[
        Mapping[str, Any], About("More keyword arguments of the function.")
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CustomOptimizerConfig:
    """A function of your own that returns an optimizer."""

    class_: Annotated[CodeName, About('"package.module:name" of the function.')]
    params: Annotated[Mapping[str, Any], About("Its keyword arguments.")] = field(
        default_factory=dict
    )


DERIVED_OPTIMIZERS = (
    SgdConfig,
    MomentumConfig,
    AdagradConfig,
    AdadeltaConfig,
    AdamConfig,
    LazyAdamConfig,
    AdamWConfig,
    AdamaxConfig,
    NadamConfig,
    RmsPropConfig,
    FtrlConfig,
    ProximalAdagradConfig,
    ProximalSgdConfig,
)
if TYPE_CHECKING:
    OptimizerConfig = Any
else:
    OptimizerConfig = functools.reduce(
        operator.or_, (*DERIVED_OPTIMIZERS, OptaxConfig, CustomOptimizerConfig)
    )


@dataclass(frozen=True, kw_only=True)
class PartOptimizers:
    """An optimizer for each part of a model."""

    linear: Annotated[
        OptimizerConfig | None,
        About("Of the linear part; by default FTRL with a learning rate of 0.05."),
    ] = None
    dnn: Annotated[
        OptimizerConfig | None,
        About(
            "Of the deep part; by default Adagrad with a learning rate of 0.05, for "
            "click and multi-task models lazy Adam with 0.001."
        ),
    ] = None
    rnn: Annotated[
        OptimizerConfig | None,
        About("Of a recurrent model; by default Adagrad with a rate of 0.05."),
    ] = None
    baseline: Annotated[
        OptimizerConfig | None,
        About("Of a baseline; by default FTRL with a learning rate of 0.3."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OptimizersSection(PartOptimizers):
    """An optimizer for each part; null uses the default of a run file."""

    models: Annotated[
        Mapping[str, PartOptimizers],
        About("Of a model of `per_head` by name, instead of those for all models."),
    ] = field(default_factory=dict)
    freeze: Annotated[
        tuple[str, ...],
        About(
            "Regular expressions of variable names that are not trained, such as "
            "`dnn/.*` or `.*embedding_weights`.",
            one_or_many=True,
        ),
    ] = ()
