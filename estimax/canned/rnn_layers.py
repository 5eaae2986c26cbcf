"""Recurrent layers with Keras' cells, weights and names, for padded sequences.

    net = recurrent(sequence, mask, "gru", 16)          # [B, T, 16]: rnn_model/gru/…
    net = recurrent(sequence, mask, "lstm", [32, 16])   # two, one on the other

A step that the mask leaves out keeps the state of the one before it, so the last step
of a padded sequence holds what came out of its last real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype

from estimax import variables
from estimax.core.errors import SpecError, did_you_mean

State = tuple[jax.Array, ...]  # the output [B, U] first
Advance = Callable[[State, jax.Array, jax.Array], State]  # state, x·W, state·R


def recurrent(
    sequence: jax.Array, mask: jax.Array, cell_type: str, units: int | Sequence[int]
) -> jax.Array:
    """Run cells of one type over [B, T, D]; returns the last one's outputs.

    A number of units is one layer under its own name (`gru/gru_cell`), as Keras' fused
    layers have; a list is cells in one `rnn`.
    """
    if cell_type not in _CELLS:
        near = did_you_mean(str(cell_type), _CELLS)
        raise SpecError(f"unknown cell_type {cell_type!r}{near}")
    if isinstance(units, int):
        return _in_scopes([cell_type], sequence, mask, cell_type, [units])
    stacked = ["stacked_rnn_cells"] if len(units) > 1 else []
    return _in_scopes(["rnn", *stacked], sequence, mask, cell_type, units)


def last_step(outputs: jax.Array) -> jax.Array:
    """The output after each whole sequence, [B, U]: see the mask's rule above."""
    return outputs[:, -1]


def backwards(sequence: jax.Array, mask: jax.Array) -> jax.Array:
    """The real steps of each [B, T, D] in reverse; the padding stays behind them."""
    place = jnp.arange(mask.shape[1])
    steps = jnp.sum(mask, axis=1, keepdims=True)
    source = jnp.where(mask, steps - 1 - place, place)
    return jnp.take_along_axis(sequence, source[..., None], axis=1)


def _in_scopes(
    scopes: list[str],
    sequence: jax.Array,
    mask: jax.Array,
    cell_type: str,
    units: Sequence[int],
) -> jax.Array:
    if scopes:
        inner = variables.scoped(scopes[0], _in_scopes)
        found: jax.Array = inner(scopes[1:], sequence, mask, cell_type, units)
        return found
    # Layer by layer, not step by step: the same numbers, and one large product of all
    # steps with the kernel instead of many small ones.
    for index, size in enumerate(units):
        name = f"{cell_type}_cell" + (f"_{index}" if index else "")
        sequence = Cell(cell_type, size, name=name)(sequence, mask)
    return sequence


class Cell(nn.Module):
    """One recurrent cell over a whole sequence."""

    cell_type: str
    units: int
    dtype: Any = None  # to compute in, as in Flax's layers; a state stays float32

    @nn.compact
    def __call__(self, sequence: jax.Array, mask: jax.Array) -> jax.Array:
        """Map [B, T, D] to outputs [B, T, units]; `mask` [B, T] is true for steps."""
        gates, states, advance, start_bias = _CELLS[self.cell_type]
        width = gates * self.units
        glorot = nn.initializers.glorot_uniform()
        kernel = self.param("kernel", glorot, (sequence.shape[-1], width))
        recurrent_kernel = self.param(
            "recurrent_kernel", nn.initializers.orthogonal(), (self.units, width)
        )
        bias = self.param("bias", start_bias, _bias_shape(self.cell_type, width))
        sequence, kernel, recurrent_kernel, bias = promote_dtype(
            sequence, kernel, recurrent_kernel, bias, dtype=self.dtype
        )
        # A GRU has a second bias, for the recurrent product: it is reset with it.
        own, again = (bias[0], bias[1]) if bias.ndim == 2 else (bias, 0.0)
        inputs = sequence @ kernel + own
        zeros = jnp.zeros((sequence.shape[0], self.units), jnp.float32)

        def step(state: State, given: tuple[jax.Array, jax.Array]) -> Any:
            x, is_step = given
            output = state[0].astype(recurrent_kernel.dtype)
            new = advance(state, x, output @ recurrent_kernel + again)
            kept = tuple(
                jnp.where(is_step[:, None], after.astype(jnp.float32), before)
                for after, before in zip(new, state, strict=True)
            )
            return kept, kept[0]

        by_time = (jnp.swapaxes(inputs, 0, 1), jnp.swapaxes(mask, 0, 1))
        _, outputs = jax.lax.scan(step, (zeros,) * states, by_time)
        return jnp.swapaxes(outputs, 0, 1)


def _simple(state: State, x: jax.Array, again: jax.Array) -> State:
    return (jnp.tanh(x + again),)


def _gru(state: State, x: jax.Array, again: jax.Array) -> State:
    x_update, x_reset, x_new = jnp.split(x, 3, axis=-1)
    update, reset, new = jnp.split(again, 3, axis=-1)
    keep = nn.sigmoid(x_update + update)
    proposed = jnp.tanh(x_new + nn.sigmoid(x_reset + reset) * new)
    return (keep * state[0] + (1 - keep) * proposed,)


def _lstm(state: State, x: jax.Array, again: jax.Array) -> State:
    enter, forget, new, leave = jnp.split(x + again, 4, axis=-1)
    memory = nn.sigmoid(forget) * state[1] + nn.sigmoid(enter) * jnp.tanh(new)
    return nn.sigmoid(leave) * jnp.tanh(memory), memory


def _lstm_bias(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """One for the forget gate: at first an LSTM remembers."""
    units = shape[0] // 4
    return jnp.zeros(shape).at[units : 2 * units].set(1)


def _bias_shape(cell_type: str, width: int) -> tuple[int, ...]:
    return (2, width) if cell_type == "gru" else (width,)


# gates, arrays of state, how a step is made, how the bias starts
_CELLS: dict[str, tuple[int, int, Advance, Any]] = {
    "simple_rnn": (1, 1, _simple, nn.initializers.zeros),
    "lstm": (4, 2, _lstm, _lstm_bias),
    "gru": (3, 1, _gru, nn.initializers.zeros),
}
