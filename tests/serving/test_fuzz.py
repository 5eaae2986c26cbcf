"""Random and damaged requests: the server answers each, and lives on."""

import json
import os
import random
import shutil

import grpc
import pytest
from serving.bundles import export_clicks
from serving.servers import running_server
from serving.test_server import COLUMNS, ROW, example_input, predict_request, spec

from estimax.serving.protos import message

METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
VALUES = (
    *(None, True, -1, 0, 1.5, 1e308, 2**63, 2**70, "", "a", "\0", "\ud800"),
    *([], [[]], {}, {"b64": "!"}, {"b64": "AA=="}, [1, "a"], "x" * 10_000),
)
RPCS = (
    *(("PredictionService", name) for name in ("Predict", "Classify", "Regress")),
    ("PredictionService", "MultiInference"),
    ("PredictionService", "GetModelMetadata"),
    ("ModelService", "GetModelStatus"),
    ("ModelService", "HandleReloadConfigRequest"),
)
NUMBERS = (0.0, 1.5, -1e38, float("inf"), float("nan"))
SIZES = (-1, 0, 1, 1, 1, 2, 3, 50, 2000, 10**5, 2**24, 2**31, 2**62)
FAULTS = ("UNKNOWN", "INTERNAL", "DATA_LOSS")  # codes that would be our fault


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    shutil.copytree(export_clicks(folder / "exported"), folder / "clicks" / "1")
    arguments = (f"clicks={folder / 'clicks'}", "--batch-sizes", "1,8")
    with running_server(folder, *arguments) as running:
        yield running


def memory(server) -> int:
    """Return the resident memory of the server in bytes."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def changed(rng, value, depth=0):
    """Return a JSON value with a random part of it replaced."""
    if rng.random() < 0.15 or depth > 4:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        kept = {k: changed(rng, v, depth + 1) for k, v in value.items()}
        if rng.random() < 0.1:
            kept.pop(rng.choice(list(kept)), None)
        if rng.random() < 0.1:
            kept[rng.choice(["x", "age", "instances", "inputs"])] = rng.choice(VALUES)
        return kept
    if isinstance(value, list):
        return [changed(rng, v, depth + 1) for v in value] * rng.choice((1, 1, 1, 2))
    return value


def body(rng) -> bytes:
    valid = rng.choice(
        (
            {"instances": [ROW]},
            {"inputs": COLUMNS},
            {"examples": [ROW], "context": {"city": "Rome"}},
            {"instances": [ROW], "signature_name": "predict"},
        )
    )
    text = json.dumps(changed(rng, valid)).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        data = bytearray(text)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        text = bytes(data[: rng.randrange(1, len(data) + 1)])
    return text


def path(rng) -> str:
    parts = ("/v1/models", "/clicks", "/versions/1", "/labels/x", "/metadata", "/%2f")
    made = rng.choice(
        ("/v1/models/clicks:predict", "/v1/models/clicks:classify")
        if rng.random() < 0.7
        else ("/v1/models/clicks:regress", "".join(rng.sample(parts, 3)))
    )
    return made + rng.choice(("", "", "", "?a=b", ":x", "%00"))


def fuzz_rest(server, count, seed):
    rng = random.Random(seed)
    for number in range(count):
        method = "POST" if rng.random() < 0.8 else rng.choice(METHODS)
        given = body(rng) if method in ("POST", "PUT", "PATCH") else None
        status, answer, _ = server.request(path(rng), given, method=method)
        assert status < 500, (seed, number, answer)


def fuzz_grpc(server, count, seed):
    """Send damaged and odd messages; return the most CPU seconds that one took."""
    rng = random.Random(seed)
    worst = 0.0
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        before = cpu_seconds(server)
        for number in range(count):
            service, name = rng.choice(RPCS)
            data = odd_message(rng, name)
            if rng.random() < 0.5:
                data = damaged(rng, data)
            run = channel.unary_unary(f"/tensorflow.serving.{service}/{name}")
            code, details = grpc_status(run, data)
            assert code not in FAULTS, (seed, number, details)
            after = cpu_seconds(server)
            worst, before = max(worst, after - before), after
    return worst


def cpu_seconds(server) -> float:
    """Return the processor time of the server, which a busy machine does not change."""
    with open(f"/proc/{server.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def damaged(rng, data: bytes) -> bytes:
    changed_bytes = bytearray(data)
    for _ in range(rng.randrange(0, 6)):
        changed_bytes[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed_bytes[: rng.randrange(len(data) + 1)])


def odd_message(rng, name) -> bytes:
    """Return a request that is valid in form, with odd names, shapes and values."""
    if name == "Predict":
        request = predict_request(rng.choice(("", "predict", "classification", "x")))
        for _ in range(rng.randrange(4)):
            key = rng.choice(("age", "hours", "city", "tags", "x", "examples", "\0é"))
            odd_tensor(rng, request.inputs[key])
        if rng.random() < 0.2:
            del request.inputs[rng.choice(list(request.inputs))]
        if rng.random() < 0.1:
            request.output_filter.append(rng.choice(("logits", "x", "")))
        return request.SerializeToString()
    kinds = {"Classify": "Classification", "Regress": "Regression"}
    if name in kinds:
        request = example_input(spec(message(f"{kinds[name]}Request")()))
        features = request.input.example_list.examples[0].features.feature
        for _ in range(rng.randrange(3)):
            feature = features[rng.choice(("age", "hours", "city", "tags", "x"))]
            rng.choice(
                (
                    lambda f: f.float_list.value.extend([rng.choice(NUMBERS)] * 3),
                    lambda f: f.int64_list.value.extend([2**62] * rng.randrange(3)),
                    lambda f: f.bytes_list.value.extend([b"\xff"] * rng.randrange(99)),
                    lambda f: f.Clear(),
                )
            )(feature)
        return request.SerializeToString()
    return predict_request().SerializeToString()


def odd_tensor(rng, tensor) -> None:
    if rng.random() < 0.5:
        tensor.dtype = rng.choice((1, 1, 2, 3, 7, 7, 9, 9, 10, 19, 23, 99))
    if rng.random() < 0.5:
        del tensor.tensor_shape.dim[:]
        for _ in range(rng.randrange(4)):
            tensor.tensor_shape.dim.add(size=rng.choice(SIZES))
    tensor.tensor_shape.unknown_rank = rng.random() < 0.05
    for field, value in (
        ("float_val", rng.choice(NUMBERS)),
        ("int64_val", rng.choice((-1, 0, 2**63 - 1))),
        ("string_val", b"x" * rng.choice((0, 1, 1000))),
    ):
        if rng.random() < 0.3:
            getattr(tensor, field)[:] = [value] * rng.choice((0, 1, 2, 50))
    if rng.random() < 0.1:
        tensor.tensor_content = rng.randbytes(rng.choice((1, 4, 8, 400)))


def grpc_status(run, data):
    """Return the code of an answer, and its details."""
    try:
        run(data, timeout=60)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


def test_a_few_hundred_fuzzed_requests_are_answered(server):
    fuzz_rest(server, 300, seed=1)
    fuzz_grpc(server, 200, seed=1)
    assert server.request("/v1/models/clicks:predict", {"instances": [ROW]})[0] == 200


@pytest.mark.slow
def test_50000_fuzzed_messages_have_no_fault_and_leave_the_memory_flat(server):
    fuzz_rest(server, 2_000, seed=2)
    fuzz_grpc(server, 2_000, seed=2)
    before = memory(server)
    fuzz_rest(server, 23_000, seed=3)
    # A message may compile a program for long lists, once, which takes 0.3 s.
    assert fuzz_grpc(server, 50_000, seed=3) < 1.0
    assert memory(server) < before + 100 * 2**20
    assert server.request("/v1/models/clicks:predict", {"instances": [ROW]})[0] == 200
