"""An optimizer is a value: an update rule, a learning rate and clipping.

    optimizer = Adagrad(0.05)
    state = optimizer.init(params)                     # {"accumulator": tree}
    params, state = optimizer.apply(grads, state, params, step=step)

`Optimizer.dense` returns the same update as an optax transformation, and
`rows.update_rows` applies it to a few rows of a table. All three call the same rule.
The step is an argument: an optimizer keeps no counter of its own that could disagree
with the step in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from estimax.core import display
from estimax.core.migration import Retired
from estimax.optimizers.clipping import Clip
from estimax.optimizers.rules import Rule, Slots

Schedule = Callable[[jax.Array], jax.Array]
# Any: a tree of arrays, of any structure; jax has no type for one.
Params = Any
OptimizerState = Any


_GRADIENTS = (
    "return the optimizer as train_op. To clip gradients, write for instance "
    "ex.optimizers.Adam(1e-3, global_clipnorm=5.0); to change them otherwise, write "
    "ex.minimize(optimizer, clip=function), with a function from the dict of gradients "
    "by variable name to a changed one"
)


@dataclass(frozen=True, repr=False)
class Optimizer:
    """An update rule with its learning rate and clipping.

    Most users call a constructor such as `Adagrad(0.05)`. Build an `Optimizer`
    directly for a `Rule` of your own. Exactly one of `rule` and `transformation` is
    set. With `transformation` (raw optax) there is no row-wise update of tables, and
    optax keeps the learning rate.

    Args:
      name: The name shown in messages and in `repr`.
      rule: The update rule, or None for a raw optax transformation.
      learning_rate: A number, a function from the step to a number, or a scalar that
        the `model_fn` computes at every step, such as
        `0.1 * 0.99 ** ex.get_global_step()`. None for a raw optax transformation.
      clip: How gradients are clipped before the update. None: they are not.
      transformation: A raw optax transformation, or None.

    Example:
      >>> from estimax.optimizers import rules
      >>> optimizer = Optimizer("Descent", rules.GradientDescentRule(), 0.5)
      >>> optimizer
      Descent(learning_rate=0.5)
      >>> w = jnp.array([4.0])
      >>> w, state = optimizer.apply(w, optimizer.init(w), w, step=0)
      >>> w.tolist()
      [2.0]
    """

    name: str
    rule: Rule | None
    learning_rate: float | Schedule | jax.Array | None
    clip: Clip | None = None
    transformation: optax.GradientTransformationExtraArgs | None = None

    minimize = Retired(
        "return the optimizer itself, EstimatorSpec(train_op=optimizer), or a part of "
        'the variables, train_op=ex.minimize(optimizer, var_list="dnn/")'
    )
    compute_gradients = Retired(_GRADIENTS)
    apply_gradients = Retired(_GRADIENTS)

    def __repr__(self) -> str:
        shown: dict[str, Any] = {}
        if self.learning_rate is not None:
            shown["learning_rate"] = self.learning_rate
        if self.rule is not None:
            shown |= _arguments(self.rule)
        if self.clip is not None:
            shown["clip"] = self.clip
        given = ", ".join(f"{n}={display.format_value(v)}" for n, v in shown.items())
        return f"{self.name}({given})"

    @property
    def has_rows(self) -> bool:
        """Whether updating only the touched rows of a table is exact."""
        return self.rule is not None and self.rule.rows_without_gradient == "keep"

    @property
    def unclipped(self) -> Optimizer:
        """The same optimizer without clipping, for already clipped gradients."""
        return replace(self, clip=None)

    def learning_rate_at(self, step: jax.Array | int) -> jax.Array:
        """Return the learning rate of one update.

        Args:
          step: The number of updates before it.

        Returns:
          The learning rate, a float32 scalar.

        Raises:
          ValueError: The optimizer is a raw optax transformation.
        """
        rate = self.learning_rate
        if rate is None:
            raise ValueError(
                f"optimizer {self.name!r} is a raw optax transformation, which keeps "
                "its own learning rate."
            )
        value = rate(jnp.asarray(step)) if callable(rate) else rate
        return jnp.asarray(value, jnp.float32)

    def init(self, params: Params) -> OptimizerState:
        """Return the state before the first update.

        Args:
          params: The variables, a tree of arrays.

        Returns:
          Slot name to a tree like `params`; for raw optax, the state of optax.
        """
        if self.rule is None:
            return self._optax().init(params)
        leaves, treedef = _flatten(params)
        made = [self.rule.slots(w) for w in leaves]
        names = self.rule.slots(jnp.zeros(())).keys()
        return {name: treedef.unflatten([s[name] for s in made]) for name in names}

    def apply(
        self,
        grads: Params,
        state: OptimizerState,
        params: Params,
        *,
        step: jax.Array | int,
        loss: jax.Array | None = None,
    ) -> tuple[Params, OptimizerState]:
        """Clip the gradients, update the variables and return both results.

        The variables are the exact numbers that the rule computed. Adding optax
        updates would round once more, and a dense and a row-wise update of the same
        table would differ.

        Args:
          grads: The gradients, a tree like `params`.
          state: The state that `init` or the last `apply` returned.
          params: The variables.
          step: The number of updates before this one.
          loss: The loss of the step, for optax transformations that read it, such as
            `optax.contrib.reduce_on_plateau`. Other optimizers ignore it.

        Returns:
          The new variables and the new state.
        """
        if self.clip is not None:
            grads = self.clip(grads)
        if self.rule is None:
            # `step` is for `dense()`, whose transformation may be part of a chain.
            updates, state = self._optax().update(
                grads, state, params, value=loss, step=step
            )
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
        """Return the optimizer as an optax transformation.

        Its `update` takes the number of updates so far as the argument `step`.
        """

        def update(
            grads: Params,
            state: OptimizerState,
            params: Params = None,
            *,
            step: jax.Array | int,
            **_: Any,  # optax.chain passes the arguments of all to each
        ) -> tuple[Params, OptimizerState]:
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
    """Apply a rule to one array or to gathered rows, keeping every dtype.

    The rate is float32, so a bfloat16 variable is updated in float32 and rounded once.
    """
    new, new_slots = rule.update(g, w, slots, rate, jnp.asarray(step, jnp.int32))
    kept = {name: value.astype(slots[name].dtype) for name, value in new_slots.items()}
    return new.astype(w.dtype), kept


def _arguments(rule: Any) -> dict[str, Any]:
    """Return the fields of a rule, if it is a dataclass."""
    if not is_dataclass(rule):
        return {}
    return {field.name: getattr(rule, field.name) for field in fields(rule)}


def _flatten(tree: Params) -> tuple[list[jax.Array], Any]:
    # Any: jax's tree definitions have methods that its stubs do not declare.
    return jax.tree.flatten(tree)
