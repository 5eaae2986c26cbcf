"""Update rules: how one gradient moves one variable, element by element.

    rule = Adagrad(epsilon=1e-7)
    slots = rule.slots(w)                              # {"accumulator": 0.1 everywhere}
    w, slots = rule.update(g, w, slots, lr, step)

A rule mixes no two elements, so one formula serves a whole array and the few rows of
a table that a batch touched. Three generations of TensorFlow optimizers disagree in
details (where epsilon stands, what a slot starts at, what happens to rows without a
gradient); a rule whose formula differs takes the `generation`. Slots have the names
that Keras' legacy optimizers give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.errors import did_you_mean

Generation = Literal["v1", "legacy", "keras"]
Slots = dict[str, jax.Array]
Untouched = Literal["keep", "decay", "decay_slots"]


class Rule(Protocol):
    """One elementwise update, and what it does to rows without a gradient.

    `untouched` is "keep" when such rows stay as they are (only the touched rows need
    to be read), "decay" when every row is updated in every step, "decay_slots" when
    every slot is but only touched rows of the variable move.
    """

    @property
    def untouched(self) -> Untouched:
        """What happens to a table's rows that have no gradient in a step."""

    def slots(self, w: jax.Array) -> Slots:
        """The slots of a new variable, each of its shape."""

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """The new variable and slots; `step` counts the updates before this one."""


@dataclass(frozen=True)
class GradientDescent:
    """w -= lr * g."""

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay."""
        return "keep"

    def slots(self, w: jax.Array) -> Slots:
        """None."""
        return {}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Step down the gradient."""
        return w - lr * g, slots


@dataclass(frozen=True)
class Momentum:
    """A velocity: of gradients in v1, of steps in Keras (they part when lr changes)."""

    momentum: float
    nesterov: bool = False
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        check_generation(self.generation)
        if self.generation != "v1" and not 0 <= self.momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1, got {self.momentum}.")

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay, except in the newest Keras."""
        return "decay" if self.generation == "keras" else "keep"

    def slots(self, w: jax.Array) -> Slots:
        """The velocity, from 0."""
        return {"momentum": jnp.zeros_like(w)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Move the velocity, then the variable."""
        mu = self.momentum
        if self.generation == "v1":
            m = mu * slots["momentum"] + g
            change = -(lr * g + lr * mu * m) if self.nesterov else -lr * m
        else:
            m = mu * slots["momentum"] - lr * g
            change = mu * m - lr * g if self.nesterov else m
        return w + change, {"momentum": m}


@dataclass(frozen=True)
class Adagrad:
    """Steps divided by the root of the sum of squared gradients."""

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        check_generation(self.generation)
        check_at_least_zero(initial_accumulator_value=self.initial_accumulator_value)
        if self.generation == "v1" and not self.initial_accumulator_value > 0:
            raise ValueError(
                "initial_accumulator_value must be positive in generation 'v1', which "
                f"divides by its root; got {self.initial_accumulator_value}."
            )

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay."""
        return "keep"

    def slots(self, w: jax.Array) -> Slots:
        """The sum of squares, from its initial value."""
        return {"accumulator": jnp.full_like(w, self.initial_accumulator_value)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Add the square, then step."""
        a = slots["accumulator"] + g * g
        inner, outer = self.epsilons
        return w - lr * g / (jnp.sqrt(a + inner) + outer), {"accumulator": a}

    @property
    def epsilons(self) -> tuple[float, float]:
        """What is added under the root, and what to it."""
        if self.generation == "v1":
            return 0.0, 0.0
        inside = self.generation == "keras"
        return (self.epsilon, 0.0) if inside else (0.0, self.epsilon)


@dataclass(frozen=True)
class Ftrl:
    """Follow the regularized leader: the variable is a function of its two slots.

    Hence a variable that starts at something other than 0 is largely forgotten at its
    first update, and rows without a gradient must not be updated with zeros.
    """

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        check_generation(self.generation)
        if self.learning_rate_power > 0:
            raise ValueError(
                "Ftrl: learning_rate_power must be 0 or less, "
                f"got {self.learning_rate_power}."
            )
        check_at_least_zero(
            initial_accumulator_value=self.initial_accumulator_value,
            l1_regularization_strength=self.l1_regularization_strength,
            l2_regularization_strength=self.l2_regularization_strength,
            l2_shrinkage_regularization_strength=(
                self.l2_shrinkage_regularization_strength
            ),
        )

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay, except in the newest Keras."""
        return "decay" if self.generation == "keras" else "keep"

    def slots(self, w: jax.Array) -> Slots:
        """The sum of squares from its initial value, the linear term from 0."""
        initial = jnp.full_like(w, self.initial_accumulator_value)
        return {"accumulator": initial, "linear": jnp.zeros_like(w)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Move both slots, then solve for the variable."""
        l1 = self.l1_regularization_strength
        l2 = self.l2_regularization_strength + self.beta / (2 * lr)
        shrinkage = self.l2_shrinkage_regularization_strength
        n = slots["accumulator"] + g * g
        power = self._power(n)
        growth = (power - self._power(slots["accumulator"])) / lr
        # Shrinkage pulls the linear term; the accumulator sees the plain gradient.
        pull = g + 2 * shrinkage * w if shrinkage else g
        z = slots["linear"] + pull - growth * w
        solved = (jnp.sign(z) * l1 - z) / (power / lr + 2 * l2)
        w = jnp.where(jnp.abs(z) <= l1, jnp.zeros_like(w), solved)
        return w, {"accumulator": n, "linear": z}

    def _power(self, n: jax.Array) -> jax.Array:
        # The usual power by the root: several times cheaper than a general pow.
        p = -self.learning_rate_power
        return jnp.sqrt(n) if p == 0.5 else n**p


@dataclass(frozen=True)
class Proximal:
    """A step, then shrinking by l1 and l2; with Adagrad's rate if `adagrad`."""

    adagrad: bool
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0

    def __post_init__(self) -> None:
        check_at_least_zero(
            l1_regularization_strength=self.l1_regularization_strength,
            l2_regularization_strength=self.l2_regularization_strength,
        )
        if self.adagrad and not self.initial_accumulator_value > 0:
            raise ValueError(
                "ProximalAdagrad: initial_accumulator_value must be positive, "
                f"got {self.initial_accumulator_value}."
            )

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay: they are not even shrunk."""
        return "keep"

    def slots(self, w: jax.Array) -> Slots:
        """The sum of squares, with Adagrad's rate."""
        if not self.adagrad:
            return {}
        return {"accumulator": jnp.full_like(w, self.initial_accumulator_value)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Step, then shrink towards 0."""
        l1, l2 = self.l1_regularization_strength, self.l2_regularization_strength
        if self.adagrad:
            slots = {"accumulator": slots["accumulator"] + g * g}
            lr = lr / jnp.sqrt(slots["accumulator"])
        stepped = w - lr * g
        if l1:
            stepped = jnp.sign(stepped) * jnp.maximum(jnp.abs(stepped) - lr * l1, 0)
        return stepped / (1 + lr * l2), slots


def check_generation(generation: str) -> None:
    """Raise ValueError unless the generation is one of the three."""
    known = get_args(Generation)
    if generation not in known:
        raise ValueError(
            f"unknown generation {generation!r}{did_you_mean(generation, known)}"
        )


def check_at_least_zero(**values: float) -> None:
    """Raise ValueError naming the first value that is negative."""
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{name} must be 0 or more, got {value}.")


@dataclass(frozen=True)
class RMSProp:
    """Steps divided by the root of a running mean of squared gradients.

    Epsilon stands inside the root, except in legacy without momentum. In v1 the mean
    of squares starts at one, elsewhere at zero.
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        check_generation(self.generation)

    @property
    def untouched(self) -> Untouched:
        """The running means of all rows decay, or stay: as TensorFlow's kernels do."""
        if self.generation == "v1":
            return "keep"
        return "keep" if self.generation == "legacy" and self.momentum else "decay"

    def slots(self, w: jax.Array) -> Slots:
        """The mean square; the mean if centered; the velocity if there is one."""
        slots = {"rms": jnp.full_like(w, 1.0 if self.generation == "v1" else 0.0)}
        if self.centered:
            slots["mg"] = jnp.zeros_like(w)
        if self.generation == "v1" or self.momentum:
            slots["momentum"] = jnp.zeros_like(w)
        return slots

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Move the means, then the velocity, then the variable."""
        square = _mean(slots["rms"], g * g, self.rho, self.generation)
        new = {"rms": square}
        if self.centered:
            new["mg"] = _mean(slots["mg"], g, self.rho, self.generation)
            square = square - new["mg"] * new["mg"]
        if self.generation == "legacy" and not self.momentum:
            return w - lr * g / (jnp.sqrt(square) + self.epsilon), new
        change = lr * g / jnp.sqrt(square + self.epsilon)
        if "momentum" in slots:
            new["momentum"] = change = self.momentum * slots["momentum"] + change
        return w - change, new


@dataclass(frozen=True)
class Adadelta:
    """Steps scaled by the ratio of the running sizes of past steps and gradients."""

    rho: float = 0.95
    epsilon: float = 1e-7

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay."""
        return "keep"

    def slots(self, w: jax.Array) -> Slots:
        """The mean squares of gradients and of steps, from 0."""
        return {"accum_grad": jnp.zeros_like(w), "accum_var": jnp.zeros_like(w)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Move the first mean, step, move the second."""
        a = _mean(slots["accum_grad"], g * g, self.rho)
        d = slots["accum_var"]
        u = jnp.sqrt(d + self.epsilon) / jnp.sqrt(a + self.epsilon) * g
        d = _mean(d, u * u, self.rho)
        return w - lr * u, {"accum_grad": a, "accum_var": d}


@dataclass(frozen=True)
class Adam:
    """Adam with TensorFlow's epsilon, which is added to the uncorrected root of v.

    `lazy` leaves rows without a gradient alone, slots included; true Adam moves them.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    amsgrad: bool = False
    weight_decay: float = 0.0
    lazy: bool = False
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        check_generation(self.generation)

    @property
    def untouched(self) -> Untouched:
        """Every row moves in every step, unless lazy."""
        return "keep" if self.lazy else "decay"

    def slots(self, w: jax.Array) -> Slots:
        """Both moments from 0, and the largest second one for amsgrad."""
        names = ("m", "v", "vhat") if self.amsgrad else ("m", "v")
        return {name: jnp.zeros_like(w) for name in names}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Shrink the variable by its decay, then take Adam's step."""
        m = _mean(slots["m"], g, self.beta_1, self.generation)
        v = _mean(slots["v"], g * g, self.beta_2, self.generation)
        new = {"m": m, "v": v}
        if self.amsgrad:
            new["vhat"] = v = jnp.maximum(slots["vhat"], v)
        if self.weight_decay:
            w = w - lr * self.weight_decay * w
        rate = lr * jnp.sqrt(_seen(self.beta_2, step)) / _seen(self.beta_1, step)
        return w - rate * m / (jnp.sqrt(v) + self.epsilon), new


@dataclass(frozen=True)
class Adamax:
    """Adam with a decaying maximum in place of the second moment."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    @property
    def untouched(self) -> Untouched:
        """Rows without a gradient stay."""
        return "keep"

    def slots(self, w: jax.Array) -> Slots:
        """The mean and the maximum, from 0."""
        return {"m": jnp.zeros_like(w), "v": jnp.zeros_like(w)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Move mean and maximum, then step."""
        m = _mean(slots["m"], g, self.beta_1)
        v = jnp.maximum(self.beta_2 * slots["v"], jnp.abs(g))
        rate = lr / _seen(self.beta_1, step)
        return w - rate * m / (v + self.epsilon), {"m": m, "v": v}


@dataclass(frozen=True)
class Nadam:
    """Adam with Nesterov's look-ahead and a momentum that grows over the steps."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    @property
    def untouched(self) -> Untouched:
        """All moments decay, but only touched rows move."""
        return "decay_slots"

    def slots(self, w: jax.Array) -> Slots:
        """Both moments, from 0."""
        return {"m": jnp.zeros_like(w), "v": jnp.zeros_like(w)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Move the moments, then step along their look-ahead."""
        m = _mean(slots["m"], g, self.beta_1)
        v = _mean(slots["v"], g * g, self.beta_2)
        k = jnp.asarray(step, jnp.float32) + 1
        now, ahead, product = self._mu(k), self._mu(k + 1), self._product(step)
        direction = (1 - now) * g / (1 - product) + ahead * m / (1 - product * ahead)
        root = jnp.sqrt(v / _seen(self.beta_2, step)) + self.epsilon
        return w - lr * direction / root, {"m": m, "v": v}

    def _mu(self, k: jax.Array) -> jax.Array:
        # Annotated: a float to the power of an array is Any to a type checker.
        grown: jax.Array = self.beta_1 * (1 - 0.5 * 0.96 ** (0.004 * k))
        return grown

    def _product(self, step: jax.Array) -> jax.Array:
        """Every mu up to this step multiplied: a table, for it soon vanishes.

        Each of the first 64 factors is below 0.51, so later products are 0 in float32
        beside the 1 that they are subtracted from. A table needs no slot.
        """
        k = np.arange(1, 65)
        mus = self.beta_1 * (1 - 0.5 * 0.96 ** (0.004 * k))
        return jnp.asarray(np.cumprod(mus), jnp.float32)[jnp.minimum(step, 63)]


def _mean(
    mean: jax.Array, value: jax.Array, decay: float, generation: Generation = "legacy"
) -> jax.Array:
    """A running mean, moved towards a value by 1 - decay.

    Before the newest Keras that difference was taken in float32, where 1 - 0.999 has
    lost three digits, and the bias correction the same ones.
    """
    rest = 1 - decay if generation == "keras" else float(1 - np.float32(decay))
    return decay * mean + rest * value


def _seen(decay: float, step: jax.Array) -> jax.Array:
    """How much of a running mean from 0 is made of values, after this step's."""
    count = jnp.asarray(step, jnp.float32) + 1
    return 1 - jnp.power(jnp.float32(decay), count)
