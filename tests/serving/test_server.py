"""A real server process answers as TensorFlow Serving does, over REST and gRPC."""

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from serving.bundles import export_clicks, probability
from serving.servers import ESTIMAX, running_server

from estimax.formats.messages import encode_example
from estimax.serving.protos import message

ROW = {"age": 1.5, "hours": 2, "city": "Oslo", "tags": ["a"]}
COLUMNS = {"age": [1.5], "hours": [2], "city": ["Oslo"], "tags": [["a"]]}
P = probability(1.5, 2, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    exported = export_clicks(folder / "exported")
    shutil.copytree(exported, folder / "clicks" / "7")
    config = folder / "models.config"
    config.write_text(
        f"""model_config_list {{ config {{
          name: "clicks" base_path: "{folder / "clicks"}" model_platform: "tensorflow"
          version_labels {{ key: "stable" value: 7 }} }} }}"""
    )
    with running_server(
        folder, "--model-config-file", str(config), "--batch-sizes", "1,4"
    ) as running:
        yield running


def predict(server, body, path="/v1/models/clicks:predict", **options):
    return server.request(path, body, **options)


def test_rows_are_answered_with_predictions(server):
    other = {**ROW, "age": 0.0, "tags": []}
    status, found, headers = predict(server, {"instances": [ROW, other]})
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    scores = [row["scores"][1] for row in found["predictions"]]
    assert scores == pytest.approx([P, probability(0, 2, 0)], rel=1e-5)
    assert found["predictions"][0]["classes"] == ["0", "1"]


def test_columns_are_answered_with_outputs(server):
    body = {"signature_name": "predict", "inputs": COLUMNS}
    status, found, _ = predict(server, body)
    assert status == 200
    assert found["outputs"]["logistic"][0] == pytest.approx([P], rel=1e-5)
    assert found["outputs"]["class_ids"] == [[1]]


def test_more_rows_than_the_largest_batch_are_answered_in_order(server):
    rows = [{**ROW, "age": -i / 10} for i in range(50)]
    _, found, _ = predict(server, {"instances": rows})
    scores = [row["scores"][1] for row in found["predictions"]]
    assert scores == pytest.approx(
        [probability(-i / 10, 2, 1) for i in range(50)], rel=1e-4
    )


def test_a_large_request_does_not_keep_small_ones_out(server):
    rows = [{**ROW, "age": -i / 1000} for i in range(3000)]  # the queue holds 40
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(predict, server, {"instances": rows})
        statuses = set()
        while not large.done():
            statuses.add(predict(server, {"instances": [ROW]})[0])
            statuses.add(server.request("/livez")[0])
    assert statuses == {200}
    status, found, _ = large.result()
    assert status == 200
    scores = [row["scores"][1] for row in found["predictions"]]
    expected = [probability(row["age"], 2, 1) for row in rows]
    assert scores == pytest.approx(expected, rel=1e-4)


def test_versions_and_labels_choose_the_version(server):
    for path in ("/versions/7", "/labels/stable"):
        status, _, _ = predict(
            server, {"instances": [ROW]}, f"/v1/models/clicks{path}:predict"
        )
        assert status == 200


def test_a_number_beyond_float32_is_infinite_in_an_example(server):
    body = {"signature_name": "regression", "examples": [{**ROW, "age": 1e300}]}
    status, found, _ = predict(server, body, "/v1/models/clicks:regress")
    assert (status, found["results"]) == (200, [1.0])


def test_nan_is_a_number_in_every_answer(server):
    for path, key in (
        ("/v1/models/clicks:classify", "examples"),
        ("/v1/models/clicks:predict", "instances"),
    ):
        body = {key: [{**ROW, "age": float("nan")}]}
        status, found, _ = predict(server, body, path)
        assert status == 200
        assert "NaN" in json.dumps(found)


def test_examples_are_classified_and_regressed(server):
    examples = [{**ROW, "age": 1}, {"city": "Rome"}]  # 1 is an integer for a float
    body = {"examples": examples[:1], "context": {"hours": 2}}
    status, found, _ = predict(server, body, "/v1/models/clicks:classify")
    assert status == 200
    ((zero, one),) = found["results"]
    assert (zero[0], one[0]) == ("0", "1")
    assert one[1] == pytest.approx(probability(1, 2, 1), rel=1e-5)
    body = {"signature_name": "regression", "examples": examples[:1]}
    status, found, _ = predict(server, body, "/v1/models/clicks:regress")
    assert found["results"] == pytest.approx([probability(1, 2, 1)], rel=1e-5)
    status, found, _ = predict(
        server, {"examples": examples}, "/v1/models/clicks:classify"
    )
    assert status == 400
    assert "age" in found["error"]


def test_serialized_examples_are_accepted_by_predict(server):
    import base64

    features = {
        "age": ("float_list", [1.5]),
        "hours": ("int64_list", [2]),
        "city": ("bytes_list", [b"Oslo"]),
        "tags": ("bytes_list", [b"a"]),
    }
    data = base64.b64encode(encode_example(features)).decode()
    body = {"signature_name": "predict", "inputs": {"examples": [{"b64": data}]}}
    status, found, _ = predict(server, body)
    assert status == 200, found
    assert found["outputs"]["logistic"][0] == pytest.approx([P], rel=1e-5)


def test_gzip_is_read_and_answered(server):
    body = gzip.compress(json.dumps({"instances": [ROW]}).encode())
    status, _, _ = predict(server, body, headers={"Content-Encoding": "gzip"})
    assert status == 200
    many = {"signature_name": "predict", "instances": [ROW] * 300}
    _, _found, headers = predict(server, many, headers={"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"


def test_status_and_metadata_have_int64_as_strings(server):
    _status, found, _ = server.request("/v1/models/clicks")
    assert found == {
        "model_version_status": [
            {
                "version": "7",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    _, found, _ = server.request("/v1/models/clicks/metadata")
    assert found["model_spec"] == {
        "name": "clicks",
        "signature_name": "",
        "version": "7",
    }
    signatures = found["metadata"]["signature_def"]["signature_def"]
    age = signatures["serving_default"]["inputs"]["age"]
    assert age["dtype"] == "DT_FLOAT"
    assert age["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]
    assert signatures["classification"]["inputs"]["inputs"]["dtype"] == "DT_STRING"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models/none", None, 404),
        ("GET", "/v1/models/clicks/versions/8", None, 404),
        ("GET", "/v1/models/clicks/labels/none", None, 400),
        ("GET", "/v1/models", None, 400),
        ("GET", "/v1/models/clicks/versions/x", None, 400),
        ("GET", f"/v1/models/clicks/versions/{2**63}", None, 400),
        ("GET", f"/v1/models/clicks/versions/{'9' * 5000}", None, 400),
        ("GET", f"/v1/models/clicks/versions/{'0' * 5000}7/labels/x", None, 400),
        ("GET", "/v1/models/clicks/versions/7/labels/stable", None, 400),
        ("GET", "/v1/models/clicks:predict", None, 400),
        ("POST", "/v1/models/clicks/metadata", b"{}", 400),
        ("POST", "/v1/models/clicks:Predict", b"{}", 400),
        ("POST", "/v1/models/clicks:explain", b"{}", 400),
        ("PUT", "/v1/models/clicks", b"{}", 400),
        ("DELETE", "/v1/models/clicks", None, 400),
        ("GET", "/nothing", None, 404),
        ("POST", "/v1/models/none:predict", b'{"instances": [1]}', 404),
        ("POST", "/v1/models/clicks:predict", b"", 400),
        ("POST", "/v1/models/clicks:predict", b"{", 400),
        ("POST", "/v1/models/clicks:predict", b'{"instances": [1]}', 400),
        ("POST", "/v1/models/clicks:predict", b'{"signature_name": 3}', 400),
        (
            "POST",
            "/v1/models/clicks:predict",
            b'{"signature_name": "x", "instances": [1]}',
            400,
        ),
        ("POST", "/v1/models/clicks:classify", b'{"examples": []}', 400),
        ("POST", "/v1/models/clicks:classify", b'{"examples": [1]}', 400),
        ("POST", "/v1/models/clicks:classify", b'{"examples": [{"age": null}]}', 400),
        ("OPTIONS", "/v1/models/clicks", None, 400),
    ],
)
def test_bad_requests_have_tensorflow_servings_status(
    server, method, path, body, status
):
    found, answer, headers = server.request(path, body, method=method)
    assert found == status
    if path.startswith("/v1/"):
        assert headers["Content-Type"] == "application/json"
        assert answer.keys() == {"error"}


def test_head_is_answered_as_get_without_a_body(server):
    for path in ("/livez", "/readyz", "/v1/models/clicks", "/ui"):
        status, body, headers = server.request(path, method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 0
    assert server.request("/v1/models/none", method="HEAD")[0] == 404


def test_a_web_socket_is_refused(server):
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OTAxMjM0NQ==",
    }
    assert server.request("/livez", headers=headers)[0] in (200, 403)


def test_health_metrics_page_and_list(server):
    assert predict(server, {"instances": [ROW]})[0] == 200
    assert server.request("/healthz")[0] == 200
    assert server.request("/v2/health/ready")[0] == 200
    _, text, _ = server.request("/monitoring/prometheus/metrics")
    assert b':tensorflow:serving:request_count{model_name="clicks",status="OK"}' in text
    assert b'estimax_late_compiles_total{model_name="clicks",version="7"}' in text
    _, page, _headers = server.request("/ui")
    assert b"Try a prediction" in page
    assert b"http://" not in page.replace(b"http://www.w3.org", b"")
    _, found, _ = server.request("/v1/models?list=1")
    assert found["models"][0]["name"] == "clicks"


# gRPC


def call(server, method, request, response, service="PredictionService", **options):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        run = channel.unary_unary(
            f"/tensorflow.serving.{service}/{method}",
            request_serializer=lambda r: (
                r if isinstance(r, bytes) else r.SerializeToString()
            ),
            response_deserializer=message(response).FromString,
        )
        return run(request, timeout=60, **options)


def spec(request, signature="", name="clicks"):
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    return request


def tensor(proto, values, dtype, field):
    proto.dtype = dtype
    proto.tensor_shape.dim.add(size=len(values))
    getattr(proto, field).extend(values)


def predict_request(signature="predict"):
    request = spec(message("PredictRequest")(), signature)
    tensor(request.inputs["age"], [1.5], 1, "float_val")
    tensor(request.inputs["hours"], [2], 9, "int64_val")
    tensor(request.inputs["city"], [b"Oslo"], 7, "string_val")
    tensor(request.inputs["tags"], [b"a"], 7, "string_val")
    return request


def example_input(request):
    example = request.input.example_list.examples.add()
    example.features.feature["age"].float_list.value.append(1.5)
    example.features.feature["hours"].int64_list.value.append(2)
    example.features.feature["city"].bytes_list.value.append(b"Oslo")
    example.features.feature["tags"].bytes_list.value.append(b"a")
    return request


def test_grpc_predict_names_the_version_and_fills_typed_fields(server):
    response = call(server, "Predict", predict_request(), "PredictResponse")
    assert response.model_spec.version.value == 7
    assert response.model_spec.signature_name == "predict"
    assert response.outputs["logistic"].float_val[0] == pytest.approx(P, rel=1e-5)
    assert response.outputs["class_ids"].int64_val[:] == [1]
    assert response.outputs["classes"].string_val[:] == [b"1"]


def test_grpc_output_filter(server):
    request = predict_request()
    request.output_filter.append("logits")
    response = call(server, "Predict", request, "PredictResponse")
    assert list(response.outputs) == ["logits"]


def test_grpc_classify_regress_and_multi_inference(server):
    request = example_input(spec(message("ClassificationRequest")()))
    response = call(server, "Classify", request, "ClassificationResponse")
    classes = response.result.classifications[0].classes
    assert [c.label for c in classes] == ["0", "1"]
    assert classes[1].score == pytest.approx(P, rel=1e-5)

    request = example_input(spec(message("RegressionRequest")(), "regression"))
    response = call(server, "Regress", request, "RegressionResponse")
    assert response.result.regressions[0].value == pytest.approx(P, rel=1e-5)

    request = example_input(message("MultiInferenceRequest")())
    for signature, method in (
        ("classification", "classify"),
        ("regression", "regress"),
    ):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "clicks", signature
    response = call(server, "MultiInference", request, "MultiInferenceResponse")
    first, second = response.results
    assert first.WhichOneof("result") == "classification_result"
    assert second.regression_result.regressions[0].value == pytest.approx(P, rel=1e-5)


def test_grpc_metadata_and_status(server):
    request = spec(message("GetModelMetadataRequest")())
    request.metadata_field.append("signature_def")
    response = call(server, "GetModelMetadata", request, "GetModelMetadataResponse")
    packed = response.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signatures = message("SignatureDefMap").FromString(packed.value).signature_def
    assert signatures["serving_default"].inputs["age"].dtype == 1

    request = spec(message("GetModelStatusRequest")())
    response = call(
        server, "GetModelStatus", request, "GetModelStatusResponse", "ModelService"
    )
    (status,) = response.model_version_status
    assert (status.version, status.state) == (7, 30)


def _changed(**change):
    request = predict_request()
    for name, value in change.items():
        if name == "signature":
            request.model_spec.signature_name = value
        elif name == "name":
            request.model_spec.name = value
        elif name == "without":
            del request.inputs[value]
        elif name == "label":
            request.model_spec.version_label = value
        elif name == "version":
            request.model_spec.version.value = value
        elif name == "filter":
            request.output_filter.extend(value)
        elif name == "dtype":
            request.inputs["age"].dtype = value
    return request


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": ""}, "INVALID_ARGUMENT"),
        ({"name": "none"}, "NOT_FOUND"),
        ({"version": 8}, "NOT_FOUND"),
        ({"label": "none"}, "INVALID_ARGUMENT"),
        ({"signature": "none"}, "FAILED_PRECONDITION"),
        ({"without": "age"}, "INVALID_ARGUMENT"),
        ({"filter": ["none"]}, "INVALID_ARGUMENT"),
        ({"filter": ["logits", "logits"]}, "INVALID_ARGUMENT"),
        ({"dtype": 2}, "INVALID_ARGUMENT"),
    ],
)
def test_grpc_errors_have_tensorflow_servings_codes(server, change, code):
    with pytest.raises(grpc.RpcError) as raised:
        call(server, "Predict", _changed(**change), "PredictResponse")
    assert raised.value.code().name == code


def test_a_message_of_a_few_bytes_does_not_stand_for_millions_of_rows(server):
    for name in ("city", "x"):
        request = spec(message("PredictRequest")())
        tensor(request.inputs[name], [b"x"], 7, "string_val")
        request.inputs[name].tensor_shape.dim[0].size = 2**24
        with pytest.raises(grpc.RpcError) as raised:
            call(server, "Predict", request, "PredictResponse")
        assert raised.value.code().name == "INVALID_ARGUMENT"
        assert name in raised.value.details()


def test_names_that_are_not_text_are_invalid_arguments(server):
    wrong = b"\xff\xfe"
    data = predict_request().SerializeToString().replace(b"age", wrong + b"a")
    with pytest.raises(grpc.RpcError) as raised:
        call(server, "Predict", data, "PredictResponse")
    assert raised.value.code().name == "INVALID_ARGUMENT"
    request = example_input(spec(message("ClassificationRequest")()))
    data = request.SerializeToString().replace(b"age", wrong + b"a")
    with pytest.raises(grpc.RpcError) as raised:
        call(server, "Classify", data, "ClassificationResponse")
    assert raised.value.code().name == "INVALID_ARGUMENT"
    assert "'age'" in raised.value.details()


def test_a_damaged_message_is_an_invalid_argument(server):
    with pytest.raises(grpc.RpcError) as raised:
        call(server, "Predict", b"\xff\xff\xff", "PredictResponse")
    assert raised.value.code().name == "INVALID_ARGUMENT"


def test_requests_at_the_same_time_get_their_own_answers(server):
    def ask(i):
        rows = [{**ROW, "age": -(i + j) / 100} for j in range(1 + i % 3)]
        _, found, _ = predict(server, {"instances": rows})
        expected = [probability(row["age"], 2, 1) for row in rows]
        scores = [row["scores"][1] for row in found["predictions"]]
        return np.allclose(scores, expected, rtol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


def test_a_client_that_leaves_in_the_middle_of_a_request_harms_nobody(server):
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.rest_port)) as sock:
            sock.sendall(b"POST /v1/models/clicks:predict HTTP/1.1\r\n")
            sock.sendall(b"Host: a\r\nContent-Length: 100000\r\n\r\n{")
    assert predict(server, {"instances": [ROW]})[0] == 200


def test_new_versions_are_picked_up_and_sigterm_ends_with_0(tmp_path):
    first = export_clicks(tmp_path / "exported")
    base = tmp_path / "clicks"
    shutil.copytree(first, base / "1")
    arguments = (
        f"clicks={base}",
        "--batch-sizes",
        "1",
    )
    with running_server(tmp_path, *arguments) as running:
        second = export_clicks(tmp_path / "second", bias=-3.0)
        shutil.copytree(second, base / "temporary")
        (base / "temporary").rename(base / "2")
        scores = set()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            _, found, _ = predict(running, {"instances": [ROW]})
            scores.add(round(found["predictions"][0]["scores"][1], 4))
            states = running.request("/v1/models/clicks")[1]["model_version_status"]
            if [s["state"] for s in states] == ["AVAILABLE", "END"]:
                break
        assert states[0]["version"] == "2"
        assert round(P, 4) in scores
        assert running.stop() == 0


def test_a_token_is_asked_for_and_requests_are_logged(tmp_path):
    base = tmp_path / "clicks"
    shutil.copytree(export_clicks(tmp_path / "exported"), base / "1")
    (tmp_path / "token").write_text("secret\n")
    log = tmp_path / "requests.jsonl"
    arguments = (f"clicks={base}", "--batch-sizes", "1", "--workers", "2")
    arguments += ("--token-file", str(tmp_path / "token"))
    arguments += ("--request-log", str(log), "--request-log-rate", "1")
    with running_server(tmp_path, *arguments) as running:
        assert predict(running, {"instances": [ROW]})[0] == 401
        wrong = {"Authorization": "Bearer secrets"}
        assert predict(running, {"instances": [ROW]}, headers=wrong)[0] == 401
        right = {"Authorization": "Bearer secret"}
        assert predict(running, {"instances": [ROW]}, headers=right)[0] == 200
        assert running.request("/readyz")[0] == 200  # health needs no token
        other_case = "/V1/Models/clicks:predict"
        assert predict(running, {"instances": [ROW]}, path=other_case)[0] == 401
        with pytest.raises(grpc.RpcError) as raised:
            call(running, "Predict", predict_request(), "PredictResponse")
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        sent = (("authorization", "Bearer secret"),)
        request = predict_request()
        answer = call(running, "Predict", request, "PredictResponse", metadata=sent)
        assert answer.model_spec.version.value == 1
        assert running.stop() == 0
    # Each worker has a file of its own.
    lines = [
        json.loads(line)
        for index in range(2)
        for line in (tmp_path / f"requests-{index}.jsonl").read_text().splitlines()
    ]
    logged, _ = sorted(lines, key=lambda line: line["time"])
    assert logged["inputs"] == {**COLUMNS, "age": [1.5]}
    assert logged["outputs"]["scores"][0][1] == pytest.approx(P, rel=1e-5)
    assert (logged["model"], logged["version"]) == ("clicks", 1)


def test_tls_serves_rest_and_grpc(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-keyout", key, "-out", certificate),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    base = tmp_path / "clicks"
    shutil.copytree(export_clicks(tmp_path / "exported"), base / "1")
    arguments = (f"clicks={base}", "--batch-sizes", "1")
    arguments += ("--ssl-key", str(key), "--ssl-certificate", str(certificate))
    trusted = ssl.create_default_context(cafile=certificate)
    with running_server(tmp_path, *arguments, trusted=trusted) as running:
        assert predict(running, {"instances": [ROW]})[0] == 200
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        address = f"localhost:{running.grpc_port}"
        with grpc.secure_channel(address, credentials) as channel:
            run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            assert run(predict_request().SerializeToString(), timeout=60)


def test_without_the_extra_the_command_says_what_to_install():
    code = """
import sys
sys.modules["orjson"] = sys.modules["uvicorn"] = None  # as if not installed
sys.argv = ["estimax", "serve", "models"]
from estimax.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "(orjson, uvicorn). Run: pip install 'estimax[serve]'" in told
    assert "Traceback" not in told


def test_flags_of_tensorflow_serving_are_accepted(tmp_path):
    arguments = ["--model_name=m", f"--model_base_path={tmp_path / 'none'}"]
    arguments += ["--rest_api_port=0", "--file_system_poll_wait_seconds=0"]
    done = subprocess.run(
        [ESTIMAX, "serve", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "expected a bundle, or a folder of versions" in " ".join(done.stderr.split())


def test_a_port_that_is_taken_is_named(tmp_path):
    base = tmp_path / "clicks"
    shutil.copytree(export_clicks(tmp_path / "exported"), base / "1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [
                *(ESTIMAX, "serve", base, "--host", "127.0.0.1", "--batch-sizes", "1"),
                *("--rest-api-port", port, "--port", "0"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert f"port {port}" in done.stderr
    assert "Traceback" not in done.stderr
