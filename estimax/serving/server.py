"""The server: models, REST and gRPC in one process, until it is told to stop.

    Server(ServerConfig(models=(ModelConfig("ctr", "/models/ctr"),))).run()

One event loop reads and writes requests; threads run batches and load versions. On
SIGTERM the server reports that it is not ready, waits for load balancers to notice,
stops accepting requests, answers those under way, and ends with exit status 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import uvicorn
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from estimax.core.errors import ConfigError
from estimax.export.bundle import has_programs_in_use
from estimax.serving.batching import Scheduler
from estimax.serving.config import BatchingConfig, ModelConfig, read_model_configs
from estimax.serving.grpc_api import add_services
from estimax.serving.inference import InferenceService, Target
from estimax.serving.manager import ModelManager
from estimax.serving.metrics import ServerMetrics
from estimax.serving.request_log import RequestLog
from estimax.serving.rest import RestApp, RestLimits
from estimax.serving.status import Code
from estimax.serving.versions import LoadedVersion, compile_in_child, load_version

_log = logging.getLogger("estimax.serving")
_HEALTH_NAMES: Final = (
    "",
    "PredictionService",
    "ModelService",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


@dataclass(frozen=True)
class ServerConfig:
    """The settings of a server.

    Args:
      models: The models to serve.
      model_config_file: A file of models, read again when it changes. Give this or
        `models`.
      host: The address to listen on.
      grpc_port: The port of gRPC; 0 turns gRPC off.
      rest_port: The port of REST; 0 turns REST off.
      batching: How requests are joined into batches.
      poll_seconds: How often folders are searched for new versions; 0 looks once.
      rest: The limits of REST requests.
      max_rows: The most rows of a request.
      load_retries: How often a version that cannot be loaded is tried again.
      load_retry_seconds: The time between two tries.
      drain_delay: Seconds between the end of readiness and the end of accepting.
      shutdown_grace: Seconds for requests under way after that.
      ssl_key: The file of the private key; turns TLS on, with `ssl_certificate`.
      ssl_certificate: The file of the certificate chain.
      as_content: Whether gRPC answers use `tensor_content`.
      reuse_port: Whether other processes may listen on the same ports.
      request_log: A file for a sample of the requests. None: none is written.
      request_log_rate: The part of the requests that is written there.
    """

    models: tuple[ModelConfig, ...] = ()
    model_config_file: str | None = None
    host: str = "0.0.0.0"
    grpc_port: int = 8500
    rest_port: int = 8501
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    poll_seconds: float = 1.0
    rest: RestLimits = field(default_factory=RestLimits)
    max_rows: int = 100_000
    load_retries: int = 5
    load_retry_seconds: float = 60.0
    drain_delay: float = 2.0
    shutdown_grace: float = 25.0
    ssl_key: str | None = None
    ssl_certificate: str | None = None
    as_content: bool = False
    reuse_port: bool = False
    request_log: str | None = None
    request_log_rate: float = 0.01

    def __post_init__(self) -> None:
        if bool(self.models) == bool(self.model_config_file):
            raise ConfigError("expected models or a model_config_file, one of the two.")
        if not self.grpc_port and not self.rest_port:
            raise ConfigError("gRPC and REST are both off; expected one of the ports.")
        if bool(self.ssl_key) != bool(self.ssl_certificate):
            raise ConfigError("TLS needs both ssl_key and ssl_certificate.")


class Server:
    """A server of exported models.

    Args:
      config: Its settings.

    Example:
      >>> config = ServerConfig(models=(ModelConfig("ctr", "/models/ctr"),))
      >>> Server(config).manager.is_ready()
      False
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._scheduler = Scheduler(config.batching.threads)
        self._models_file = _WatchedFile(config.model_config_file)
        self.manager = ModelManager(
            config.models or self._models_file.read(),
            self._load,
            retries=config.load_retries,
            retry_seconds=config.load_retry_seconds,
        )
        self.metrics = ServerMetrics()
        self._request_log = (
            None
            if config.request_log is None
            else RequestLog(config.request_log, config.request_log_rate)
        )
        self._is_draining = False
        self._stop = asyncio.Event()

    def run(self, on_ready: Callable[[Server], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT.

        Args:
          on_ready: Called once all models are ready or have failed to load.
        """
        with contextlib.suppress(ImportError):
            import uvloop

            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        before = sys.getswitchinterval()
        # While a thread loads a version, requests wait for it at most 1 ms at a time.
        sys.setswitchinterval(0.001)
        try:
            asyncio.run(self._run(on_ready))
        finally:
            sys.setswitchinterval(before)

    async def _run(self, on_ready: Callable[[Server], None] | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        self.manager.poll()
        polling = threading.Thread(target=self._poll, daemon=True, name="poll")
        polling.start()
        if self._config.reuse_port:
            # Requests are spread over all processes that listen: join them when ready.
            await asyncio.to_thread(self.manager.wait_until_ready)
        async with self._rest(), self._grpc() as set_health:
            await asyncio.to_thread(self.manager.wait_until_ready)
            await set_health(self.manager.is_ready())
            _spare_collector()
            if on_ready is not None:
                on_ready(self)
            await self._stop.wait()
            self._is_draining = True
            await set_health(False)
            _log.info("stopping: waiting %g s before closing", self._config.drain_delay)
            await asyncio.sleep(self._config.drain_delay)
        await asyncio.to_thread(self.manager.close)
        self._scheduler.close()

    def stop(self) -> None:
        """Begin to stop, as SIGTERM does."""
        self._stop.set()

    def _on_signal(self) -> None:
        if self._stop.is_set():  # the second signal: do not wait any longer
            raise SystemExit(1)
        self.stop()

    def _load(self, path: Path, is_serving: bool) -> LoadedVersion:
        # Requests to the version before it have shapes that this one will see as well.
        shapes = [
            shapes
            for model in self.manager.models().values()
            for version in list(model.versions.values())
            if version.loaded is not None and version.path.parent == path.parent
            for shapes in version.loaded.programs.learned()
        ]
        if is_serving and not has_programs_in_use(path):
            compile_in_child(path, self._config.batching, shapes)
        return load_version(path, self._config.batching, self._scheduler, shapes)

    def _poll(self) -> None:
        """Look for new versions and a changed file of models, again and again."""
        while self._config.poll_seconds and not self._stop.is_set():
            time.sleep(self._config.poll_seconds)
            self.manager.poll()
            configs = self._models_file.changed()
            if configs is not None:
                try:
                    self.manager.reload(configs, timeout=600.0)
                except Exception as error:
                    _log.error("%s: %s", self._config.model_config_file, error)

    def _observe(self, entry: str) -> Callable[[Target, str, Code, int, float], None]:
        def observe(
            target: Target, method: str, code: Code, rows: int, seconds: float
        ) -> None:
            # Names come from clients: count only those of models that exist.
            known = target.name if target.name in self.manager.models() else ""
            self.metrics.observe(known, method, code, rows, seconds, entry)

        return observe

    def _service(self, entry: str) -> InferenceService:
        return InferenceService(
            self.manager,
            max_rows=self._config.max_rows,
            observe=self._observe(entry),
            record=None if self._request_log is None else self._request_log.record,
        )

    @contextlib.asynccontextmanager
    async def _rest(self) -> AsyncIterator[None]:
        config = self._config
        if not config.rest_port:
            yield
            return
        app: Any = RestApp(
            self._service("REST"),
            self.metrics,
            config.rest,
            is_draining=lambda: self._is_draining,
        )
        server = _Uvicorn(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.rest_port,
                log_level="warning",
                access_log=False,
                ssl_keyfile=config.ssl_key,
                ssl_certfile=config.ssl_certificate,
                timeout_graceful_shutdown=int(config.shutdown_grace),
                server_header=False,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[_socket(config)]))
        while not server.started:
            await asyncio.sleep(0.01)
        _log.info("REST on port %d", config.rest_port)
        try:
            yield
        finally:
            server.should_exit = True
            await serving

    @contextlib.asynccontextmanager
    async def _grpc(self) -> AsyncIterator[Callable[[bool], Any]]:
        config = self._config

        async def nothing(_: bool) -> None: ...

        if not config.grpc_port:
            yield nothing
            return
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", config.rest.max_body),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", int(config.reuse_port)),
            ]
        )
        add_services(
            server,
            self._service("GRPC"),
            as_content=config.as_content,
            token=config.rest.token,
        )
        health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        _listen(server, config)
        await server.start()
        _log.info("gRPC on port %d", config.grpc_port)

        async def set_health(is_serving: bool) -> None:
            status = health_pb2.HealthCheckResponse
            state = status.SERVING if is_serving else status.NOT_SERVING
            for name in (*_HEALTH_NAMES, *self.manager.models()):
                await health.set(name, state)

        await set_health(False)
        try:
            yield set_health
        finally:
            await server.stop(config.shutdown_grace)


def _spare_collector() -> None:
    """Leave out what stays, modules above all, when garbage is collected.

    Requests create many objects and no cycles. With Python's thresholds, a server
    visits the objects of all modules every few hundred requests, which takes 50 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own handling of signals, which is the server's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class _WatchedFile:
    """A file of models, read again when its time or size changes."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._seen: Any = None

    def read(self) -> tuple[ModelConfig, ...]:
        """Read the file; raise ConfigError if it is invalid."""
        assert self._path is not None
        self._seen = self._stamp()
        return read_model_configs(self._path)

    def changed(self) -> tuple[ModelConfig, ...] | None:
        """Return the models if the file has changed and is valid."""
        if self._path is None or self._stamp() in (self._seen, None):
            return None
        try:
            return self.read()
        except ConfigError as error:
            _log.error("%s; the models stay as they are", error)
            return None

    def _stamp(self) -> tuple[int, int] | None:
        assert self._path is not None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _socket(config: ServerConfig) -> socket.socket:
    """Return a socket that listens on the port of REST."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if config.reuse_port:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((config.host, config.rest_port))
    except OSError as error:
        raise ConfigError(
            f"port {config.rest_port} of {config.host} cannot be listened on: "
            f"{error.strerror}. Choose another with --rest-api-port."
        ) from None
    return made


def _listen(server: grpc.aio.Server, config: ServerConfig) -> None:
    address = f"{config.host}:{config.grpc_port}"
    try:
        if config.ssl_key is None or config.ssl_certificate is None:
            server.add_insecure_port(address)
        else:
            pair = (
                Path(config.ssl_key).read_bytes(),
                Path(config.ssl_certificate).read_bytes(),
            )
            credentials = grpc.ssl_server_credentials([pair])
            server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(
            f"port {config.grpc_port} cannot be listened on: {error}. Choose another "
            "with --port."
        ) from None
