"""An optimizer is a value: a rule, a learning rate and clipping.

    optimizer = Adagrad(0.05)
    state = optimizer.init(params)                     # {"accumulator": tree}
    params, state = optimizer.apply(grads, state, params, step=step)

`dense()` is the same as an optax transformation, and `rows.update_rows` the same for
the few rows of a table; all three call the one rule. Nothing here counts steps: the
step is passed in, so that it cannot disagree with the one in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from estimax.optimizers.clipping import Clip
from estimax.optimizers.rules import Rule, Slots

Schedule = Callable[[jax.Array], jax.Array]
# Any: a tree of arrays of the user's shaping; jax has no type for one.
Params = Any
State = Any


@dataclass(frozen=True)
class Optimizer:
    """A rule with its learning rate (a number, or a function of the step) and clipping.

    Either `rule` is set, or `transformation`, which wraps a raw optax transformation:
    then there is no row-wise update and optax keeps the learning rate to itself.
    """

    name: str
    rule: Rule | None
    learning_rate: float | Schedule | None
    clip: Clip | None = None
    transformation: optax.GradientTransformationExtraArgs | None = None

    @property
    def has_rows(self) -> bool:
        """Whether a table can be updated by its touched rows alone, exactly."""
        return self.rule is not None and self.rule.untouched == "keep"

    @property
    def unclipped(self) -> Optimizer:
        """The same without clipping, for callers who clip all gradients together."""
        return replace(self, clip=None)

    def learning_rate_at(self, step: jax.Array | int) -> jax.Array:
        """The learning rate for the update after `step` updates, as float32."""
        rate = self.learning_rate
        if rate is None:
            raise ValueError(f"optimizer {self.name!r} keeps its own learning rate.")
        value = rate(jnp.asarray(step)) if callable(rate) else rate
        return jnp.asarray(value, jnp.float32)

    def init(self, params: Params) -> State:
        """The first state: {slot: a tree like `params`}, or whatever optax makes."""
        if self.rule is None:
            return self._optax().init(params)
        leaves, treedef = _flatten(params)
        made = [self.rule.slots(w) for w in leaves]
        names = self.rule.slots(jnp.zeros(())).keys()
        return {name: treedef.unflatten([s[name] for s in made]) for name in names}

    def apply(
        self,
        grads: Params,
        state: State,
        params: Params,
        *,
        step: jax.Array | int,
        loss: jax.Array | None = None,
    ) -> tuple[Params, State]:
        """Clip, update, and return the new params and state.

        Unlike adding optax updates, this stores the very numbers that the rule made,
        so a dense and a row-wise update agree to the bit. The `loss` is for those of
        optax that look at it, such as `reduce_on_plateau`.
        """
        if self.clip is not None:
            grads = self.clip(grads)
        if self.rule is None:
            updates, state = self._optax().update(grads, state, params, value=loss)
            return optax.apply_updates(params, updates), state
        rate = self.learning_rate_at(step)
        leaves, treedef = _flatten(params)
        gradients = treedef.flatten_up_to(grads)
        slots = {name: treedef.flatten_up_to(tree) for name, tree in state.items()}
        results = [
            update_array(
                self.rule, g, w, {name: slots[name][i] for name in slots}, rate, step
            )
            for i, (g, w) in enumerate(zip(gradients, leaves, strict=True))
        ]
        new_state = {
            name: treedef.unflatten([new[name] for _, new in results]) for name in slots
        }
        return treedef.unflatten([w for w, _ in results]), new_state

    def dense(self) -> optax.GradientTransformationExtraArgs:
        """The optimizer as an optax transformation; `update` wants `step=`."""

        def update(
            grads: Params,
            state: State,
            params: Params = None,
            *,
            step: jax.Array | int,
            **_: Any,  # optax hands every transformation's arguments to all of them
        ) -> tuple[Params, State]:
            new, state = self.apply(grads, state, params, step=step)
            return jax.tree.map(jnp.subtract, new, params), state

        return optax.GradientTransformationExtraArgs(self.init, update)

    def _optax(self) -> optax.GradientTransformationExtraArgs:
        assert self.transformation is not None, "an optimizer has a rule or optax"
        return self.transformation


def update_array(
    rule: Rule,
    g: jax.Array,
    w: jax.Array,
    slots: Slots,
    rate: jax.Array,
    step: jax.Array | int,
) -> tuple[jax.Array, Slots]:
    """Apply a rule to one array, or to gathered rows; dtypes come back as they came.

    The rate is float32, so a bfloat16 variable is updated in float32 and rounded once.
    """
    new, new_slots = rule.update(g, w, slots, rate, jnp.asarray(step, jnp.int32))
    kept = {name: value.astype(slots[name].dtype) for name, value in new_slots.items()}
    return new.astype(w.dtype), kept


def _flatten(tree: Params) -> tuple[list[jax.Array], Any]:
    # Any: jax's tree definitions have methods that its stubs do not declare.
    return jax.tree.flatten(tree)
