"""Receivers: which raw features a request to an exported model carries.

    receive = build_raw_serving_input_receiver_fn({"age": np.zeros(1, np.float32)})
    estimator.export_saved_model("export", receive)

There are no placeholders here: a receiver holds example rows. Their dtypes and shapes,
the number of rows aside, become those of the signature's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import SpecError
from estimax.core.raw_values import as_raw
from estimax.export.signature import LONE_FEATURE
from estimax.staging import plan as plans


@dataclass(frozen=True, eq=False)
class ServingInputReceiver:
    """Example rows of every feature of a request; a lone array is named "feature".

    `receiver_tensors` is accepted for porting and must name the same features: what a
    request carries is what the model gets.

    >>> import numpy as np
    >>> sorted(ServingInputReceiver({"age": np.zeros(1)}).features)
    ['age']
    """

    features: Any  # given: an array or a dict; kept: a dict in raw form
    receiver_tensors: Any = None

    def __post_init__(self) -> None:
        named = _as_dict(self.features, LONE_FEATURE)
        tensors = self.receiver_tensors
        if tensors is not None and set(_as_dict(tensors, LONE_FEATURE)) != set(named):
            raise SpecError(
                "ServingInputReceiver: receiver_tensors must name the same features, "
                f"{sorted(map(str, named))}; a receiver that computes features from a "
                "request is not supported, use a feature column for that."
            )
        object.__setattr__(self, "features", named)
        object.__setattr__(self, "receiver_tensors", named)

    def example(self) -> plans.RawBatch:
        """The example rows, each by its origin."""
        return plans.flatten(self.features, None)


@dataclass(frozen=True, eq=False)
class TensorServingInputReceiver:
    """Example rows for a model whose features are one array and not a dict.

    >>> import numpy as np
    >>> TensorServingInputReceiver(np.zeros((1, 3))).features.shape
    (1, 3)
    """

    features: Any

    def __post_init__(self) -> None:
        if isinstance(self.features, Mapping):
            raise SpecError(
                "TensorServingInputReceiver: features must be one array, found a dict. "
                "Use ServingInputReceiver."
            )
        object.__setattr__(self, "features", _example(LONE_FEATURE, self.features))

    def example(self) -> plans.RawBatch:
        """The example rows, by their origin."""
        return plans.flatten(self.features, None)


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that returns a receiver for requests like these example arrays.

    Each array needs one row or more. A fixed `default_batch_size` is not supported:
    any number of rows can be sent.

    >>> import numpy as np
    >>> receive = build_raw_serving_input_receiver_fn({"age": np.array([31.0])})
    >>> receive().features["age"].shape
    (1,)
    """
    if default_batch_size is not None:
        raise SpecError(
            "build_raw_serving_input_receiver_fn: default_batch_size is not supported; "
            "an exported model takes batches of any size. Leave it out."
        )
    # Checked here and not at export: that may be hours of training later.
    receiver = ServingInputReceiver(features)
    return lambda: receiver


def _as_dict(features: Any, lone: str) -> dict[str, Any]:
    named = features if isinstance(features, Mapping) else {lone: features}
    if not named:
        raise SpecError("a serving input receiver needs at least one feature.")
    raw = {name: _example(name, value) for name, value in named.items()}
    plans.batch_size(plans.flatten(raw, None))
    return raw


def _example(name: str, value: Any) -> Any:
    raw = None if value is None else as_raw(value, f"feature {name!r}")
    if raw is None or getattr(raw, "ndim", 1) == 0 or not len(raw):
        found = "None" if raw is None else "a single value or no row"
        raise SpecError(
            f"feature {name!r} of a serving input receiver: expected an array with at "
            f"least one row, such as np.zeros(1, np.float32), found {found}."
        )
    return raw
