"""The gRPC health protocol, for probes: always the present state of the models.

    health = Health(manager, is_draining)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)

The names of the services answer as `/readyz` does: SERVING if every model can answer.
The name of a model answers for that model alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from estimax.serving.manager import ModelManager

_SERVICES: Final = (
    "",
    "PredictionService",
    "ModelService",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)
_Answer: Final = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Answers health checks from the state of a manager.

    Args:
      manager: The models.
      is_draining: Whether the server is about to stop.
    """

    def __init__(
        self, manager: ModelManager, is_draining: Callable[[], bool] = lambda: False
    ) -> None:
        self._manager = manager
        self._is_draining = is_draining
        self._loop = asyncio.get_running_loop()
        self._watchers: set[asyncio.Event] = set()
        self._is_closed = False
        # Called by any thread, with the lock of the manager, so it must not wait.
        manager.add_listener(self._tell_from_thread)

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's)
        """Answer with the present state of a service or model."""
        status = self.status(request.service)
        if status == _Answer.SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"expected the name of a service or model, found {request.service!r}.",
            )
        return _Answer(status=status)

    async def Watch(  # noqa: N802 (gRPC's)
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        """Send the state of a service or model, and again whenever it changes."""
        changed, last = asyncio.Event(), None
        self._watchers.add(changed)
        try:
            while True:
                # Before the state is read: a change after it sets the event again, and
                # none is missed.
                changed.clear()
                status = self.status(request.service)
                if status != last:
                    yield _Answer(status=status)
                    last = status
                if self._is_closed:
                    return
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    def status(self, service: str) -> int:
        """Return the state of a service or model as a number of the protocol."""
        if service in _SERVICES:
            is_ready: bool | None = self._manager.is_ready()
        else:
            is_ready = self._manager.is_model_ready(service)
        if is_ready is None:
            return int(_Answer.SERVICE_UNKNOWN)
        is_serving = is_ready and not self._is_draining() and not self._is_closed
        return int(_Answer.SERVING if is_serving else _Answer.NOT_SERVING)

    def close(self) -> None:
        """Tell watchers that nothing is served, and end: else they keep the server."""
        self._is_closed = True
        self.tell_watchers()

    def tell_watchers(self) -> None:
        """Let watchers look at the state again. Call it in the event loop."""
        for changed in self._watchers:
            changed.set()

    def _tell_from_thread(self) -> None:
        if self._watchers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.tell_watchers)
