"""Update rules: how one gradient changes one variable, element by element.

    rule = AdagradRule(epsilon=1e-7)
    slots = rule.slots(w)                              # {"accumulator": 0.1 everywhere}
    w, slots = rule.update(g, w, slots, lr, step)

Users call the constructors in `constructors.py`, which choose a rule and its defaults.

A rule is elementwise, so the same formula updates a whole array and the few rows of a
table that a batch touched. TensorFlow has three generations of optimizers, which differ
in details: where epsilon is added, the initial value of a slot, and what happens to
rows without a gradient. Rules whose formula differs take a `generation`:

    "v1"       tf.compat.v1.train
    "legacy"   tf.keras.optimizers.legacy, which tf.estimator uses
    "keras"    Keras 2.11 and later

Slots have the names that Keras' legacy optimizers give them. They are saved in
checkpoints, so they must not change. The order of the floating-point operations must
not change either: tests compare the results with TensorFlow's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

Generation = Literal["v1", "legacy", "keras"]
Slots = dict[str, jax.Array]
RowsWithoutGradient = Literal["keep", "decay", "decay_slots"]


class Rule:
    """The base of all update rules: one elementwise update and its slots.

    Subclass it to write an optimizer of your own: override `update`, `slots` if the
    rule has any, and `rows_without_gradient` if such rows of a table change. Then build
    `Optimizer("MyRule", MyRule(), learning_rate)`.

    Example:
      >>> class SignDescent(Rule):
      ...     def update(self, g, w, slots, lr, step):
      ...         return w - lr * jnp.sign(g), slots
      >>> w, slots = jnp.array([1.0, -1.0]), {}
      >>> SignDescent().update(jnp.array([9.0, -0.1]), w, slots, 0.5, 0)[0].tolist()
      [0.5, -0.5]
    """

    def __init_subclass__(cls) -> None:
        # The property had this name before. Without the error, a rule that still has it
        # would leave rows without a gradient alone, and train other numbers.
        if "untouched" in vars(cls):
            raise TypeError(
                f"{cls.__name__}.untouched: rename it to `rows_without_gradient`."
            )

    @property
    def rows_without_gradient(self) -> RowsWithoutGradient:
        """What a step does to rows of a table without a gradient.

        "keep": nothing, so only touched rows are read and written. "decay": variable
        and slots of every row are updated. "decay_slots": the slots of every row are
        updated, the variable only in touched rows.
        """
        return "keep"

    def slots(self, w: jax.Array) -> Slots:
        """Return the initial slots of a variable.

        Args:
          w: The variable, of any shape.

        Returns:
          Slot name to an array of the shape and dtype of `w`. Empty by default.
        """
        return {}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        """Return the variable and its slots after one update.

        Args:
          g: The gradient, of the shape of `w`.
          w: The variable, or some rows of it.
          slots: The slots, each of the shape of `w`.
          lr: The learning rate of this update, a float32 scalar.
          step: The number of updates before this one.

        Returns:
          The new variable and the new slots, under the same names.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class GradientDescentRule(Rule):
    """w -= lr * g."""

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        return w - lr * g, slots


@dataclass(frozen=True)
class MomentumRule(Rule):
    """Gradient descent with a velocity.

    In "v1" the velocity sums gradients and is multiplied by the current learning rate.
    In Keras it sums past changes, which contain the learning rate of their own step.
    The two differ as soon as the learning rate changes.
    """

    momentum: float
    nesterov: bool = False
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        if self.generation != "v1" and not 0 <= self.momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1, got {self.momentum}.")

    @property
    def rows_without_gradient(self) -> RowsWithoutGradient:
        return "decay" if self.generation == "keras" else "keep"

    def slots(self, w: jax.Array) -> Slots:
        return _zeros(w, "momentum")

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        mu = self.momentum
        if self.generation == "v1":
            m = mu * slots["momentum"] + g
            change = -(lr * g + lr * mu * m) if self.nesterov else -lr * m
        else:
            m = mu * slots["momentum"] - lr * g
            change = mu * m - lr * g if self.nesterov else m
        return w + change, {"momentum": m}


@dataclass(frozen=True)
class AdagradRule(Rule):
    """w -= lr * g / sqrt(sum of all squared gradients so far)."""

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
        check_at_least_zero(initial_accumulator_value=self.initial_accumulator_value)
        if self.generation == "v1" and not self.initial_accumulator_value > 0:
            raise ValueError(
                "initial_accumulator_value must be positive in generation 'v1', which "
                f"divides by its root; got {self.initial_accumulator_value}."
            )

    def slots(self, w: jax.Array) -> Slots:
        return {"accumulator": jnp.full_like(w, self.initial_accumulator_value)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        a = slots["accumulator"] + g * g
        inner, outer = self.epsilons
        return w - lr * g / (jnp.sqrt(a + inner) + outer), {"accumulator": a}

    @property
    def epsilons(self) -> tuple[float, float]:
        """Return (added under the root, added to the root).

        "v1" adds none, "legacy" adds epsilon to the root, "keras" under the root.
        """
        if self.generation == "v1":
            return 0.0, 0.0
        inside = self.generation == "keras"
        return (self.epsilon, 0.0) if inside else (0.0, self.epsilon)


@dataclass(frozen=True)
class FtrlRule(Rule):
    """Follow the regularized leader: the variable is computed from its two slots.

    The old value of the variable hardly matters. A variable that starts at a value
    other than 0 is therefore largely forgotten at its first update, and updating rows
    without a gradient as if it were 0 would change them.
    """

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0
    generation: Generation = "legacy"

    def __post_init__(self) -> None:
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
    def rows_without_gradient(self) -> RowsWithoutGradient:
        return "decay" if self.generation == "keras" else "keep"

    def slots(self, w: jax.Array) -> Slots:
        initial = jnp.full_like(w, self.initial_accumulator_value)
        return {"accumulator": initial, **_zeros(w, "linear")}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        l1 = self.l1_regularization_strength
        l2 = self.l2_regularization_strength + self.beta / (2 * lr)
        shrinkage = self.l2_shrinkage_regularization_strength
        n = slots["accumulator"] + g * g
        power = self._power(n)
        growth = (power - self._power(slots["accumulator"])) / lr
        # Shrinkage adds to the linear term only. The accumulator sums the squares of
        # the plain gradient, as in TensorFlow.
        pull = g + 2 * shrinkage * w if shrinkage else g
        z = slots["linear"] + pull - growth * w
        # w minimises z w + (power / lr + 2 l2) w² / 2 + l1 |w|, in closed form.
        solved = (jnp.sign(z) * l1 - z) / (power / lr + 2 * l2)
        w = jnp.where(jnp.abs(z) <= l1, jnp.zeros_like(w), solved)
        return w, {"accumulator": n, "linear": z}

    def _power(self, n: jax.Array) -> jax.Array:
        # A root for the default exponent: several times cheaper than a general pow.
        p = -self.learning_rate_power
        return jnp.sqrt(n) if p == 0.5 else n**p


@dataclass(frozen=True)
class ProximalRule(Rule):
    """A gradient step followed by a proximal step, which shrinks w by l1 and l2.

    With `adagrad` the learning rate is divided as in Adagrad. Rows without a gradient
    are not shrunk.
    """

    adagrad: bool
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0

    def __post_init__(self) -> None:
        check_at_least_zero(
            l1_regularization_strength=self.l1_regularization_strength,
            l2_regularization_strength=self.l2_regularization_strength,
        )
        if self.adagrad:
            check_positive(
                "ProximalAdagrad: ",
                initial_accumulator_value=self.initial_accumulator_value,
            )

    def slots(self, w: jax.Array) -> Slots:
        if not self.adagrad:
            return {}
        return {"accumulator": jnp.full_like(w, self.initial_accumulator_value)}

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        l1, l2 = self.l1_regularization_strength, self.l2_regularization_strength
        if self.adagrad:
            slots = {"accumulator": slots["accumulator"] + g * g}
            lr = lr / jnp.sqrt(slots["accumulator"])
        stepped = w - lr * g
        if l1:
            stepped = jnp.sign(stepped) * jnp.maximum(jnp.abs(stepped) - lr * l1, 0)
        return stepped / (1 + lr * l2), slots


@dataclass(frozen=True)
class RMSPropRule(Rule):
    """w -= lr * g / sqrt(running mean of squared gradients).

    Epsilon is added under the root, except in "legacy" without momentum. The mean of
    squares starts at 1 in "v1" and at 0 in the others.
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False
    generation: Generation = "legacy"

    @property
    def rows_without_gradient(self) -> RowsWithoutGradient:
        # As TensorFlow's sparse updates do: "legacy" touches single rows with momentum
        # only; without it, the mean of squares of every row decays.
        if self.generation == "v1":
            return "keep"
        return "keep" if self.generation == "legacy" and self.momentum else "decay"

    def slots(self, w: jax.Array) -> Slots:
        slots = {"rms": jnp.full_like(w, 1.0 if self.generation == "v1" else 0.0)}
        if self.centered:
            slots |= _zeros(w, "mg")
        if self.generation == "v1" or self.momentum:
            slots |= _zeros(w, "momentum")
        return slots

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
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
class AdadeltaRule(Rule):
    """w -= lr * g * sqrt(mean of squared changes) / sqrt(mean of squared gradients)."""

    rho: float = 0.95
    epsilon: float = 1e-7

    def slots(self, w: jax.Array) -> Slots:
        return _zeros(w, "accum_grad", "accum_var")

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        a = _mean(slots["accum_grad"], g * g, self.rho)
        d = slots["accum_var"]
        u = jnp.sqrt(d + self.epsilon) / jnp.sqrt(a + self.epsilon) * g
        # The change of this step enters the mean of changes after it was used.
        d = _mean(d, u * u, self.rho)
        return w - lr * u, {"accum_grad": a, "accum_var": d}


@dataclass(frozen=True)
class AdamRule(Rule):
    """Adam as in TensorFlow, which adds epsilon to the root of the uncorrected v.

    `lazy` leaves rows without a gradient as they are, slots included. Without it
    every row of a table changes in every step.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    amsgrad: bool = False
    weight_decay: float = 0.0
    lazy: bool = False
    generation: Generation = "legacy"

    @property
    def rows_without_gradient(self) -> RowsWithoutGradient:
        return "keep" if self.lazy else "decay"

    def slots(self, w: jax.Array) -> Slots:
        return _zeros(w, *(("m", "v", "vhat") if self.amsgrad else ("m", "v")))

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        m = _mean(slots["m"], g, self.beta_1, self.generation)
        v = _mean(slots["v"], g * g, self.beta_2, self.generation)
        new = {"m": m, "v": v}
        if self.amsgrad:
            new["vhat"] = v = jnp.maximum(slots["vhat"], v)
        # Weight decay is decoupled: it shrinks w directly and does not enter m and v.
        if self.weight_decay:
            w = w - lr * self.weight_decay * w
        rate = self.corrected_rate(lr, step)
        return w - rate * m / (jnp.sqrt(v) + self.epsilon), new

    def corrected_rate(self, lr: jax.Array, step: jax.Array) -> jax.Array:
        """Return the learning rate with both bias corrections, as in TensorFlow.

        Correcting v itself instead would give epsilon another meaning.
        """
        return (
            lr
            * jnp.sqrt(_bias_correction(self.beta_2, step))
            / _bias_correction(self.beta_1, step)
        )

    @property
    def rests(self) -> tuple[float, float]:
        """Return the weights of the gradient in m and of its square in v."""
        return _rest(self.beta_1, self.generation), _rest(self.beta_2, self.generation)


@dataclass(frozen=True)
class AdamaxRule(Rule):
    """Adam with a decaying maximum of |g| in place of the root of the second moment."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def slots(self, w: jax.Array) -> Slots:
        return _zeros(w, "m", "v")

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        m = _mean(slots["m"], g, self.beta_1)
        v = jnp.maximum(self.beta_2 * slots["v"], jnp.abs(g))
        # A maximum has no bias towards 0, so only m is corrected.
        rate = lr / _bias_correction(self.beta_1, step)
        return w - rate * m / (v + self.epsilon), {"m": m, "v": v}


@dataclass(frozen=True)
class NadamRule(Rule):
    """Adam with Nesterov momentum, whose coefficient mu grows over the steps."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    @property
    def rows_without_gradient(self) -> RowsWithoutGradient:
        return "decay_slots"

    def slots(self, w: jax.Array) -> Slots:
        return _zeros(w, "m", "v")

    def update(
        self, g: jax.Array, w: jax.Array, slots: Slots, lr: jax.Array, step: jax.Array
    ) -> tuple[jax.Array, Slots]:
        m = _mean(slots["m"], g, self.beta_1)
        v = _mean(slots["v"], g * g, self.beta_2)
        k = jnp.asarray(step, jnp.float32) + 1
        now, ahead, product = self._mu(k), self._mu(k + 1), self._product(step)
        direction = (1 - now) * g / (1 - product) + ahead * m / (1 - product * ahead)
        root = jnp.sqrt(v / _bias_correction(self.beta_2, step)) + self.epsilon
        return w - lr * direction / root, {"m": m, "v": v}

    def _mu(self, k: jax.Array) -> jax.Array:
        # Annotated: a float to the power of an array is Any to a type checker.
        grown: jax.Array = self.beta_1 * (1 - 0.5 * 0.96 ** (0.004 * k))
        return grown

    def _product(self, step: jax.Array) -> jax.Array:
        """Return the product of every mu up to this step, from a table of 64.

        Each of the first 64 factors is below 0.51, so later products vanish in float32
        beside the 1 that they are subtracted from. The table replaces a slot.
        """
        k = np.arange(1, 65)
        mus = self.beta_1 * (1 - 0.5 * 0.96 ** (0.004 * k))
        return jnp.asarray(np.cumprod(mus), jnp.float32)[jnp.minimum(step, 63)]


def _zeros(w: jax.Array, *names: str) -> Slots:
    return {name: jnp.zeros_like(w) for name in names}


def _mean(
    mean: jax.Array, value: jax.Array, decay: float, generation: Generation = "legacy"
) -> jax.Array:
    """Return decay * mean + (1 - decay) * value."""
    return decay * mean + _rest(decay, generation) * value


def _rest(decay: float, generation: Generation) -> float:
    """Return 1 - decay, the weight of a new value in a mean.

    "v1" and "legacy" compute 1 - decay in float32, where 1 - 0.999 loses three digits.
    `_bias_correction` loses the same digits, so the two errors cancel.
    """
    return 1 - decay if generation == "keras" else float(1 - np.float32(decay))


def _bias_correction(decay: float, step: jax.Array) -> jax.Array:
    """Return 1 - decay ** (step + 1): the total weight of the values in a mean from 0.

    Dividing the mean by it removes the bias towards 0.
    """
    count = jnp.asarray(step, jnp.float32) + 1
    return 1 - jnp.power(jnp.float32(decay), count)


def check_positive(where: str = "", **values: float) -> None:
    """Raise ValueError for the first value that is 0, negative or NaN."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{where}{name} must be positive, got {value}.")


def check_at_least_zero(where: str = "", **values: float) -> None:
    """Raise ValueError for the first negative value."""
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{where}{name} must be 0 or more, got {value}.")
