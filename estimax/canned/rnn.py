"""Recurrent models: `RNNEstimator`, `RNNClassifier`, and the recurrent layers they use.

A sequence may have any length. T is rounded up to a power of two, so that few shapes
are compiled. Steps after an example's own length are masked: they change no state, so
the output at the last of the T steps is that of the example's own last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from numpy.typing import NDArray

from estimax import feature_columns, heads, optimizers, staging
from estimax.canned import defaults
from estimax.canned.hints import python_hint
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import Estimator, RunConfig
from estimax.feature_columns import transforms
from estimax.heads.labels import KEY, LabelRule
from estimax.heads.sequential import MASK, StepLabels, fit_steps
from estimax.staging import variables

CellFn = Callable[[], nn.RNNCellBase]
CellState = tuple[jax.Array, ...]  # the output [B, U] first
# state, x·W, output·R -> state
Advance = Callable[[CellState, jax.Array, jax.Array], CellState]
# Learning rate and clipping norm of an optimizer given by name.
NAMED_RATE = 0.05
NAMED_CLIP = 5.0


class RNNEstimator(Estimator):
    """A recurrent network over sequence features, trained for any head.

    Use it when the task has no ready-made class. For the classification of sequences or
    of their steps, `RNNClassifier` is shorter.

    Args:
      head: What the model is trained for; sets the width of the logits, the loss and
        the metrics.
      sequence_feature_columns: Sequence columns
        (`sequence_numeric_column`, `embedding_column` of a
        `sequence_categorical_column_with_...`), concatenated at every step.
      context_feature_columns: Dense columns of features that do not change over time;
        they are repeated at every step. None: no context.
      units: Width of the cell, or a list of widths for cells on top of each other.
      cell_type: "simple_rnn", "lstm", "gru", or a class of Flax cells. None:
        "simple_rnn".
      rnn_cell_fn: A function that returns a Flax cell, in place of `units` and
        `cell_type`.
      return_sequences: Whether every step has logits. The head must then be a
        `SequentialHeadWrapper`.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.05 and clips the
        gradient of each variable to norm 5.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      bidirectional: Whether a second set of cells reads each sequence backwards. The
        outputs of both directions are concatenated.

    Raises:
      SpecError: Neither or both of `units` and `rnn_cell_fn` are given, or `cell_type`
        is unknown. Or `head` and `return_sequences` do not fit.

    Example:
      >>> import estimax as ex
      >>> fc = ex.feature_columns
      >>> prices = fc.sequence_numeric_column("prices")
      >>> model = ex.RNNEstimator(ex.heads.RegressionHead(), [prices], units=[32, 16])
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
        model_dir: defaults.ModelPath | None = None,
        optimizer: Any = "Adagrad",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        bidirectional: bool = False,
    ) -> None:
        model = type(self).__name__
        _check_cells(units, cell_type, rnn_cell_fn)
        _check_head(head, return_sequences)
        known = None
        if isinstance(optimizer, str):
            known = defaults.validate_optimizer(optimizer, NAMED_RATE, model)
        network = _Network(
            sequence_columns=defaults.validate_columns(
                sequence_feature_columns,
                model,
                "sequence_feature_columns",
                feature_columns.SequenceFeatures,
            ),
            context_columns=_validate_context(context_feature_columns, model),
            cells=_cells(units, cell_type, rnn_cell_fn),
            units=head.logits_dimension,
            return_sequences=return_sequences,
            bidirectional=bidirectional,
        )

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            defaults.check_features(features, "RNN")
            logits, mask = network.logits(features)
            if isinstance(head, heads.SequentialHeadWrapper):
                features = {**features, head.input_sequence_mask_key: mask}
                if mode != ModeKeys.PREDICT:
                    _check_labels(network, head.label_rule, features, labels)
                    features |= _fit_to_steps(
                        features, head.feature_columns, mask.shape[1]
                    )
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=_train_op(optimizer)
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(head, optimizer=known)


class RNNClassifier(RNNEstimator):
    """A recurrent network that classifies sequences, or each of their steps.

    Use it for text, sessions and other sequences of events.

    Args:
      sequence_feature_columns: Sequence columns
        (`sequence_numeric_column`, `embedding_column` of a
        `sequence_categorical_column_with_...`), concatenated at every step.
      context_feature_columns: Dense columns of features that do not change over time;
        they are repeated at every step. None: no context.
      units: Width of the cell, or a list of widths for cells on top of each other.
      cell_type: "simple_rnn", "lstm", "gru", or a class of Flax cells. None:
        "simple_rnn".
      rnn_cell_fn: A function that returns a Flax cell, in place of `units` and
        `cell_type`.
      return_sequences: Whether to classify every step. Labels then have shape [B, T].
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_classes: Number of classes. 2 makes a binary classifier with one logit.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.05 and clips the
        gradient of each variable to norm 5.
      loss_reduction: "sum_over_batch_size" (the mean over examples, the default) or
        "sum".
      sequence_mask: Name of the feature under which the head finds the mask of real
        steps, with `return_sequences`. No feature of yours may have this name.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      bidirectional: Whether a second set of cells reads each sequence backwards. The
        outputs of both directions are concatenated.

    Raises:
      SpecError: Neither or both of `units` and `rnn_cell_fn` are given, or `cell_type`
        is unknown.
      LabelError: At the first call: labels are outside the classes, or with
        `return_sequences` a step has none.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> fc = ex.feature_columns
      >>> words = np.array([["not", "good"], ["very", "good"]] * 4)
      >>> rows = ex.input.Dataset.from_tensor_slices(({"words": words}, [0, 1] * 4))
      >>> column = fc.sequence_categorical_column_with_hash_bucket("words", 100)
      >>> model = ex.RNNClassifier([fc.embedding_column(column, 4)], units=4)
      >>> model = model.train(lambda: rows.repeat().batch(8), steps=40)
      >>> float(model.evaluate(lambda: rows.batch(8))["accuracy"])
      1.0
    """

    def __init__(
        self,
        sequence_feature_columns: Iterable[Any],
        context_feature_columns: Iterable[Any] | None = None,
        units: int | Sequence[int] | None = None,
        cell_type: str | type[nn.RNNCellBase] | None = None,
        rnn_cell_fn: CellFn | None = None,
        return_sequences: bool = False,
        model_dir: defaults.ModelPath | None = None,
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
        head: Any = defaults.classifier_head(
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
    """Everything below the head: columns, cells and the logits layer."""

    sequence_columns: tuple[Any, ...]
    context_columns: tuple[Any, ...]
    cells: Callable[[jax.Array, jax.Array], jax.Array]
    units: int
    return_sequences: bool
    bidirectional: bool

    def logits(self, features: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Return logits [B, units] or [B, T, units], and the mask of steps [B, T]."""
        sequence, lengths = feature_columns.sequence_input_layer(
            features, self.sequence_columns
        )
        if self.context_columns:
            context = feature_columns.input_layer(
                features, self.context_columns, name="dense_features"
            )
            sequence = feature_columns.concatenate_context_input(context, sequence)
        mask = jnp.arange(sequence.shape[1]) < lengths[:, None]
        return variables.scoped("rnn_model", self._cells_and_logits)(
            sequence, mask
        ), mask

    def _cells_and_logits(self, sequence: jax.Array, mask: jax.Array) -> jax.Array:
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
        """The features whose lengths are the numbers of steps."""
        return tuple(dict.fromkeys(c.timed_by for c in self.sequence_columns))


def _cells(
    units: int | Sequence[int] | None,
    cell_type: str | type[nn.RNNCellBase] | None,
    rnn_cell_fn: CellFn | None,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return a function from a sequence and its mask to the outputs of every step."""
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
    """Return the outputs of a Flax cell, repeated after the last real step."""
    outputs: Any = nn.RNN(cell)(sequence)
    steps = jnp.sum(mask, axis=1)
    # Flax cells do not know the mask. Read the output of step min(t, length - 1), so
    # that outputs stay constant after the last real step, as with our own cells.
    place = jnp.minimum(jnp.arange(mask.shape[1]), jnp.maximum(steps[:, None] - 1, 0))
    held: jax.Array = jnp.take_along_axis(outputs, place[..., None], axis=1)
    return jnp.where(steps[:, None, None] > 0, held, 0)


def _fit_to_steps(features: Mapping[str, Any], keys: Any, steps: int) -> dict[str, Any]:
    """Return the step-wise features that a head reads, cut or padded to `steps`."""
    found = [key for key in keys or () if key in features]
    return {key: fit_steps(jnp.asarray(features[key]), steps) for key in found}


@dataclass(frozen=True)
class _LabelSteps:
    """Check on the host that every step has a label of the kind that the head takes.

    The head itself sees the mask on the device only, where no error can be raised.
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
    if units is not None and not defaults.is_positive(units):
        defaults.validate_units(units, "RNN", "units")
    if isinstance(cell_type, str) and cell_type not in _CELLS:
        near = did_you_mean(cell_type, _CELLS)
        raise SpecError(f"RNN: unknown cell_type {cell_type!r}{near}")
    if rnn_cell_fn is not None and (units is not None or cell_type is not None):
        raise SpecError(
            "RNN: rnn_cell_fn makes the whole cell; give it alone, without units and "
            "cell_type."
        )


def _validate_context(given: Any, model: str) -> tuple[Any, ...]:
    if given is None or given in ([], ()):
        return ()
    return defaults.validate_columns(given, model, "context_feature_columns")


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


def recurrent(
    sequence: jax.Array, mask: jax.Array, cell_type: str, units: int | Sequence[int]
) -> jax.Array:
    """Run cells of one type over [B, T, D] and return the outputs of the last cell.

    A number of units is one layer under its own name (`gru/gru_cell`), as for Keras'
    fused layers. A list is a stack of cells under `rnn`.
    """
    if cell_type not in _CELLS:
        near = did_you_mean(str(cell_type), _CELLS)
        raise SpecError(f"unknown cell_type {cell_type!r}{near}")
    if isinstance(units, int):
        return _in_scopes([cell_type], sequence, mask, cell_type, [units])
    stacked = ["stacked_rnn_cells"] if len(units) > 1 else []
    return _in_scopes(["rnn", *stacked], sequence, mask, cell_type, units)


def last_step(outputs: jax.Array) -> jax.Array:
    """Return the outputs [B, U] at the end of each sequence.

    The mask holds outputs after an example's own length, so they are at the last step.
    """
    return outputs[:, -1]


def backwards(sequence: jax.Array, mask: jax.Array) -> jax.Array:
    """Return [B, T, D] with the real steps of each sequence in reverse order."""
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
    # Layer by layer, not step by step: the results are the same, and the products of
    # all steps with a kernel are one large matrix product instead of T small ones.
    for index, size in enumerate(units):
        name = f"{cell_type}_cell" + (f"_{index}" if index else "")
        sequence = Cell(cell_type, size, name=name)(sequence, mask)
    return sequence


class Cell(nn.Module):
    """One recurrent cell, run over a whole sequence."""

    cell_type: str
    units: int
    dtype: Any = None  # of the computation, as in Flax's layers; the state is float32

    @nn.compact
    def __call__(self, sequence: jax.Array, mask: jax.Array) -> jax.Array:
        """Map [B, T, D] to outputs [B, T, units]; `mask` [B, T] marks real steps."""
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
        # A GRU has a second bias, which is added to the recurrent product, so that the
        # reset gate multiplies both. It is Keras' `reset_after`.
        own, again = (bias[0], bias[1]) if bias.ndim == 2 else (bias, 0.0)
        inputs = sequence @ kernel + own
        zeros = jnp.zeros((sequence.shape[0], self.units), jnp.float32)

        def step(state: CellState, given: tuple[jax.Array, jax.Array]) -> Any:
            x, is_step = given
            output = state[0].astype(recurrent_kernel.dtype)
            new = advance(state, x, output @ recurrent_kernel + again)
            # A masked step keeps the state and so the output.
            kept = tuple(
                jnp.where(is_step[:, None], after.astype(jnp.float32), before)
                for after, before in zip(new, state, strict=True)
            )
            return kept, kept[0]

        by_time = (jnp.swapaxes(inputs, 0, 1), jnp.swapaxes(mask, 0, 1))
        _, outputs = jax.lax.scan(step, (zeros,) * states, by_time)
        return jnp.swapaxes(outputs, 0, 1)


def _simple(state: CellState, x: jax.Array, again: jax.Array) -> CellState:
    return (jnp.tanh(x + again),)


def _gru(state: CellState, x: jax.Array, again: jax.Array) -> CellState:
    x_update, x_reset, x_new = jnp.split(x, 3, axis=-1)
    update, reset, new = jnp.split(again, 3, axis=-1)
    keep = nn.sigmoid(x_update + update)
    proposed = jnp.tanh(x_new + nn.sigmoid(x_reset + reset) * new)
    return (keep * state[0] + (1 - keep) * proposed,)


def _lstm(state: CellState, x: jax.Array, again: jax.Array) -> CellState:
    enter, forget, new, leave = jnp.split(x + again, 4, axis=-1)
    memory = nn.sigmoid(forget) * state[1] + nn.sigmoid(enter) * jnp.tanh(new)
    return nn.sigmoid(leave) * jnp.tanh(memory), memory


def _lstm_bias(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return the initial bias: 1 for the forget gate, to keep memory, 0 elsewhere."""
    units = shape[0] // 4
    return jnp.zeros(shape).at[units : 2 * units].set(1)


def _bias_shape(cell_type: str, width: int) -> tuple[int, ...]:
    return (2, width) if cell_type == "gru" else (width,)


# cell_type -> gates, arrays of state, one step, initializer of the bias
_CELLS: dict[str, tuple[int, int, Advance, Any]] = {
    "simple_rnn": (1, 1, _simple, nn.initializers.zeros),
    "lstm": (4, 2, _lstm, _lstm_bias),
    "gru": (3, 1, _gru, nn.initializers.zeros),
}
