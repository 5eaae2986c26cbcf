"""Labels of the steps of sequences, of which only the unmasked count.

What padding holds is nobody's label, so it is neither checked nor looked up. That takes
the mask on the host; where a model computes it on the device, values pass unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import staging
from estimax.core.errors import LabelError
from estimax.core.numbers import cast
from estimax.core.sparse import Sparse
from estimax.heads.labels import KEY, LabelRule, check_given

MASK = "mask"


@dataclass(frozen=True)
class StepLabels:
    """The labels of steps [B, T, ...] by a head's rule, 0 where masked."""

    rule: LabelRule
    has_mask: bool
    name: str = KEY

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw values it reads."""
        return (KEY, MASK) if self.has_mask else (KEY,)

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Look up, spread sparse labels over the steps, and check what counts."""
        given = raw[KEY]
        mask = np.asarray(raw[MASK]).astype(bool) if self.has_mask else None
        if isinstance(given, Sparse):
            return cast(self._spread(given, mask), self.rule.dtype)
        numbers = self.rule.convert(given)
        if mask is None:
            return cast(numbers, self.rule.dtype)
        _check_steps(self.rule.head, numbers.shape, mask.shape)
        spread = mask.reshape(mask.shape + (1,) * (numbers.ndim - 2))
        numbers = np.where(spread, numbers, np.zeros((), numbers.dtype))
        self.rule.check(numbers, given)
        return cast(numbers, self.rule.dtype)

    def _spread(self, given: Sparse, mask: NDArray[np.bool_] | None) -> NDArray[Any]:
        numbers = self.rule.convert(given.values)
        self.rule.check(numbers, given.values, given.indices[:, 0])
        if mask is None:
            spread = np.zeros(given.dense_shape, numbers.dtype)
            spread[tuple(given.indices.T)] = numbers
            return spread
        if len(numbers) != mask.sum():
            raise LabelError(
                f"{self.rule.head}: {len(numbers)} sparse labels for {mask.sum()} "
                "unmasked steps; every one needs its label."
            )
        spread = np.zeros(mask.shape, numbers.dtype)
        spread[mask] = numbers
        return spread


def step_labels(
    rule: LabelRule, labels: Any, raw_mask: Any, mask: jax.Array
) -> jax.Array:
    """Labels [B, T, ...] that fit the mask [B, T]."""
    check_given(rule.head, labels)
    if not staging.can_stage(labels):
        ready = rule.on_device(labels)
    elif staging.can_stage(raw_mask):
        both = {KEY: labels, MASK: raw_mask}
        ready = staging.stage(StepLabels(rule, has_mask=True), both)
    else:
        # The mask's steps are those of a program, rounded up; the labels' are not.
        ready = staging.stage(StepLabels(rule, has_mask=False), {KEY: labels})
        ready = fit_steps(ready, mask.shape[1])
    _check_steps(rule.head, ready.shape, mask.shape)
    return jnp.asarray(ready)


def fit_steps(values: jax.Array, steps: Any) -> jax.Array:
    """Cut [B, T', ...] to T steps, or fill it up with zeros."""
    if values.ndim < 2:
        return values  # not of steps: refused by a check, with its shape
    short = max(steps - values.shape[1], 0)
    padding = [(0, 0), (0, short), *[(0, 0)] * (values.ndim - 2)]
    return jnp.pad(values[:, :steps], padding)


def _check_steps(head: str, labels: tuple[int, ...], mask: tuple[int, ...]) -> None:
    if labels[:2] != mask:
        raise LabelError(
            f"{head}: labels must have one value for every step of the mask, shape "
            f"{list(mask)} and maybe more axes, got {list(labels)}."
        )
