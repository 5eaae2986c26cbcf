"""What an Estimator passes to `estimax.export`: a function, weights and transforms.

The features that a request carries come from a serving_input_receiver_fn, or from rows
of the training data that `train` keeps in the model_dir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from estimax import export, training
from estimax.calibration import FittedCalibration
from estimax.calibration.fitted import calibrate
from estimax.core.errors import BundleError, SpecError
from estimax.core.explanation import EXPLAIN
from estimax.core.sparse import Sparse
from estimax.core.spec import (
    ClassificationOutput,
    EstimatorSpec,
    ExportOutput,
    ModeKeys,
    PredictOutput,
    RegressionOutput,
)
from estimax.export import selftest
from estimax.export.text_requests import CsvRequest, csv_request_of, examples_request_of
from estimax.feature_columns import transforms
from estimax.heads.labels import ClassLabels, NumberLabels
from estimax.input.examples.parsing import record_parsings
from estimax.input.sources.csv_reader import record_decodings
from estimax.staging import RowReaders
from estimax.staging.host_plan import PreparedBatch, RawBatch, flatten
from estimax.staging.trace import HostCall, Origin
from estimax.storage import atomic, json_text
from estimax.training.model import variables_from_names, variables_to_names
from estimax.training.recording import find_forwarded

_EXAMPLE_FILE = "example.json"
_FUNCTION = "function"  # in what is kept between exports
_Function = Callable[[Mapping[str, Any], PreparedBatch], dict[str, dict[str, Any]]]
EVAL = "eval"  # the signature of a bundle that evaluates


@dataclass(frozen=True)
class RequestParsing:
    """How requests that do not carry the features themselves are parsed.

    Args:
      spec: For serialized tf.train.Examples, feature name to `FixedLenFeature` etc.
      csv: For CSV records.
      name: What the receiver calls the Examples of a request, besides "examples".
    """

    spec: Mapping[str, Any] | None = None
    csv: CsvRequest | None = None
    name: str | None = None


def servable(
    program: training.Program,
    variables: training.Variables,
    example: RawBatch,
    parse: RequestParsing,
    *,
    explain: bool = False,
) -> export.Servable:
    """Return all that a bundle is written from; with `explain`, a signature more."""
    outputs = program.spec.export_outputs or {}
    # Apart, because the programs of other signatures are kept there as well.
    exported = program.exported.setdefault(EXPLAIN, {}) if explain else program.exported
    answers = [output.as_outputs() for output in outputs.values()]
    plan = replace(program.plan, forwarded=find_forwarded(answers))
    if _FUNCTION not in exported:
        answer = signatures_function(program)
        if explain:
            answer = _with_explanation(
                program, answer, plan.prepare(_features(example))
            )
        exported[_FUNCTION] = answer
    return export.Servable(
        # The same function for every export: jax keeps its traces and programs.
        function=exported[_FUNCTION],
        weights=variables_to_names(variables),
        plan=plan,
        example=_features(example),
        methods={name: _method(output) for name, output in outputs.items()},
        parse_spec=parse.spec,
        examples_name=parse.name,
        csv=parse.csv,
        exported=exported,
    )


def signatures_function(
    program: training.Program,
    readers: Callable[[Mapping[str, Any]], RowReaders] = lambda weights: {},
) -> _Function:
    """Return the function from weights and a batch to the outputs of all signatures.

    `readers` returns how tables are read that are stored in another form.
    """

    def predict(
        weights: Mapping[str, Any], inputs: PreparedBatch
    ) -> dict[str, dict[str, Any]]:
        variables = variables_from_names(program.shapes, weights)
        spec = program.outputs(variables, inputs, readers(weights))
        exports = spec.export_outputs or {}
        return {name: output.as_outputs() for name, output in exports.items()}

    return predict


def _with_explanation(
    program: training.Program, answer: _Function, batch: PreparedBatch
) -> _Function:
    """Return a function that also answers the signature that explains."""
    if EXPLAIN in (program.spec.export_outputs or {}):
        raise SpecError(
            f"export: the model has a signature {EXPLAIN!r} of its own. Give it "
            "another name in export_outputs, or export without explain."
        )
    made = training.make_explainer(program, batch, training.Explained())

    def answer_and_explain(
        weights: Mapping[str, Any], inputs: PreparedBatch
    ) -> dict[str, dict[str, Any]]:
        variables = variables_from_names(program.shapes, weights)
        explained = made.explain(variables, inputs)
        return {**answer(weights, inputs), EXPLAIN: explained}

    return answer_and_explain


CALIBRATED = "calibrated_probabilities"  # the output that a calibration adds
_WEIGHTS = "calibration"  # its arrays among the weights of a bundle


def calibrated(
    servable: export.Servable, calibration: FittedCalibration
) -> export.Servable:
    """Return a servable whose last step is a calibration.

    Signatures that answer with "probabilities" get "calibrated_probabilities" too. The
    scores of classify and regress requests are replaced if the calibration says so.
    """
    arrays = {f"{_WEIGHTS}/{n}": v for n, v in calibration.arrays.items()}
    method, classify = calibration.method, calibration.classify

    def predict(
        weights: Mapping[str, Any], inputs: PreparedBatch
    ) -> dict[str, dict[str, Any]]:
        own = {name: v for name, v in weights.items() if name not in arrays}
        outputs = servable.function(own, inputs)
        answers = [one for one in outputs.values() if "probabilities" in one]
        if not answers:
            raise SpecError(
                "calibration: no signature of the model answers with 'probabilities'; "
                f"found { ({n: sorted(one) for n, one in outputs.items()}) }."
            )
        numbers = {n.partition("/")[2]: weights[n] for n in arrays}
        found = calibrate(method, numbers, answers[0]["probabilities"])
        return {
            name: _with_calibrated(one, found, servable.methods.get(name), classify)
            for name, one in outputs.items()
        }

    # Kept between exports: jax then traces and compiles once.
    kept = servable.exported.setdefault((_WEIGHTS, method, classify), {})
    return replace(
        servable,
        function=kept.setdefault(_FUNCTION, predict),
        weights={**servable.weights, **arrays},
        exported=kept,
    )


def _with_calibrated(
    answer: dict[str, Any], found: Any, method: str | None, classify: bool
) -> dict[str, Any]:
    if "probabilities" in answer:
        return {**answer, CALIBRATED: found}
    if classify and method == export.CLASSIFY:
        return {**answer, "scores": found}
    if classify and method == export.REGRESS:
        return {name: found[:, 1:].reshape(v.shape) for name, v in answer.items()}
    return answer


def evaluation_servable(
    program: training.Program, variables: training.Variables, example: RawBatch
) -> export.Servable:
    """Return all that a bundle which evaluates is written from.

    Its one signature takes features and labels. Loss and metrics are those of the
    batch, so that whoever calls it sees what the model does with these rows.
    """

    def evaluate(
        weights: Mapping[str, Any], inputs: PreparedBatch
    ) -> dict[str, dict[str, Any]]:
        restored = variables_from_names(program.shapes, weights)
        spec = program.outputs(restored, inputs)
        metrics = spec.eval_metric_ops or {}
        measured = {f"metrics/{n}/value": m.compute() for n, m in metrics.items()}
        return {EVAL: {"loss": spec.loss, **_predictions(spec), **measured}}

    forwarded = find_forwarded(_predictions(program.spec))
    calls = tuple(_make_exportable(call) for call in program.plan.calls)
    return export.Servable(
        function=evaluate,
        weights=variables_to_names(variables),
        # Whoever calls it sends rows of data only, so it needs no mask.
        plan=replace(program.plan, calls=calls, forwarded=forwarded, has_mask=False),
        example=example,
        methods={EVAL: export.EVALUATE},
    )


def _make_exportable(call: HostCall) -> HostCall:
    """Return a call without the code of heads: their rules for labels as data."""
    rule: Any = call.transform
    if isinstance(rule, NumberLabels):
        limits = rule.low, rule.high
    elif isinstance(rule, ClassLabels):
        limits = 0, rule.n_classes - 1
    elif isinstance(rule, transforms.Transform):
        return call
    else:
        raise SpecError(
            f"export: the labels of {rule.name!r} are read by {type(rule).__name__}, "
            "which a bundle cannot hold. Heads with one label per row can be exported "
            "with an evaluation: binary and multi-class heads, and regression."
        )
    (key,), dtype = rule.keys, np.dtype(rule.dtype).name
    made = transforms.LabelNumbers(key, dtype, *limits, rule.vocabulary)
    return replace(call, transform=made)


def _predictions(spec: EstimatorSpec) -> dict[str, Any]:
    """Return the predictions by the names that tf.estimator gives to outputs."""
    if spec.predictions is None:
        return {}
    outputs = PredictOutput(spec.predictions).as_outputs()
    return {f"predictions/{name}": value for name, value in outputs.items()}


def supervised_example(receiver_fn: Callable[[], Any]) -> dict[Origin, Any]:
    """Return example features and labels of a receiver."""
    receiver = receiver_fn()
    labels = getattr(receiver, "labels", None)
    if labels is None:
        raise SpecError(
            "export: an evaluation needs labels. Make its receiver with "
            "ex.export.build_raw_supervised_input_receiver_fn(features, labels)."
        )
    return flatten(receiver.features, labels)


def check_modes(receivers: Mapping[str, Any]) -> None:
    """Raise SpecError unless the modes are PREDICT, and EVAL if wanted."""
    if ModeKeys.TRAIN in receivers:
        raise SpecError(
            "export: a bundle does not change its weights, so it cannot train; leave "
            f"out {ModeKeys.TRAIN!r}. To train elsewhere, copy the model_dir."
        )
    unknown = sorted(set(receivers) - {ModeKeys.PREDICT, ModeKeys.EVAL})
    if unknown or ModeKeys.PREDICT not in receivers:
        found = ", ".join(map(repr, receivers)) or "none"
        raise SpecError(
            "export: input_receiver_fn_map must have ex.ModeKeys.PREDICT and may have "
            f"ex.ModeKeys.EVAL; found {found}."
        )


def check_mode(mode: str) -> None:
    """Raise SpecError for a mode other than PREDICT."""
    if mode != ModeKeys.PREDICT:
        raise SpecError(
            f"export: a bundle serves predictions, mode {ModeKeys.PREDICT!r}; got "
            f"{mode!r}. For an evaluation beside it, use "
            "experimental_export_all_saved_models. To train elsewhere, copy the "
            "model_dir."
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


def copy_example(source_dir: str, model_dir: str) -> None:
    """Copy the rows of `remember_example` from another model_dir, if it has any."""
    path = Path(source_dir) / _EXAMPLE_FILE
    if path.is_file():
        atomic.write_bytes(Path(model_dir) / _EXAMPLE_FILE, path.read_bytes())


def serving_example(
    receiver_fn: Callable[[], Any] | None, model_dir: str
) -> tuple[dict[Origin, Any], RequestParsing]:
    """Return example features of a request, and how other requests are parsed.

    The features come from the receiver, or else from training.
    """
    if receiver_fn is not None:
        with record_decodings() as decodings, record_parsings() as parsings:
            receiver = _call_receiver(receiver_fn)
        spec = getattr(receiver, "feature_spec", None)
        example = flatten(receiver.features, None)
        if spec is not None:
            return _training_rows(example, model_dir), RequestParsing(spec)
        if not getattr(receiver, "is_computed", False):
            return example, RequestParsing()
        tensors = receiver.receiver_tensors
        parsed = examples_request_of(tensors, receiver.features, parsings)
        if parsed is not None:
            rows = _training_rows(example, model_dir)
            return rows, RequestParsing(parsed.spec, name=parsed.name)
        csv = csv_request_of(tensors, receiver.features, decodings)
        return example, RequestParsing(csv=csv)
    trained = _recall_example(model_dir)
    if trained is None:
        raise SpecError(
            "export: the features of a request are not known, because no training has "
            "written example.json to this model_dir. Give a serving_input_receiver_fn, "
            "such as ex.export.build_raw_serving_input_receiver_fn(features)."
        )
    return trained, RequestParsing()


def _call_receiver(receiver_fn: Callable[[], Any]) -> Any:
    """Return the receiver of a function, which may also return its features alone."""
    receiver = receiver_fn()
    if isinstance(receiver, Mapping):
        return export.ServingInputReceiver(receiver)
    if not hasattr(receiver, "features"):
        raise SpecError(
            "export: serving_input_receiver_fn must return an "
            "ex.export.ServingInputReceiver or a dict of features, each an array of "
            f"one row or more, got {type(receiver).__name__}."
        )
    return receiver


def _training_rows(blank: dict[Origin, Any], model_dir: str) -> dict[Origin, Any]:
    """Return rows of the training data if they have the form of `blank`, else `blank`.

    A parsing receiver knows no values. Those of the training data make a better test.
    """
    trained = _recall_example(model_dir) or {}
    is_like = trained.keys() >= blank.keys() and all(
        _form(trained[origin]) == _form(value) for origin, value in blank.items()
    )
    return {origin: trained[origin] for origin in blank} if is_like else blank


def _form(value: Any) -> tuple[Any, ...]:
    """Return the kind, the dtype and the shape of a row, for a comparison."""
    if isinstance(value, Sparse):
        return "sparse", len(value.dense_shape), *_form(value.values)
    return type(value), getattr(value, "dtype", None), value.shape[1:]


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
