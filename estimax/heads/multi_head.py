"""`MultiHead`: several heads trained on one model.

    head = MultiHead([BinaryClassHead(name="click"), RegressionHead(name="price")])
    head.loss(labels={"click": ..., "price": ...}, logits=logits)     # [B, 1 + 1]

Logits are a dict by head name, or one array with the heads' logits concatenated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax

from estimax import metrics
from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.core.spec import ExportOutput, ModeKeys, PredictOutput
from estimax.heads import checks
from estimax.heads.head import (
    BaseHead,
    Head,
    Labels,
    Logits,
    Losses,
    Metrics,
    add_regularization,
    merge,
    named,
    total_regularization,
)


@final
@dataclass(frozen=True, repr=False)
class MultiHead(BaseHead):
    """Several heads trained together; the loss is the sum of their losses.

    Use it for multi-task models. Every head has a name, which is its key in `labels`,
    the suffix of its metrics and the prefix of its serving signatures. All heads see
    the same features, so each reads its own weight column.

    Logits are a dict from head name to [B, K] of that head, or one array [B, sum of K]
    in the order of the heads. Prediction keys are pairs (head name, key). Metrics are
    those of the heads plus `loss/<head>` for each. Signatures are `<head>/<signature>`;
    `<head>` is the default signature of a head, "serving_default" that of the first.

    Args:
      heads: The heads, with names that differ.
      head_weights: Factors of the heads' losses, one for each head. By default 1. They
        do not change metrics.

    Raises:
      SpecError: There is no head, a head has no name, two have the same name, or the
        number of `head_weights` is not the number of heads.

    Example:
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
        self._set("heads", tuple(self.heads or ()))
        self._set("head_weights", tuple(self.head_weights or ()) or None)
        names = [head.name for head in self.heads]
        if not names:
            raise SpecError("MultiHead: heads is empty; give at least one head.")
        for head in self.heads:
            if not head.name:
                raise SpecError(
                    f"MultiHead: every head needs a name, {type(head).__name__} has "
                    "none. The name is the key of its labels, logits and metrics."
                )
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise SpecError(f"MultiHead: two heads are named {twice[0]!r}.")
        if self.head_weights and len(self.head_weights) != len(names):
            raise SpecError(
                f"MultiHead: {len(self.head_weights)} head_weights for {len(names)} "
                "heads; give one for each head."
            )

    @property
    def name(self) -> str:
        """The names of the heads, joined by underscores."""
        return "_".join(self._by_name)

    @property
    def logits_dimension(self) -> int:
        """The sum of the heads' logits dimensions."""
        return sum(head.logits_dimension for head in self.heads)

    @property
    def loss_reduction(self) -> str:
        """The reduction of all heads; `SpecError` if they differ."""
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
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> jax.Array:
        """Return the weighted sum of the heads' losses plus regularization.

        Args:
          labels: A dict from head name to the labels of that head.
          logits: A dict from head name to logits [B, K], or all of them as one array.
          features: Features by name; every head reads its own weight column.
          mode: Passed to the heads' `loss`.
          regularization_losses: Scalars to add. `head_weights` do not apply to them.

        Returns:
          A float32 scalar.

        Raises:
          LabelError: `labels` is not a dict or lacks the labels of a head.
          SpecError: `logits` lacks the logits of a head or has another shape.
        """
        losses = self._losses(labels, logits, features, mode)
        weights = self.head_weights or (1.0,) * len(losses)
        weighted = [w * loss for w, loss in zip(weights, losses.values(), strict=True)]
        return add_regularization(sum(weighted[1:], weighted[0]), regularization_losses)

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[Any, Any]:
        """Return all predictions of all heads.

        Args:
          logits: A dict from head name to logits [B, K], or all of them as one array.
          keys: Ignored, as in tf.estimator.

        Returns:
          A dict from (head name, key) to an array of B rows.

        Raises:
          SpecError: `logits` lacks the logits of a head or has another shape.
        """
        return {
            (name, key): value
            for name, x in self._split_logits(logits).items()
            for key, value in self._by_name[name].predictions(x).items()
        }

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        empty: dict[str, Any] = {}
        for name, head in self._by_name.items():
            empty |= {named("loss", name): metrics.mean(), **head.metrics()}
        if total_regularization(regularization_losses) is not None:
            empty[named("regularization_loss", self.name)] = metrics.mean()
        return empty

    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        losses = self._losses(labels, logits, features, ModeKeys.EVAL)
        for name, x in self._split_logits(logits).items():
            head, loss = self._by_name[name], losses[name]
            seen = head.update_metrics(head.metrics(), features, x, labels[name])
            batch |= {named("loss", name): metrics.mean(loss), **seen}
        total = total_regularization(regularization_losses)
        if total is not None:
            batch[named("regularization_loss", self.name)] = metrics.mean(total)
        return merge(eval_metrics, batch)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Return the signatures of all heads, with the head's name as prefix.

        Args:
          predictions: All predictions, as returned by `predictions`.

        Returns:
          A dict with `<head>/<signature>` for each signature of each head, `<head>` for
          its default, "serving_default" for that of the first head, and "predict" for
          all predictions.
        """
        signatures = {}
        for name, head in self._by_name.items():
            own = {key: v for (of, key), v in predictions.items() if of == name}
            signatures[name] = head.export_outputs(own)
        return join_signatures(signatures, predictions)

    def _training_scalars(
        self,
        loss: jax.Array,
        features: Any,
        logits: Logits,
        labels: Labels,
        regularization_losses: Losses,
    ) -> dict[str, jax.Array]:
        _ = self.loss_reduction  # raises SpecError if the heads disagree
        losses = self._losses(labels, logits, features)
        scalars = {named("loss", name): own for name, own in losses.items()}
        penalty = total_regularization(regularization_losses)
        if penalty is not None:
            scalars["regularization_loss"] = penalty
        return scalars

    @property
    def _by_name(self) -> dict[str, Head]:
        return {str(head.name): head for head in self.heads}

    def _losses(
        self, labels: Labels, logits: Logits, features: Any, mode: Any = None
    ) -> dict[str, jax.Array]:
        """Return the loss of each head, before head weights and regularization."""
        self._check_labels(labels)
        return {
            name: self._by_name[name].loss(
                labels=labels[name], logits=x, features=features, mode=mode
            )
            for name, x in self._split_logits(logits).items()
        }

    def _check_labels(self, labels: Labels) -> None:
        if not isinstance(labels, Mapping):
            found = "none" if labels is None else type(labels).__name__
            raise LabelError(
                f"MultiHead: labels must be a dict with the keys "
                f"{list(self._by_name)}, got {found}."
            )
        _check_all(self._by_name, labels, "labels", LabelError)

    def _split_logits(self, logits: Logits) -> dict[str, Any]:
        """Return the logits of each head, in the order of the heads."""
        if isinstance(logits, Mapping):
            _check_all(self._by_name, logits, "logits", SpecError)
            return {name: logits[name] for name in self._by_name}
        title = f"MultiHead {self.name!r}"
        x = checks.validate_logits(title, logits, self.logits_dimension)
        parts, start = {}, 0
        for name, head in self._by_name.items():
            parts[name] = x[..., start : start + head.logits_dimension]
            start += head.logits_dimension
        return parts


def _check_all(
    heads: Mapping[str, Any],
    given: Mapping[Any, Any],
    what: str,
    error: type[Exception],
) -> None:
    """Raise an error that names every head without labels or logits."""
    missing = [name for name in heads if name not in given]
    if missing:
        word = "head" if len(missing) == 1 else "heads"
        near = did_you_mean(missing[0], map(str, given), listed_as="found")
        names = ", ".join(map(repr, missing))
        raise error(f"MultiHead: {what} of {word} {names} missing{near}")


def join_signatures(
    signatures: Mapping[str, Mapping[str, ExportOutput]], predictions: Mapping[Any, Any]
) -> dict[str, ExportOutput]:
    """Return the signatures of several heads, by name, as those of one model.

    They are `<head>/<signature>`, `<head>` for the default of a head, "serving_default"
    for that of the first head, and "predict" for all predictions.
    """
    exports: dict[str, ExportOutput] = {}
    for name, own in signatures.items():
        default = own.get("serving_default") or next(iter(own.values()))
        exports.setdefault("serving_default", default)
        exports[name] = default
        for key, output in own.items():
            if key != "serving_default":
                exports[f"{name}/{key}"] = output
    return {**exports, "predict": PredictOutput(predictions)}
