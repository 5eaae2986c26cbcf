"""The server answers clients of the Open Inference Protocol, such as Triton's."""

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from serving.bundles import probability

P = probability(1.5, 2, 1)
INPUTS = [
    {"name": "age", "datatype": "FP32", "shape": [1], "data": [1.5]},
    {"name": "hours", "datatype": "INT64", "shape": [1], "data": [2]},
    {"name": "city", "datatype": "BYTES", "shape": [1], "data": ["Oslo"]},
    {"name": "tags", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]},
]


def infer(server, body, path="/v2/models/clicks/infer", **options):
    return server.request(path, body, **options)


def outputs_of(found):
    return {tensor["name"]: tensor for tensor in found["outputs"]}


def test_metadata_names_the_tensors(server):
    assert server.request("/v2")[1]["extensions"] == ["binary_tensor_data"]
    status, found, _ = server.request("/v2/models/clicks")
    assert (status, found["versions"]) == (200, ["7"])
    assert {"name": "age", "datatype": "FP32", "shape": [-1]} in found["inputs"]
    assert {"name": "tags", "datatype": "BYTES", "shape": [-1, -1]} in found["inputs"]
    assert server.request("/v2/models/clicks/versions/7/ready")[0] == 200
    assert server.request("/v2/models/clicks/versions/8/ready")[0] == 404
    assert server.request("/v2/models/other")[0] == 404


def test_json_tensors_are_answered(server):
    status, found, _ = infer(server, {"id": "mine", "inputs": INPUTS})
    assert status == 200
    assert (found["id"], found["model_name"], found["model_version"]) == (
        "mine",
        "clicks",
        "7",
    )
    scores = outputs_of(found)["scores"]
    assert (scores["datatype"], scores["shape"]) == ("FP32", [1, 2])
    assert scores["data"][1] == pytest.approx(P, rel=1e-5)
    assert outputs_of(found)["classes"]["data"] == ["0", "1"]


def test_a_parameter_names_the_signature_and_outputs_are_filtered(server):
    body = {
        "inputs": INPUTS,
        "outputs": [{"name": "probabilities"}],
        "parameters": {"signature_name": "predict"},
    }
    found = infer(server, body)[1]
    assert [tensor["name"] for tensor in found["outputs"]] == ["probabilities"]


def test_binary_tensors_follow_the_json(server):
    texts = struct.pack("<I", 4) + b"Oslo", struct.pack("<I", 1) + b"a"
    parts = [struct.pack("<f", 1.5), struct.pack("<q", 2), *texts]
    inputs = [
        {**without(tensor, "data"), "parameters": {"binary_data_size": len(part)}}
        for tensor, part in zip(INPUTS, parts, strict=True)
    ]
    wanted = [{"name": "scores", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": inputs, "outputs": wanted}).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    status, data, headers = infer(server, head + b"".join(parts), headers=length)
    assert status == 200
    cut = int(headers["Inference-Header-Content-Length"])
    (tensor,) = json.loads(data[:cut])["outputs"]
    assert tensor["parameters"] == {"binary_data_size": 8}
    assert np.frombuffer(data[cut:], "<f4")[1] == pytest.approx(P, rel=1e-5)


def without(mapping, key):
    return {name: value for name, value in mapping.items() if name != key}


BAD = {
    "no inputs": ({}, "inputs: expected a list"),
    "a text for a number": ({"age": {"data": ["x"]}}, "FP32: found values that"),
    "a value too many": (
        {"age": {"data": [1.0, 2.0]}},
        "2 values do not fit the shape",
    ),
    "unequal lists": ({"tags": {"data": [["a"], 1]}}, "expected text"),
    "a wrong datatype": ({"age": {"datatype": "FP8"}}, "datatype: expected BOOL"),
    "a negative size": ({"age": {"shape": [-1]}}, "shape: expected a list of sizes"),
    "out of range": (
        {"hours": {"datatype": "INT8", "data": [300]}},
        "INT8: found a number out of range",
    ),
    "no such bytes": (
        {"age": {"parameters": {"binary_data_size": 4}}},
        "0 bytes are left",
    ),
    "an unknown input": ({"age": {"name": "size"}}, "size"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_name_the_tensor_and_the_reason(server, case):
    changes, message = BAD[case]
    inputs = [{**tensor, **changes.get(tensor["name"], {})} for tensor in INPUTS]
    status, found, _ = infer(server, {"inputs": inputs if changes else []})
    assert status == 400
    assert message in found["error"]


def test_a_length_beyond_the_body_is_refused(server):
    length = {"Inference-Header-Content-Length": "99999"}
    status, found, _ = infer(server, b"{}", headers=length)
    assert status == 400
    assert "expected the length of the JSON, at most 2" in found["error"]


TRITON = """
import sys
import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(f"127.0.0.1:{sys.argv[1]}")
assert client.is_server_live() and client.is_model_ready("clicks")
columns = {
    "age": np.array([1.5, 0.0], np.float32),
    "hours": np.array([2, 2], np.int64),
    "city": np.array([b"Oslo", b"Rome"], object),
    "tags": np.array([[b"a"], [b"a"]], object),
}
for binary in (True, False):
    inputs = []
    for name, array in columns.items():
        datatype = triton.np_to_triton_dtype(array.dtype)
        tensor = triton.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    wanted = [
        triton.InferRequestedOutput(name, binary_data=binary)
        for name in ("scores", "classes")
    ]
    for outputs in (wanted, None):
        found = client.infer("clicks", inputs, outputs=outputs)
        print(found.as_numpy("scores")[0, 1], found.as_numpy("classes")[0].tolist())
print(client.get_model_metadata("clicks")["inputs"][0]["name"])
"""


def test_tritons_client_gets_its_answers(server):
    pytest.importorskip("tritonclient.http", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-c", TRITON, str(server.rest_port)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *answers, name = done.stdout.splitlines()
    assert len(answers) == 4
    scores = [float(line.split()[0]) for line in answers]
    assert scores == pytest.approx([P] * 4, rel=1e-5)
    assert all("'0', b'1'" in line or "'0', '1'" in line for line in answers)
    assert name == "age"
