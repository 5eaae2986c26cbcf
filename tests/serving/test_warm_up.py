"""Warm-up requests: written by an export, and sent before a version is available."""

import json
import shutil

import numpy as np
import pytest
from serving.bundles import export_clicks, logit, probability

import estimax as ex
from estimax.core.errors import BundleError
from estimax.export.manifest import MANIFEST, write_manifest
from estimax.export.selftest import WARM_UP_FILE
from estimax.formats.messages import encode_example
from estimax.formats.records import read_records, write_records
from estimax.serving.batching import Scheduler
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import Programs
from estimax.serving.protos import message
from estimax.serving.status import Code, ServingError
from estimax.serving.tensors import array_from_proto, fill_proto
from estimax.serving.versions import load_version
from estimax.serving.warm_up import run_warm_up

EXAMPLE = encode_example(
    {
        "age": ("float_list", [1.5]),
        "hours": ("int64_list", [2]),
        "city": ("bytes_list", [b"Oslo"]),
        "tags": ("bytes_list", [b"a"]),
    }
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_clicks(tmp_path_factory.mktemp("clicks"))


@pytest.fixture(scope="module")
def warm_up(exported, tmp_path_factory):
    """Return a function that sends the records of a new warm-up file."""
    folder = tmp_path_factory.mktemp("copy") / "bundle"
    shutil.copytree(exported, folder)
    bundle = ex.export.load(folder)
    programs = Programs(bundle, BatchingConfig(batch_sizes=(1, 4)))

    def send(*logs):
        write_records(folder / WARM_UP_FILE, [log.SerializeToString() for log in logs])
        return run_warm_up(bundle, programs, 4)

    send.bundle, send.programs = bundle, programs
    send.file = folder / WARM_UP_FILE
    return send


def recorded(exported):
    records = read_records(exported / WARM_UP_FILE).tolist()
    return [message("PredictionLog").FromString(record) for record in records]


def task_log(kind, request_name):
    log = message("PredictionLog")()
    request = getattr(log, kind).request
    request.input.example_list.examples.add().MergeFromString(EXAMPLE)
    assert request.DESCRIPTOR.name == request_name
    return log


def classify_log(score):
    log = task_log("classify_log", "ClassificationRequest")
    row = log.classify_log.response.result.classifications.add()
    row.classes.add(label="0", score=1 - score)
    row.classes.add(label="1", score=score)
    return log


def regress_log(value):
    log = task_log("regress_log", "RegressionRequest")
    log.regress_log.request.model_spec.signature_name = "regression"
    log.regress_log.response.result.regressions.add(value=value)
    return log


def test_an_export_writes_a_request_for_every_signature(exported):
    logs = recorded(exported)
    bundle = ex.export.load(exported)
    assert WARM_UP_FILE in bundle.manifest["files"]
    names = {log.predict_log.request.model_spec.signature_name for log in logs}
    assert names == set(bundle.signatures)
    log = next(
        log.predict_log for log in logs if "logits" in log.predict_log.response.outputs
    )
    sent = {n: array_from_proto(p, n) for n, p in log.request.inputs.items()}
    assert np.asarray(sent["tags"]).tolist() == [[b"a", b"b"], [b"", b""]]
    answered = array_from_proto(log.response.outputs["logits"], "logits")
    expected = [[logit(1, 3, 2)], [logit(2, 4, 0)]]
    np.testing.assert_allclose(answered, expected, rtol=1e-6)


def test_the_requests_of_an_export_are_answered_as_recorded(warm_up, exported):
    logs = recorded(exported)
    assert warm_up(*logs) == len(logs) > 2


def test_an_answer_that_differs_from_the_recorded_one_names_the_file(warm_up, exported):
    (log,) = [
        log
        for log in recorded(exported)
        if "logits" in log.predict_log.response.outputs
    ]
    tensor = log.predict_log.response.outputs["logits"]
    tensor.tensor_content = np.array([[1.0], [2.0]], np.float32).tobytes()
    with pytest.raises(ServingError, match=r"warmup_requests, record 0: .*'logits'"):
        warm_up(log)


def test_requests_without_a_response_are_only_sent(warm_up, exported):
    log = recorded(exported)[0]
    log.predict_log.ClearField("response")
    assert warm_up(log) == 1


def test_classify_regress_and_multi_inference_are_sent_and_compared(warm_up):
    p = probability(1.5, 2, 1)
    both = message("PredictionLog")()
    request = both.multi_inference_log.request
    request.input.example_list.examples.add().MergeFromString(EXAMPLE)
    request.tasks.add(method_name=ex.export.CLASSIFY)
    task = request.tasks.add(method_name=ex.export.REGRESS)
    task.model_spec.signature_name = "regression"
    response = both.multi_inference_log.response
    first, second = classify_log(p), regress_log(p)
    response.results.add().classification_result.CopyFrom(
        first.classify_log.response.result
    )
    response.results.add().regression_result.CopyFrom(
        second.regress_log.response.result
    )
    assert warm_up(first, second, both) == 3
    for wrong in (classify_log(0.5), regress_log(0.5)):
        with pytest.raises(ServingError, match="record 1"):
            warm_up(both, wrong)
    response.results[1].regression_result.regressions[0].value = 0.5
    with pytest.raises(ServingError, match="record 0"):
        warm_up(both)


def test_a_bad_record_fails_with_a_status(warm_up, exported):
    unknown = recorded(exported)[0]
    unknown.predict_log.request.model_spec.signature_name = "gone"
    missing = recorded(exported)[0]
    del missing.predict_log.request.inputs["age"]
    empty = message("PredictionLog")()
    for log, code in [
        (unknown, Code.INVALID_ARGUMENT),
        (missing, Code.INVALID_ARGUMENT),
        (empty, Code.UNIMPLEMENTED),
    ]:
        with pytest.raises(ServingError, match="record 0") as caught:
            warm_up(log)
        assert caught.value.code == code


def test_more_than_1000_records_are_refused(warm_up, exported):
    log = recorded(exported)[0]
    with pytest.raises(ServingError, match="at most 1000"):
        warm_up(*[log] * 1001)


def test_a_file_that_is_no_tfrecord_is_data_loss(warm_up):
    warm_up.file.write_bytes(b"these are not the frames of a TFRecord file")
    with pytest.raises(ServingError, match="TFRecordWriter") as caught:
        run_warm_up(warm_up.bundle, warm_up.programs, 4)
    assert caught.value.code == Code.DATA_LOSS
    write_records(warm_up.file, [b"\xff\xff\xff"])
    with pytest.raises(ServingError, match="PredictionLog") as caught:
        run_warm_up(warm_up.bundle, warm_up.programs, 4)
    assert caught.value.code == Code.INVALID_ARGUMENT


def test_a_bundle_without_the_file_is_fine_and_a_link_out_is_not(warm_up, tmp_path):
    warm_up.file.unlink()
    assert run_warm_up(warm_up.bundle, warm_up.programs, 4) == 0
    (tmp_path / "elsewhere").write_bytes(b"")
    warm_up.file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="leads out"):
        run_warm_up(warm_up.bundle, warm_up.programs, 4)
    warm_up.file.unlink()


def test_long_lists_of_warm_up_requests_are_compiled_before_the_first_request(
    exported, tmp_path
):
    folder = shutil.copytree(exported, tmp_path / "bundle")
    log = predict_log_of(["a"] * 20)
    write_records(folder / WARM_UP_FILE, [log.SerializeToString()])
    about = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).unlink()
    write_manifest(folder, {"platforms": about["platforms"]})
    scheduler = Scheduler(1)
    version = load_version(folder, BatchingConfig(batch_sizes=(1,)), scheduler)
    request = {"age": [1.0], "hours": [2], "city": ["Oslo"], "tags": [["b"] * 17]}
    answers = version.programs.run("predict", version.bundle.check(request))
    np.testing.assert_allclose(answers["logits"], [[logit(1, 2, 17)]], rtol=1e-6)
    assert version.programs.late_compiles == 0
    version.close()
    scheduler.close()


def predict_log_of(tags):
    """Return a logged request of one row with these tags, without a response."""
    log = message("PredictionLog")()
    request = log.predict_log.request
    fill_proto(request.inputs["age"], np.ones(1, np.float32))
    fill_proto(request.inputs["hours"], np.ones(1, np.int64))
    fill_proto(request.inputs["city"], np.array([b"Oslo"], object))
    fill_proto(request.inputs["tags"], np.array([[t.encode() for t in tags]], object))
    request.model_spec.signature_name = "predict"
    return log
