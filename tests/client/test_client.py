"""The client calls a real server, over REST and gRPC, with tables of every kind."""

import http.server
import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from serving.bundles import export_clicks, probability
from serving.servers import free_port, running_server

from estimax.client import CallError, Client
from estimax.core.errors import ConfigError

COLUMNS = {
    "age": np.array([1.5, 0.0], np.float32),
    "hours": [2, 2],
    "city": ["Oslo", "Rome"],
    "tags": [["a"], ["b"]],
}
EXPECTED = [probability(1.5, 2, 1), probability(0.0, 2, 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    shutil.copytree(export_clicks(folder / "exported"), folder / "clicks" / "7")
    (folder / "token").write_text("secret")
    arguments = (f"clicks={folder / 'clicks'}", "--token-file", str(folder / "token"))
    with running_server(folder, *arguments, "--batch-sizes", "1,4") as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def client(server, request):
    port = server.rest_port if request.param == "http" else server.grpc_port
    with Client(f"{request.param}://127.0.0.1:{port}", token="secret") as found:
        yield found


def test_columns_give_arrays(client):
    outputs = client.predict("clicks", COLUMNS)
    assert outputs["scores"][:, 1] == pytest.approx(EXPECTED, rel=1e-5)
    assert outputs["classes"].shape == (2, 2)


def test_rows_data_frames_and_arrow_tables_are_columns(client):
    rows = [
        {name: np.asarray(values)[i].tolist() for name, values in COLUMNS.items()}
        for i in range(2)
    ]
    frame, table = pd.DataFrame(rows), pa.Table.from_pylist(rows)
    for features in (rows, frame, table):
        scores = client.predict("clicks", features)["scores"][:, 1]
        assert scores == pytest.approx(EXPECTED, rel=1e-5)


def test_signature_version_and_outputs_can_be_chosen(client):
    options = {"signature": "predict", "version": 7, "outputs": ["probabilities"]}
    outputs = client.predict("clicks", COLUMNS, **options)
    assert list(outputs) == ["probabilities"]
    assert outputs["probabilities"][:, 1] == pytest.approx(EXPECTED, rel=1e-5)


def test_a_missing_value_is_none_over_rest(server):
    with Client(f"http://127.0.0.1:{server.rest_port}", token="secret") as client:
        rows = pd.DataFrame({**COLUMNS, "city": ["Oslo", None]})
        scores = client.predict("clicks", rows)["scores"][:, 1]
    assert scores == pytest.approx(EXPECTED, rel=1e-5)


def test_missing_text_over_grpc_names_the_feature(server):
    with (
        Client(f"grpc://127.0.0.1:{server.grpc_port}", token="secret") as client,
        pytest.raises(TypeError, match="'city': a tensor of gRPC has text or"),
    ):
        client.predict("clicks", {**COLUMNS, "city": ["Oslo", None]})


def test_versions_and_readiness(client):
    assert client.versions("clicks") == {7: "AVAILABLE"}
    assert client.is_ready("clicks")
    assert not client.is_ready("other")


def test_errors_have_the_code_and_the_words_of_the_server(client):
    with pytest.raises(CallError, match="other") as caught:
        client.predict("other", COLUMNS)
    assert caught.value.code == "NOT_FOUND"
    with pytest.raises(CallError, match="age") as caught:
        client.predict("clicks", {**COLUMNS, "age": ["x", "y"]})
    assert caught.value.code == "INVALID_ARGUMENT"
    assert not caught.value.is_temporary


def test_a_wrong_token_is_refused(server):
    with (
        Client(f"http://127.0.0.1:{server.rest_port}", token="wrong") as client,
        pytest.raises(CallError, match="token") as caught,
    ):
        client.predict("clicks", COLUMNS)
    assert caught.value.code == "UNAUTHENTICATED"


def test_threads_share_a_client(client):
    def call(_):
        return client.predict("clicks", COLUMNS)["scores"][0, 1]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(40))) == pytest.approx([EXPECTED[0]] * 40)


def test_numbers_are_sent_in_the_dtypes_of_the_signature(client):
    wide = {**COLUMNS, "age": [1.5, 0], "hours": np.array([2, 2], np.int16)}
    scores = client.predict("clicks", wide)["scores"][:, 1]
    assert scores == pytest.approx(EXPECTED, rel=1e-5)
    with pytest.raises(CallError, match="hours"):
        client.predict("clicks", {**COLUMNS, "hours": [2.5, 2.0]})


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_server_that_is_not_there_is_unavailable(scheme):
    address = f"{scheme}://127.0.0.1:{free_port()}"
    with (
        Client(address, timeout=5.0, retries=1) as client,
        pytest.raises(CallError, match=r"127\.0\.0\.1") as caught,
    ):
        client.predict("clicks", COLUMNS)
    assert caught.value.code == "UNAVAILABLE"


class Busy(http.server.BaseHTTPRequestHandler):
    """Refuses two requests, as a server whose queue is full, and answers the third."""

    protocol_version = "HTTP/1.1"
    refused = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        is_busy = Busy.refused < 2
        Busy.refused += is_busy
        answer = {"error": "full"} if is_busy else {"outputs": {"y": [1.0, 2.0]}}
        body = json.dumps(answer).encode()
        self.send_response(503 if is_busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Print nothing."""


def test_a_busy_server_is_asked_again():
    Busy.refused = 0
    busy = http.server.HTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=busy.serve_forever)
    thread.start()
    try:
        with Client(f"http://127.0.0.1:{busy.server_port}", timeout=60.0) as client:
            assert client.predict("m", {"x": [1.0]})["y"].tolist() == [1.0, 2.0]
        assert Busy.refused == 2
        Busy.refused = 0
        address = f"http://127.0.0.1:{busy.server_port}"
        with (
            Client(address, retries=1) as client,
            pytest.raises(CallError, match="full"),
        ):
            client.predict("m", {"x": [1.0]})
    finally:
        busy.shutdown()
        thread.join()
        busy.server_close()


@pytest.mark.parametrize("address", ["localhost:8501", "ftp://host", "http://", ""])
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(ConfigError, match="expected an address such as http://"):
        Client(address)


def test_a_table_of_another_kind_is_refused(server):
    with (
        Client(f"http://127.0.0.1:{server.rest_port}") as client,
        pytest.raises(TypeError, match="a list of dicts; got list"),
    ):
        client.predict("clicks", [1, 2])


def test_the_client_imports_no_jax():
    code = "import sys, estimax.client; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
