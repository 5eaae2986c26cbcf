"""Receivers: which raw features a request to an exported model has.

    receive = build_raw_serving_input_receiver_fn({"age": np.zeros(1, np.float32)})
    estimator.export_saved_model("export", receive)

TensorFlow uses placeholders for this. Here a receiver holds example rows. Their dtypes
and shapes, without the number of rows, become those of the signature's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from estimax.core.errors import SpecError
from estimax.core.raw_values import as_raw
from estimax.export.signature import LONE_FEATURE
from estimax.export.text_requests import (
    EXAMPLES,
    blank_request,
    check_records,
    parser_of,
)
from estimax.staging import host_plan as plans


@dataclass(frozen=True, eq=False, repr=False)
class ServingInputReceiver:
    """The features of a request, given by example rows.

    Return it from a `serving_input_receiver_fn`. In most cases
    `build_raw_serving_input_receiver_fn` is shorter.

    Args:
      features: Feature name to an array of one row or more. A single array is named
        "feature".
      receiver_tensors: What a request carries, if it is not the features themselves: a
        dict of one vector of CSV records, such as `{"csv_row": rows}`, of which
        `ex.input.decode_csv` made the features; or one of serialized
        tf.train.Examples, of which `ex.input.parse_example` made them. None: the
        features.
      receiver_tensors_alternatives: Must be None. Every signature takes the same
        features.
      feature_spec: Feature name to `FixedLenFeature`, `VarLenFeature` and so on.
        Requests may then also be serialized tf.train.Examples, under "examples".

    Raises:
      SpecError: A feature has no rows, `receiver_tensors` are neither the features nor
        one vector of text, or `receiver_tensors_alternatives` is given. An export
        raises it too, if it cannot see how the features follow from the text.

    Example:
      >>> import numpy as np
      >>> ServingInputReceiver({"age": np.zeros(1)})
      ServingInputReceiver(age float64 [1])

      A request of this receiver carries lines of CSV:

      >>> from estimax.input import decode_csv
      >>> def receive():
      ...     rows = np.array(["31,Oslo"])
      ...     age, city = decode_csv(rows, [0.0, ""])
      ...     return ServingInputReceiver({"age": age, "city": city}, {"csv_row": rows})
      >>> receive()
      ServingInputReceiver(age float32 [1], city strings [1])
    """

    features: Any  # given: an array or a dict; kept: a dict in raw form
    receiver_tensors: Any = None
    receiver_tensors_alternatives: Any = None
    feature_spec: Mapping[str, Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_no_alternatives(
            "ServingInputReceiver", self.receiver_tensors_alternatives
        )
        named = _as_dict(self.features, LONE_FEATURE)
        object.__setattr__(self, "features", named)
        if self.feature_spec is None:
            given = self.receiver_tensors
            tensors = named if given is None else _as_dict(given, LONE_FEATURE)
            object.__setattr__(self, "receiver_tensors", tensors)
            if self.is_computed:
                check_records(tensors)

    def __repr__(self) -> str:
        shown = (f"{name} {_form(value)}" for name, value in self.features.items())
        return f"ServingInputReceiver({', '.join(shown)})"

    @property
    def is_computed(self) -> bool:
        """Whether a request carries something else than the features."""
        others = set(self.receiver_tensors) != set(self.features)
        return self.feature_spec is None and others

    def example(self) -> plans.RawBatch:
        """Return the example rows, by origin."""
        return plans.flatten(self.features, None)


@dataclass(frozen=True, eq=False, repr=False)
class TensorServingInputReceiver:
    """The request of a model whose features are one array instead of a dict.

    Return it from a `serving_input_receiver_fn`.

    Args:
      features: An array of one row or more.
      receiver_tensors: Accepted for code from tf.estimator, without effect.
      receiver_tensors_alternatives: Must be None. Every signature takes the same
        features.

    Raises:
      SpecError: `features` is a dict or has no rows, or
        `receiver_tensors_alternatives` is given.

    Example:
      >>> import numpy as np
      >>> TensorServingInputReceiver(np.zeros((1, 3))).features.shape
      (1, 3)
    """

    features: Any
    receiver_tensors: Any = None
    receiver_tensors_alternatives: Any = None

    def __post_init__(self) -> None:
        _check_no_alternatives(
            "TensorServingInputReceiver", self.receiver_tensors_alternatives
        )
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
    _check_batch_size("build_raw_serving_input_receiver_fn", default_batch_size)
    # Checked now, because the export may come after hours of training.
    receiver = ServingInputReceiver(features)
    return lambda: receiver


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a `serving_input_receiver_fn` for requests of serialized Examples.

    The exported model then answers `bundle.predict({"examples": records})`, with a list
    of serialized tf.train.Examples. It parses them with `feature_spec`, which is part
    of the bundle. Requests that carry the features themselves are answered as well.

    Args:
      feature_spec: Feature name to `FixedLenFeature`, `VarLenFeature`, `SparseFeature`
        or `RaggedFeature`, as `ex.feature_columns.make_parse_example_spec` makes it.
        Features that the model does not read need not be in a request.
      default_batch_size: Must be None. Exported models take batches of any size.

    Returns:
      A function without arguments that returns a `ServingInputReceiver`.

    Raises:
      SpecError: `feature_spec` is empty or has a feature whose number of steps varies,
        or `default_batch_size` is given.
      InputError: A feature has a dtype or shape that an Example cannot hold.

    Example:
      >>> from estimax.input import FixedLenFeature, VarLenFeature
      >>> receive = build_parsing_serving_input_receiver_fn(
      ...     {"age": FixedLenFeature([], "float32"), "tags": VarLenFeature("string")}
      ... )
      >>> receive()
      ServingInputReceiver(age float32 [1], tags sparse [1, 1])
    """
    _check_batch_size("build_parsing_serving_input_receiver_fn", default_batch_size)
    if not isinstance(feature_spec, Mapping) or not feature_spec:
        raise SpecError(
            "build_parsing_serving_input_receiver_fn: expected a dict of features, "
            'such as {"age": ex.input.FixedLenFeature([], "float32")}, found '
            f"{'an empty one' if feature_spec == {} else type(feature_spec).__name__}."
        )
    spec = dict(feature_spec)
    records = blank_request(spec)
    receiver = ServingInputReceiver(
        parser_of(spec)(records), {EXAMPLES: records}, feature_spec=spec
    )
    return lambda: receiver


@dataclass(frozen=True, eq=False, repr=False)
class SupervisedInputReceiver:
    """The features and labels of a request, given by example rows.

    `build_raw_supervised_input_receiver_fn` makes one, for the evaluation of
    `Estimator.experimental_export_all_saved_models`. `export_saved_model` takes only
    the features.

    Args:
      features: Feature name to an array of one row or more; or one array.
      labels: An array, or label name to an array.
      receiver_tensors: Accepted for code from tf.estimator, without effect.

    Raises:
      SpecError: A feature or label has no rows.

    Example:
      >>> import numpy as np
      >>> SupervisedInputReceiver({"age": np.zeros(1)}, np.zeros(1))
      SupervisedInputReceiver(features: age; labels: label)
    """

    features: Any
    labels: Any
    receiver_tensors: Any = None

    def __post_init__(self) -> None:
        for part in ("features", "labels"):
            given = getattr(self, part)
            if isinstance(given, Mapping):
                kept: Any = _as_dict(given, part)
            else:
                kept = _example(part[:-1], given)
            object.__setattr__(self, part, kept)

    def __repr__(self) -> str:
        parts = {"features": self.features, "labels": self.labels}
        shown = (
            f"{part}: {', '.join(value) if isinstance(value, dict) else part[:-1]}"
            for part, value in parts.items()
        )
        return f"SupervisedInputReceiver({'; '.join(shown)})"

    def example(self) -> plans.RawBatch:
        """Return the example rows of the features, by origin."""
        return plans.flatten(self.features, None)


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """Return a receiver function with example rows of features and labels.

    Pass it as `ex.ModeKeys.EVAL` to `Estimator.experimental_export_all_saved_models`.
    `export_saved_model` takes only the features.

    Args:
      features: Feature name to an array of one row or more; or one array.
      labels: An array, or label name to an array.
      default_batch_size: Must be None. Exported models take batches of any size.

    Returns:
      A function without arguments that returns a `SupervisedInputReceiver`.

    Raises:
      SpecError: A feature or label has no rows, a name is both a feature and a label,
        or `default_batch_size` is given.

    Example:
      >>> import numpy as np
      >>> receive = build_raw_supervised_input_receiver_fn(
      ...     {"age": np.array([31.0])}, {"income": np.array([1])}
      ... )
      >>> receive()
      SupervisedInputReceiver(features: age; labels: income)
    """
    _check_batch_size("build_raw_supervised_input_receiver_fn", default_batch_size)
    if isinstance(features, Mapping) and isinstance(labels, Mapping):
        both = sorted(map(str, features.keys() & labels.keys()))
        if both:
            raise SpecError(
                "build_raw_supervised_input_receiver_fn: features and labels need "
                f"different names, found {both[0]!r} in both."
            )
    receiver = SupervisedInputReceiver(features, labels)
    return lambda: receiver


def _check_batch_size(where: str, size: int | None) -> None:
    if size is not None:
        raise SpecError(
            f"{where}: default_batch_size is not supported; an exported model takes "
            "batches of any size. Leave it out."
        )


def _check_no_alternatives(where: str, alternatives: Any) -> None:
    if alternatives is not None:
        raise SpecError(
            f"{where}: receiver_tensors_alternatives is not supported; every signature "
            "of an exported model takes the same features. Leave it out."
        )


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
