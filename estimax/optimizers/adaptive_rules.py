"""The rules with running means of gradients: RMSProp, Adadelta and the Adam family.

Which formula belongs to which generation of TensorFlow is told in `rules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from estimax.optimizers.rules import Generation, Slots, Untouched, check_generation


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
