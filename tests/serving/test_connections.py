"""Connections are bounded, and those that nobody uses are closed."""

import asyncio
import json
import shutil
import socket
import ssl
import subprocess

import grpc
import pytest
import uvicorn
from serving.bundles import export_clicks
from serving.servers import running_server
from uvicorn.server import ServerState

from estimax.core.errors import ConfigError
from estimax.serving.connections import Connections
from estimax.serving.listening import Tls, bind, grpc_address, grpc_options
from estimax.serving.protos import message


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("connections")
    shutil.copytree(export_clicks(folder / "exported"), folder / "clicks" / "1")
    return folder


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """An authority that has signed the certificates of a server and of a client."""
    folder = tmp_path_factory.mktemp("keys")
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
    authority = ("-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    openssl(*new, "/CN=authority", "-x509", "-days", "1", *authority)
    for name in ("server", "client"):
        files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
        openssl(*new, "/CN=localhost", *files)
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        signed = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key")
        openssl(
            *("x509", "-req", "-in", folder / f"{name}.csr", *signed, "-days", "1"),
            *("-CAcreateserial", "-extfile", folder / "names"),
            *("-out", folder / f"{name}.pem"),
        )
    return folder


def status(channel):
    run = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
    request = message("GetModelStatusRequest")()
    request.model_spec.name = "clicks"
    return run(request.SerializeToString(), timeout=60)


def read(keys, name):
    return (keys / name).read_bytes()


def test_clients_need_a_certificate_for_mutual_tls(folder, keys):
    arguments = (f"clicks={folder / 'clicks'}", "--batch-sizes", "1")
    arguments += ("--ssl-key", str(keys / "server.key"))
    arguments += ("--ssl-certificate", str(keys / "server.pem"))
    arguments += ("--ssl-client-ca", str(keys / "ca.pem"))
    trusted = ssl.create_default_context(cafile=keys / "ca.pem")
    anonymous = ssl.create_default_context(cafile=keys / "ca.pem")
    trusted.load_cert_chain(keys / "client.pem", keys / "client.key")
    with running_server(folder, *arguments, trusted=trusted) as server:
        assert server.request("/readyz")[0] == 200
        server._trusted = anonymous
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|closed|EOF"):
            server.request("/readyz")
        address, ca = f"localhost:{server.grpc_port}", read(keys, "ca.pem")
        with (
            grpc.secure_channel(address, grpc.ssl_channel_credentials(ca)) as channel,
            pytest.raises(grpc.RpcError),
        ):
            status(channel)
        credentials = grpc.ssl_channel_credentials(
            ca, read(keys, "client.key"), read(keys, "client.pem")
        )
        with grpc.secure_channel(address, credentials) as channel:
            assert status(channel)


def test_the_ssl_config_and_the_sockets_of_tensorflow_serving(folder, keys):
    """SSLConfig is for gRPC only; `::` is IPv6 and IPv4; a Unix socket is beside."""
    config = folder / "ssl.config"
    pairs = [
        f"{field}: {json.dumps(read(keys, name).decode())}"
        for field, name in (
            ("server_key", "server.key"),
            ("server_cert", "server.pem"),
            ("custom_ca", "ca.pem"),
        )
    ]
    config.write_text("\n".join([*pairs, "client_verify: true"]))
    unix = folder / "socket"
    arguments = (f"--model_base_path={folder / 'clicks'}", "--model_name=clicks")
    arguments += (f"--ssl_config_file={config}", f"--grpc_socket_path={unix}")
    arguments += ("--batch-sizes", "1", "--enable_batching=true")
    with running_server(folder, *arguments, "--host", "::") as server:
        assert server.request("/readyz")[0] == 200  # through 127.0.0.1, without TLS
        with socket.create_connection(("::1", server.rest_port)):
            pass
        credentials = grpc.ssl_channel_credentials(
            read(keys, "ca.pem"), read(keys, "client.key"), read(keys, "client.pem")
        )
        options = [("grpc.ssl_target_name_override", "localhost")]
        for address in (f"unix:{unix}", f"[::1]:{server.grpc_port}"):
            with grpc.secure_channel(address, credentials, options) as channel:
                assert status(channel)


def test_half_sent_requests_are_closed_and_connections_are_bounded(folder):
    arguments = (f"clicks={folder / 'clicks'}", "--batch-sizes", "1")
    arguments += ("--max-connections", "3", "--request-read-seconds", "1")
    with running_server(folder, *arguments) as server:

        def connected(data=b""):
            made = socket.create_connection(("127.0.0.1", server.rest_port), 60)
            made.sendall(data)
            return made

        half = b"POST /v1/models/clicks:predict HTTP/1.1\r\nHost: a\r\n"
        with (
            connected() as silent,
            connected(half) as header,
            connected(half + b"Content-Length: 9\r\n\r\n{") as body,
        ):
            for sock in (silent, header, body):
                assert b"408" in sock.recv(1000)
                assert sock.recv(1000) == b""
        # Idle connections make way: a fourth one is answered.
        keep = [connected(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(3)]
        assert all(b"200" in sock.recv(1000) for sock in keep)
        assert server.request("/readyz")[0] == 200
        # If all are busy, it is refused at once.
        for sock in keep:
            sock.close()
        busy = [connected(half + b"Content-Length: 9\r\n\r\n{") for _ in range(3)]
        with connected(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n") as refused:
            assert b"503" in refused.recv(1000)
        for sock in busy:
            sock.close()
    told = server.log.read_text()
    assert "without a whole request after 1 s" in told
    assert "all busy" in told
    assert "Traceback" not in told


class Talk:
    """Connections of one process, whose clock the test sets, and an application."""

    def __init__(self, *, most=10, size=2):
        self.now = 0.0
        self.closed = []
        self.connections = Connections(
            most, 60.0, self.closed.append, clock=lambda: self.now
        )
        self._body = b"a" * size

    async def _answer(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        length = str(len(self._body)).encode()
        start = {"status": 200, "headers": [(b"content-length", length)]}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": self._body})

    async def __aenter__(self):
        settings = uvicorn.Config(
            self._answer,
            http=self.connections.protocol(),
            ws="none",
            interface="asgi3",
            timeout_keep_alive=600,
        )
        settings.load()
        state = ServerState()

        def made():
            return settings.http_protocol_class(
                config=settings, server_state=state, app_state={}
            )

        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(made, "127.0.0.1", 0)
        self._writers = []
        return self

    async def __aexit__(self, *_):
        self._listening.close()
        for writer in self._writers:
            writer.transport.abort()
        while self.connections._open:
            await asyncio.sleep(0)

    async def connect(self):
        """Return the streams of a client, and the connection of the server."""
        before = set(self.connections._open)
        address = self._listening.sockets[0].getsockname()
        streams = await asyncio.open_connection(*address)
        self._writers.append(streams[1])
        while not self.connections._open - before:
            await asyncio.sleep(0)
        (connection,) = self.connections._open - before
        return *streams, connection

    async def send_half(self, writer, connection):
        cycle = connection.cycle
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nha")
        while connection.cycle is cycle:
            await asyncio.sleep(0)

    def pass_time(self, seconds):
        self.now += seconds
        self.connections.sweep()


async def answered(reader):
    return (await reader.readuntil(b"\r\n\r\n")).split()[1], await reader.readexactly(2)


def test_a_connection_in_keep_alive_is_left_alone_until_it_sends():
    async def run():
        async with Talk() as talk:
            reader, writer, connection = await talk.connect()
            for _ in range(2):
                talk.pass_time(59)
                await talk.send_half(writer, connection)
                talk.pass_time(59)  # the time of a request begins with its first bytes
                assert not talk.closed
                writer.write(b"lf")
                assert await answered(reader) == (b"200", b"aa")
            talk.pass_time(1000)  # how long it may be idle is up to keep-alive
            assert not talk.closed
            await talk.send_half(writer, connection)
            talk.pass_time(61)
            assert talk.closed == ["half_sent"]
            assert b"408" in await reader.read()
            reader, _, _ = await talk.connect()
            talk.pass_time(61)  # one that never sends is closed
            assert b"408" in await reader.read()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_idle_connection_with_an_unread_answer_is_cut_when_it_makes_way():
    async def run():
        async with Talk(most=1, size=50_000_000) as talk:
            _, writer, first = await talk.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            while first.cycle is None or not first.cycle.response_complete:
                await asyncio.sleep(0)
            assert first.transport.get_write_buffer_size()
            await talk.connect()
            assert talk.closed == ["idle"]
            assert first.transport.get_write_buffer_size() == 0

    asyncio.run(asyncio.wait_for(run(), 60))


def test_bad_keys_are_explained(tmp_path, keys):
    with pytest.raises(ConfigError, match="expected a private key"):
        Tls(read(keys, "client.key"), read(keys, "server.pem")).context()
    (tmp_path / "ssl.config").write_text("client_verify: true")
    with pytest.raises(ConfigError, match="client_verify needs custom_ca"):
        Tls.from_config_file(str(tmp_path / "ssl.config"))


def test_addresses_that_are_not_of_this_machine_are_explained():
    with pytest.raises(ConfigError, match=r"port 1234 of 192\.0\.2\.1 cannot"):
        bind("192.0.2.1", 1234, shared=False)
    with pytest.raises(ConfigError, match="expected an address"):
        bind("no such host", 1234, shared=False)
    assert grpc_address("localhost", 8500) == "localhost:8500"
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        grpc_options(("grpc.a",))
