"""Check requests against the signature that they call.

    batch = check_request(bundle, signature, columns)
    check_classify(signature)

All raise `ServingError` with INVALID_ARGUMENT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from estimax.core.errors import BundleError
from estimax.export import Bundle
from estimax.export.signature import Signature
from estimax.serving.examples import EXAMPLE_NAMES, columns_from_examples
from estimax.serving.json_rows import JsonRows
from estimax.serving.status import invalid
from estimax.staging import host_plan as plans

CLASSES: Final = "classes"
SCORES: Final = "scores"
REGRESSION: Final = "outputs"


def check_classify(signature: Signature) -> None:
    """Raise unless the outputs of a signature are classes, scores, or both."""
    names = {spec.name for spec in signature.outputs}
    if not names or not names <= {CLASSES, SCORES}:
        raise invalid(
            f"signature {signature.name!r} does not classify: expected the outputs "
            f"'classes' and 'scores', found {', '.join(sorted(names))}."
        )


def check_regress(signature: Signature) -> None:
    """Raise unless a signature has the one output of a regression."""
    names = {spec.name for spec in signature.outputs}
    if names != {REGRESSION}:
        raise invalid(
            f"signature {signature.name!r} does not regress: expected the output "
            f"'outputs', found {', '.join(sorted(names))}."
        )


def check_request(
    bundle: Bundle, signature: Signature, columns: Mapping[str, Any]
) -> plans.RawBatch:
    """Return the features in raw form, from columns or from serialized Examples.

    Raises:
      ServingError: INVALID_ARGUMENT if a feature is missing, unknown or does not fit.
    """
    own = {spec.name for spec in signature.inputs}
    if len(columns) == 1 and not own & columns.keys():
        (name,) = columns
        is_csv = bundle.csv is not None and name == bundle.csv.name
        if not is_csv and name in EXAMPLE_NAMES:
            serialized = _serialized(columns[name], name)
            columns = columns_from_examples(bundle, serialized)
    try:
        return bundle.check(columns)
    except BundleError as error:
        raise invalid(str(error)) from None


class IdCheck:
    """Finds ids out of range in a request, before others share its batch.

    A transform would find them as well, but in the whole batch, whose other requests
    would then have to run again, each alone.

    Args:
      plan: The host transforms of the model.
    """

    def __init__(self, plan: plans.HostPlan) -> None:
        self._calls = [
            call
            for call in plan.calls
            if getattr(call.transform, "out_of_range", "drop") != "drop"
        ]

    def __call__(self, features: plans.RawBatch | JsonRows) -> None:
        """Raise `FeatureError` if an id has no row in its table."""
        for call in self._calls:
            columns = (
                [features.column(origin) for origin in call.inputs]
                if isinstance(features, JsonRows)
                else [features[origin] for origin in call.inputs]
            )
            call.transform(dict(zip(call.transform.keys, columns, strict=True)))


def _serialized(column: Any, name: str) -> list[bytes]:
    if not hasattr(column, "tolist") or getattr(column, "ndim", 1) != 1:
        raise invalid(f"{name!r}: expected a list of serialized Examples.")
    values: list[Any] = column.tolist()
    if not all(isinstance(value, bytes) for value in values):
        raise invalid(f"{name!r}: expected serialized Examples, found numbers.")
    return values
