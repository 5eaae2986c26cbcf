"""What a head is: from logits to loss, predictions, metrics and a spec.

    head = ex.heads.BinaryClassHead()
    return head.create_estimator_spec(features, mode, logits, labels, optimizer="Adam")

A head is a frozen value without state; all it computes is a pure function of its
arguments and may be called eagerly as well as inside `jit`. To write your own, define
the members of `Head` and set `create_estimator_spec = ex.heads.make_spec`
(`examples/custom_head` does it in thirty lines).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax

from estimax import metrics
from estimax.core.spec import EstimatorSpec, ExportOutput

# Labels, logits and features are Any in these signatures: they are arrays, tracers,
# text, sparse values or placeholders, which only the head's rules can tell apart.
Features = Any
Labels = Any
Logits = Any
Losses = Sequence[Any] | None  # regularization losses: scalars
Metrics = Mapping[str, metrics.Metric]
Measured = dict[str, metrics.Metric]
LossFn = Callable[..., jax.Array]


@runtime_checkable
class Head(Protocol):
    """The last part of a model; B rows of logits in, everything else out."""

    @property
    def name(self) -> str | None:
        """What its metrics and summaries end with: `auc/<name>`."""

    @property
    def logits_dimension(self) -> int:
        """The size of the last axis of its logits."""

    @property
    def loss_reduction(self) -> str:
        """How losses of examples become one: see `losses.reduce_losses`."""

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Features = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """The scalar to minimise, regularization included."""

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[Any, Any]:
        """What the logits say, by name; only `keys` if given."""

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """Its metrics before any data."""

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Features,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """The metrics with this batch merged in; metrics are values, so a new dict."""

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """How predictions are served, by signature."""

    def create_estimator_spec(
        self,
        features: Features,
        mode: str,
        logits: Logits,
        labels: Labels = None,
        optimizer: Any = None,
        trainable_variables: str | Sequence[str] | None = None,
        train_op_fn: Callable[[jax.Array], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Losses = None,
    ) -> EstimatorSpec:
        """What a `model_fn` returns for the mode."""
