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
from numpy.typing import NDArray

from estimax import feature_columns, heads, optimizers, staging, transforms, variables
from estimax.canned import parts
from estimax.canned.rnn_layers import backwards, last_step, recurrent
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import LabelError, SpecError
from estimax.core.mode import ModeKeys
from estimax.core.sparse import Sparse
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig
from estimax.heads.labels import KEY, LabelRule
from estimax.heads.sequence_labels import MASK, StepLabels, fit_steps

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
