"""What an Estimator passes to `estimax.export`: a function, weights and transforms.

The features that a request carries come from a serving_input_receiver_fn, or from rows
of the training data that `train` keeps in the model_dir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from estimax import export, training
from estimax.core.errors import BundleError, SpecError
from estimax.core.spec import (
    ClassificationOutput,
    ExportOutput,
    ModeKeys,
    RegressionOutput,
)
from estimax.export import selftest
from estimax.staging.plan import PreparedBatch, RawBatch, flatten
from estimax.staging.recording import Origin
from estimax.training.model import variables_from_names, variables_to_names
from estimax.wire import atomic, json_text

_EXAMPLE_FILE = "example.json"


def servable(
    model: training.Model,
    recording: training.Recording,
    variables: training.Variables,
    example: RawBatch,
) -> export.Servable:
    """Return all that a bundle is written from."""
    outputs = recording.spec.export_outputs or {}
    return export.Servable(
        function=_signatures_function(model, recording),
        weights=variables_to_names(variables),
        plan=recording.plan,
        example=_features(example),
        methods={name: _method(output) for name, output in outputs.items()},
    )


def _signatures_function(
    model: training.Model, recording: training.Recording
) -> Callable[[Mapping[str, Any], PreparedBatch], dict[str, dict[str, Any]]]:
    shapes, structure = recording.shapes, recording.structure

    def predict(
        weights: Mapping[str, Any], inputs: PreparedBatch
    ) -> dict[str, dict[str, Any]]:
        variables = variables_from_names(shapes, weights)
        spec = model.apply(variables, inputs, structure).spec
        exports = spec.export_outputs or {}
        return {name: output.as_outputs() for name, output in exports.items()}

    return predict


def check_mode(mode: str) -> None:
    """Raise SpecError for a mode other than PREDICT."""
    if mode != ModeKeys.PREDICT:
        raise SpecError(
            f"export: a bundle serves predictions, mode {ModeKeys.PREDICT!r}; got "
            f"{mode!r}. To train or evaluate elsewhere, copy the model_dir."
        )


def remember_example(model_dir: str, batch: RawBatch) -> None:
    """Write a few rows of the training features to the model_dir.

    They give the names, dtypes and shapes of a request, so that a process without the
    training data can export.
    """
    rows = selftest.first_rows(_features(batch))
    path = Path(model_dir) / _EXAMPLE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, selftest.selftest_to_json(rows, {}))


def serving_example(
    receiver_fn: Callable[[], Any] | None, model_dir: str
) -> dict[Origin, Any]:
    """Return example features of a request, from the receiver or from training."""
    if receiver_fn is not None:
        return flatten(receiver_fn().features, None)
    example = _recall_example(model_dir)
    if example is None:
        raise SpecError(
            "export: the features of a request are not known, because no training has "
            "written example.json to this model_dir. Give a serving_input_receiver_fn, "
            "such as ex.export.build_raw_serving_input_receiver_fn(features)."
        )
    return example


def _recall_example(model_dir: str) -> dict[Origin, Any] | None:
    """Return the rows that `remember_example` wrote; None if there are none."""
    path = Path(model_dir) / _EXAMPLE_FILE
    if not path.exists():
        return None
    try:
        rows, _ = selftest.selftest_from_json(json_text.parse(path.read_bytes()))
    except ValueError as error:
        raise BundleError(
            f"{path}: expected example rows of the training data, found other content "
            f"({error}). Remove the file and train on, or give a "
            "serving_input_receiver_fn."
        ) from error
    return rows


def _method(output: ExportOutput) -> str:
    if isinstance(output, ClassificationOutput):
        return export.CLASSIFY
    if isinstance(output, RegressionOutput):
        return export.REGRESS
    return export.PREDICT


def _features(batch: RawBatch) -> dict[Origin, Any]:
    return {origin: v for origin, v in batch.items() if origin.part == "features"}
