"""Receivers: which raw features a request to an exported model has.

    receive = build_raw_serving_input_receiver_fn({"age": np.zeros(1, np.float32)})
    estimator.export_saved_model("export", receive)

TensorFlow uses placeholders for this. Here a receiver holds example rows. Their dtypes
and shapes, without the number of rows, become those of the signature's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import SpecError
from estimax.core.raw_values import as_raw
from estimax.export.signature import LONE_FEATURE
from estimax.staging import plan as plans


@dataclass(frozen=True, eq=False, repr=False)
class ServingInputReceiver:
    """The features of a request, given by example rows.

    Return it from a `serving_input_receiver_fn`. In most cases
    `build_raw_serving_input_receiver_fn` is shorter.

    Args:
      features: Feature name to an array of one row or more. A single array is named
        "feature".
      receiver_tensors: Accepted for code from tf.estimator. It must name the same
        features: a request carries the features of the model.

    Raises:
      SpecError: A feature has no rows, or `receiver_tensors` names other features.

    Example:
      >>> import numpy as np
      >>> ServingInputReceiver({"age": np.zeros(1)})
      ServingInputReceiver(age float64 [1])
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

    def __repr__(self) -> str:
        shown = (f"{name} {_form(value)}" for name, value in self.features.items())
        return f"ServingInputReceiver({', '.join(shown)})"

    def example(self) -> plans.RawBatch:
        """Return the example rows, by origin."""
        return plans.flatten(self.features, None)


@dataclass(frozen=True, eq=False, repr=False)
class TensorServingInputReceiver:
    """The request of a model whose features are one array instead of a dict.

    Return it from a `serving_input_receiver_fn`.

    Args:
      features: An array of one row or more.

    Raises:
      SpecError: `features` is a dict or has no rows.

    Example:
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

    def __repr__(self) -> str:
        return f"TensorServingInputReceiver({_form(self.features)})"

    def example(self) -> plans.RawBatch:
        """Return the example rows, by origin."""
        return plans.flatten(self.features, None)


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a `serving_input_receiver_fn` for requests like these example features.

    Args:
      features: Feature name to an array of one row or more. Only dtypes and the shape
        of a row matter.
      default_batch_size: Must be None. Exported models take batches of any size.

    Returns:
      A function without arguments that returns a `ServingInputReceiver`.

    Raises:
      SpecError: A feature has no rows, or `default_batch_size` is given.

    Example:
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
    # Checked now, because the export may come after hours of training.
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


def _form(value: Any) -> str:
    """Return the dtype and shape of example rows, for `repr`."""
    shape = list(getattr(value, "dense_shape", None) or value.shape)
    return f"{getattr(value, 'dtype', type(value).__name__.lower())} {shape}"
