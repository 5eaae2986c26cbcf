"""Recurrent models: sequence columns, cells, a head on the last step or on every one.

A sequence may be as long as it is: T is rounded up to a power of two, so that few
shapes compile, and steps after an example's own length change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from numpy.typing import NDArray

from estimax import feature_columns, heads, optimizers, staging, transforms, variables
from estimax.canned import parts
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import Estimator, RunConfig
from estimax.heads.labels import KEY, LabelRule
from estimax.heads.sequential import MASK, StepLabels, fit_steps

Path = str | os.PathLike[str]
CellFn = Callable[[], nn.RNNCellBase]
NAMED_RATE = 0.05
NAMED_CLIP = 5.0


class RNNEstimator(Estimator):
    """A recurrent network under any head.

    `cell_type` is "simple_rnn" (the default), "lstm", "gru", or a class of Flax cells;
    `units` is a number, or a list for cells on top of each other. Or `rnn_cell_fn`
    makes a Flax cell. With `return_sequences` every step has logits, and the head must
    be a `SequentialHeadWrapper`. With `bidirectional` other cells of the same kind read
    each sequence from its own end, and the outputs of both directions stand side by
    side. An optimizer given by name learns at 0.05 and clips the gradient of each
    variable to norm 5.
    """

    def __init__(
        self,
        head: heads.Head | heads.SequentialHeadWrapper,
        sequence_feature_columns: Iterable[Any],
        context_feature_columns: Iterable[Any] | None = None,
        units: int | Sequence[int] | None = None,
        cell_type: str | type[nn.RNNCellBase] | None = None,
        rnn_cell_fn: CellFn | None = None,
        return_sequences: bool = False,
        model_dir: Path | None = None,
        optimizer: Any = "Adagrad",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        bidirectional: bool = False,
    ) -> None:
        _check_cells(units, cell_type, rnn_cell_fn)
        _check_head(head, return_sequences)
        network = _Network(
            sequence_columns=tuple(sequence_feature_columns),
            context_columns=tuple(context_feature_columns or ()),
            cells=_cells(units, cell_type, rnn_cell_fn),
            units=head.logits_dimension,
            return_sequences=return_sequences,
            bidirectional=bidirectional,
        )

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            parts.check_features(features, "RNN")
            logits, mask = network.logits(features)
            if isinstance(head, heads.SequentialHeadWrapper):
                features = {**features, head.input_sequence_mask_key: mask}
                if mode != ModeKeys.PREDICT:
                    _check_labels(network, head.label_rule, features, labels)
                    features |= _fitted(features, head.feature_columns, mask.shape[1])
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=_train_op(optimizer)
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class RNNClassifier(RNNEstimator):
    """A classifier of sequences, or with `return_sequences` of their steps.

    >>> import estimax as ex
    >>> fc = ex.feature_columns
    >>> words = fc.sequence_categorical_column_with_hash_bucket("words", 1000)
    >>> model = ex.RNNClassifier(
    ...     [fc.embedding_column(words, 8)], units=16, cell_type="gru",
    ...     model_dir="/tmp/estimax-doc-rnn",
    ... )
    """

    def __init__(
        self,
        sequence_feature_columns: Iterable[Any],
        context_feature_columns: Iterable[Any] | None = None,
        units: int | Sequence[int] | None = None,
        cell_type: str | type[nn.RNNCellBase] | None = None,
        rnn_cell_fn: CellFn | None = None,
        return_sequences: bool = False,
        model_dir: Path | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Adagrad",
        loss_reduction: str | None = None,
        sequence_mask: str = "sequence_mask",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        bidirectional: bool = False,
    ) -> None:
        head: Any = parts.classifier_head(
            n_classes, weight_column, label_vocabulary, loss_reduction
        )
        if return_sequences:
            key = getattr(weight_column, "key", weight_column)
            head = heads.SequentialHeadWrapper(head, sequence_mask, key)
        super().__init__(
            head,
            sequence_feature_columns,
            context_feature_columns,
            units,
            cell_type,
            rnn_cell_fn,
            return_sequences,
            model_dir,
            optimizer,
            config,
            warm_start_from,
            bidirectional,
        )


@dataclass(frozen=True)
class _Network:
    """Everything below the head."""

    sequence_columns: tuple[Any, ...]
    context_columns: tuple[Any, ...]
    cells: Callable[[jax.Array, jax.Array], jax.Array]
    units: int
    return_sequences: bool
    bidirectional: bool

    def logits(self, features: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Logits [B, units] or [B, T, units], and which steps are real [B, T]."""
        sequence, lengths = feature_columns.sequence_input_layer(
            features, self.sequence_columns
        )
        if self.context_columns:
            context = feature_columns.input_layer(
                features, self.context_columns, name="dense_features"
            )
            sequence = feature_columns.concatenate_context_input(context, sequence)
        mask = jnp.arange(sequence.shape[1]) < lengths[:, None]
        return variables.scoped("rnn_model", self._above)(sequence, mask), mask

    def _above(self, sequence: jax.Array, mask: jax.Array) -> jax.Array:
        run = self._both_ways if self.bidirectional else self._one_way
        net = run(sequence, mask)
        logits: jax.Array = nn.Dense(
            self.units, kernel_init=nn.initializers.glorot_uniform(), name="logits"
        )(net)
        return logits

    def _one_way(self, sequence: jax.Array, mask: jax.Array) -> jax.Array:
        net = self.cells(sequence, mask)
        return net if self.return_sequences else last_step(net)

    def _both_ways(self, sequence: jax.Array, mask: jax.Array) -> jax.Array:
        there = variables.scoped("forward", self._one_way)(sequence, mask)
        back = variables.scoped("backward", self._one_way)(
            backwards(sequence, mask), mask
        )
        if self.return_sequences:
            back = backwards(back, mask)
        return jnp.concatenate([there, back], axis=-1)

    @property
    def timed_by(self) -> tuple[tuple[str, int | None], ...]:
        """The features that have the steps."""
        return tuple(dict.fromkeys(c.timed_by for c in self.sequence_columns))


def _cells(
    units: int | Sequence[int] | None,
    cell_type: str | type[nn.RNNCellBase] | None,
    rnn_cell_fn: CellFn | None,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """What maps a sequence and its mask to the outputs of every step."""
    if rnn_cell_fn is not None:
        make = rnn_cell_fn
        return lambda sequence, mask: _flax_cell(make(), sequence, mask)
    assert units is not None
    if isinstance(cell_type, type):
        sizes = [units] if isinstance(units, int) else units
        # Any: a class of Flax cells takes its size first, which the base does not say.
        make_cell: Any = cell_type

        def stacked(sequence: jax.Array, mask: jax.Array) -> jax.Array:
            for size in sizes:
                sequence = _flax_cell(make_cell(size), sequence, mask)
            return sequence

        return stacked
    kind = cell_type or "simple_rnn"
    return lambda sequence, mask: recurrent(sequence, mask, kind, units)


def _flax_cell(cell: nn.RNNCellBase, sequence: jax.Array, mask: jax.Array) -> jax.Array:
    """Outputs of a cell of Flax, each held from the last real step on."""
    outputs: Any = nn.RNN(cell)(sequence)
    steps = jnp.sum(mask, axis=1)
    # A mask is true up to a length: the place to read from stops there.
    place = jnp.minimum(jnp.arange(mask.shape[1]), jnp.maximum(steps[:, None] - 1, 0))
    held: jax.Array = jnp.take_along_axis(outputs, place[..., None], axis=1)
    return jnp.where(steps[:, None, None] > 0, held, 0)


def _fitted(features: Mapping[str, Any], keys: Any, steps: int) -> dict[str, Any]:
    """The features of steps that a head reads, cut or filled up to the program's."""
    found = [key for key in keys or () if key in features]
    return {key: fit_steps(jnp.asarray(features[key]), steps) for key in found}


@dataclass(frozen=True)
class _LabelSteps:
    """Raises unless every step of a sequence has a label, of the kind that its head
    takes. Here because the head sees the mask on the device, where none can raise.
    """

    lengths: transforms.SequenceLengths
    rule: LabelRule
    label: str = "the labels"
    name: str = "label_steps"

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.lengths.keys, self.label)

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.int32]:
        lengths = self.lengths(raw)
        labels = raw[self.label]
        shape = labels.dense_shape if isinstance(labels, Sparse) else labels.shape
        if len(shape) < 2 or lengths.max(initial=0) > shape[1]:
            raise LabelError(
                "RNN with return_sequences: every step needs a label, shape [B, T]; "
                f"the longest sequence has {lengths.max(initial=0)} steps, the labels "
                f"have shape {list(shape)}."
            )
        mask = np.arange(shape[1]) < lengths[:, None]
        StepLabels(self.rule, has_mask=True)({KEY: labels, MASK: mask})
        return lengths


def _check_labels(
    network: _Network, rule: LabelRule, features: Any, labels: Any
) -> None:
    check = _LabelSteps(transforms.SequenceLengths(network.timed_by), rule)
    staging.stage(check, {**features, check.label: labels})


def _train_op(given: Any) -> optimizers.TrainOp:
    if isinstance(given, str):
        given = optimizers.by_name(given, NAMED_RATE, clipnorm=NAMED_CLIP)
    return optimizers.as_train_op(given)


def _check_cells(units: Any, cell_type: Any, rnn_cell_fn: Any) -> None:
    if rnn_cell_fn is None and not units:
        raise SpecError("RNN: give units (and a cell_type), or an rnn_cell_fn.")
    if rnn_cell_fn is not None and (units is not None or cell_type is not None):
        raise SpecError(
            "RNN: rnn_cell_fn makes the whole cell; give it alone, without units and "
            "cell_type."
        )


def _check_head(head: Any, return_sequences: bool) -> None:
    is_sequential = isinstance(head, heads.SequentialHeadWrapper)
    if return_sequences and not is_sequential:
        raise SpecError(
            "RNN: with return_sequences every step has logits, so the head must be a "
            f"SequentialHeadWrapper, got {type(head).__name__}."
        )
    if is_sequential and not return_sequences:
        raise SpecError(
            "RNN: a SequentialHeadWrapper reads the logits of every step; set "
            "return_sequences=True."
        )


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
