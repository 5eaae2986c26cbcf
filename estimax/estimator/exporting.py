"""What an Estimator hands to the export room: a function, weights and transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from estimax import export, training
from estimax.core.plan import Origin, PreparedBatch, RawBatch
from estimax.core.spec import ClassificationOutput, ExportOutput, RegressionOutput
from estimax.training.model import variables_from_names, variables_to_names

_SERVING = "tensorflow/serving/"
_KEPT_ROWS = 4


def servable(
    model: training.Model,
    recording: training.Recording,
    variables: training.Variables,
    example: RawBatch,
) -> export.Servable:
    """Everything that a bundle is written from."""
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


def _method(output: ExportOutput) -> str:
    if isinstance(output, ClassificationOutput):
        return _SERVING + "classify"
    if isinstance(output, RegressionOutput):
        return _SERVING + "regress"
    return _SERVING + "predict"


def _features(batch: RawBatch) -> dict[Origin, Any]:
    return {origin: v for origin, v in batch.items() if origin.part == "features"}
