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
        square = self.rho * slots["rms"] + (1 - self.rho) * g * g
        new = {"rms": square}
        if self.centered:
            new["mg"] = self.rho * slots["mg"] + (1 - self.rho) * g
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
        a = self.rho * slots["accum_grad"] + (1 - self.rho) * g * g
        d = slots["accum_var"]
        u = jnp.sqrt(d + self.epsilon) / jnp.sqrt(a + self.epsilon) * g
        d = self.rho * d + (1 - self.rho) * u * u
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
        k = _count(step)
        m = self.beta_1 * slots["m"] + (1 - self.beta_1) * g
        v = self.beta_2 * slots["v"] + (1 - self.beta_2) * g * g
        new = {"m": m, "v": v}
        if self.amsgrad:
            new["vhat"] = v = jnp.maximum(slots["vhat"], v)
        if self.weight_decay:
            w = w - lr * self.weight_decay * w
        rate = lr * jnp.sqrt(1 - self.beta_2**k) / (1 - self.beta_1**k)
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
        m = self.beta_1 * slots["m"] + (1 - self.beta_1) * g
        v = jnp.maximum(self.beta_2 * slots["v"], jnp.abs(g))
        rate = lr / (1 - self.beta_1 ** _count(step))
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
        k = _count(step)
        m = self.beta_1 * slots["m"] + (1 - self.beta_1) * g
        v = self.beta_2 * slots["v"] + (1 - self.beta_2) * g * g
        now, ahead, product = self._mu(k), self._mu(k + 1), self._product(step)
        direction = (1 - now) * g / (1 - product) + ahead * m / (1 - product * ahead)
        root = jnp.sqrt(v / (1 - self.beta_2**k)) + self.epsilon
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


def _count(step: jax.Array) -> jax.Array:
    """How many updates there are with this one, as a float to take powers with."""
    return jnp.asarray(step, jnp.float32) + 1
