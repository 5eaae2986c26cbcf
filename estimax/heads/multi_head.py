"""Several heads on one model: their losses added, their names kept apart.

    head = MultiHead([BinaryClassHead(name="click"), RegressionHead(name="price")])
    head.loss(labels={"click": ..., "price": ...}, logits=logits)     # [B, 1 + 1]

Logits are a dict by head name, or one array with the heads' logits side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax

from estimax import metrics
from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ExportOutput, ModeKeys, PredictOutput
from estimax.heads import checks
from estimax.heads.head import (
    Features,
    Head,
    Labels,
    Logits,
    Losses,
    Metrics,
)
from estimax.heads.make_spec import Training, build_spec, log_scalar
from estimax.heads.scoring import (
    merge,
    named,
    regularized,
    total_regularization,
)


@final
@dataclass(frozen=True)
class MultiHead:
    """Heads trained together; `head_weights` multiply their losses.

    Prediction keys are pairs (head name, key). Features are shared, so every head
    reads its own weight column.

    >>> from estimax.heads import BinaryClassHead, RegressionHead
    >>> head = MultiHead([BinaryClassHead(name="a"), RegressionHead(name="b")])
    >>> head.name, head.logits_dimension
    ('a_b', 2)
    >>> labels = {"a": [1], "b": [3.0]}
    >>> round(float(head.loss(labels, [[0.0, 1.0]])), 4)
    4.6931
    """

    heads: Sequence[Head]
    head_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        checks.put(self, "heads", tuple(self.heads or ()))
        checks.put(self, "head_weights", tuple(self.head_weights or ()) or None)
        names = [head.name for head in self.heads]
        if not names:
            raise SpecError("MultiHead: heads is empty; give at least one head.")
        for head in self.heads:
            if not head.name:
                raise SpecError(
                    f"MultiHead: every head needs a name, {type(head).__name__} has "
                    "none. Labels, logits and metrics go by it."
                )
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise SpecError(f"MultiHead: two heads are named {twice[0]!r}.")
        if self.head_weights and len(self.head_weights) != len(names):
            raise SpecError(
                f"MultiHead: {len(self.head_weights)} head_weights for {len(names)} "
                "heads; give one a head."
            )

    @property
    def name(self) -> str:
        """The names of the heads, joined."""
        return "_".join(self._by_name)

    @property
    def logits_dimension(self) -> int:
        """The logits of all heads side by side."""
        return sum(head.logits_dimension for head in self.heads)

    @property
    def loss_reduction(self) -> str:
        """The reduction all heads have; raises if they differ."""
        reductions = {head.loss_reduction for head in self.heads}
        if len(reductions) > 1:
            raise SpecError(
                f"MultiHead {self.name!r}: the heads have different loss_reductions, "
                f"{sorted(reductions)}. Give all the same to train them together."
            )
        return reductions.pop()

    def loss(
        self,
        labels: Labels,
        logits: Logits,
        features: Features = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """The weighted sum of the heads' losses, plus regularization (not weighted)."""
        losses = self._losses(labels, logits, features, mode)
        weights = self.head_weights or (1.0,) * len(losses)
        weighted = [w * loss for w, loss in zip(weights, losses.values(), strict=True)]
        return regularized(sum(weighted[1:], weighted[0]), regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[Any, Any]:
        """All predictions of all heads by (head name, key); `keys` is ignored."""
        return {
            (name, key): value
            for name, x in self._split(logits).items()
            for key, value in self._by_name[name].predictions(x).items()
        }

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        """The metrics of all heads, and the mean of each head's loss."""
        empty: dict[str, Any] = {}
        for name, head in self._by_name.items():
            empty |= {named("loss", name): metrics.mean(), **head.metrics()}
        if total_regularization(regularization_losses) is not None:
            empty[named("regularization_loss", self.name)] = metrics.mean()
        return empty

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Features,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        """The metrics with this batch merged in, as a new dict."""
        batch: dict[str, Any] = {}
        losses = self._losses(labels, logits, features)
        for name, x in self._split(logits).items():
            head, loss = self._by_name[name], losses[name]
            seen = head.update_metrics(head.metrics(), features, x, labels[name])
            batch |= {named("loss", name): metrics.mean(loss), **seen}
        total = total_regularization(regularization_losses)
        if total is not None:
            batch[named("regularization_loss", self.name)] = metrics.mean(total)
        return merge(eval_metrics, batch)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Every head's signatures as `<head>/<signature>`, `<head>` its default."""
        exports: dict[str, ExportOutput] = {}
        for name, head in self._by_name.items():
            own = {key: v for (of, key), v in predictions.items() if of == name}
            signatures = head.export_outputs(own)
            default = signatures.get("serving_default")
            default = default or next(iter(signatures.values()))
            exports.setdefault("serving_default", default)
            exports[name] = default
            for key, output in signatures.items():
                if key != "serving_default":
                    exports[f"{name}/{key}"] = output
        return {**exports, "predict": PredictOutput(predictions)}

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
        """What a `model_fn` returns for the mode; see `make_spec`."""
        if mode == ModeKeys.TRAIN:
            _ = self.loss_reduction  # raises if the heads disagree
            for name, loss in self._losses(labels, logits, features).items():
                log_scalar(named("loss", name), loss)
            penalty = total_regularization(regularization_losses)
            log_scalar("regularization_loss", penalty)
        training = Training(optimizer, trainable_variables, train_op_fn, update_ops)
        return build_spec(
            self, features, mode, logits, labels, training, regularization_losses
        )

    @property
    def _by_name(self) -> dict[str, Head]:
        return {str(head.name): head for head in self.heads}

    def _losses(
        self, labels: Labels, logits: Logits, features: Features, mode: Any = None
    ) -> dict[str, jax.Array]:
        """Each head's own loss, neither weighted nor regularized."""
        self._check_labels(labels)
        return {
            name: self._by_name[name].loss(
                labels=labels[name], logits=x, features=features, mode=mode
            )
            for name, x in self._split(logits).items()
        }

    def _check_labels(self, labels: Labels) -> None:
        if not isinstance(labels, Mapping):
            found = "none" if labels is None else type(labels).__name__
            raise LabelError(
                f"MultiHead: labels must be a dict with the keys "
                f"{list(self._by_name)}, got {found}."
            )
        for name in self._by_name:
            if name not in labels:
                near = did_you_mean(name, [str(key) for key in labels])
                raise LabelError(f"MultiHead: labels of head {name!r} missing{near}")

    def _split(self, logits: Logits) -> dict[str, Any]:
        """The logits of each head, in the order of the heads."""
        if isinstance(logits, Mapping):
            for name in self._by_name:
                if name not in logits:
                    near = did_you_mean(name, [str(key) for key in logits])
                    raise SpecError(f"MultiHead: logits of head {name!r} missing{near}")
            return {name: logits[name] for name in self._by_name}
        title = f"MultiHead {self.name!r}"
        x = checks.checked_logits(title, logits, self.logits_dimension)
        parts, start = {}, 0
        for name, head in self._by_name.items():
            parts[name] = x[..., start : start + head.logits_dimension]
            start += head.logits_dimension
        return parts
