"""Start `jax.distributed` in the processes of a cluster.

    join(Member("10.0.0.1:4000", process=0, count=2, name_of), 300, lost_after_secs=30)
    join_detected("slurm", 300, lost_after_secs=30, name_of)

The processes meet first (`meeting.py`), and JAX connects them when all are there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from estimax.core.errors import ClusterError
from estimax.parallel.aborts import start_jax
from estimax.parallel.meeting import Member, meeting

_JAX_MARGIN_SECS = 20
_CONNECT_SECS = 120  # how long JAX may take to connect processes that are all there
_SHUTDOWN_SECS = 24 * 3600


def join(
    me: Member, start_timeout_secs: float, *, lost_after_secs: float, **settings: Any
) -> None:
    """Connect this process with the others; `settings` are passed to JAX.

    Raises:
      ClusterError: The other processes cannot be reached, or JAX was used before.
    """
    _check_unused()
    try:
        # Within the meeting, whose connections stay open until JAX has connected all: a
        # process that ends meanwhile is noticed, and named.
        with meeting(me, start_timeout_secs):
            start_jax(
                me.address,
                me.count,
                me.process,
                cluster_detection_method="deactivate",
                coordinator_bind_address=me.bind_address,
                **_timeouts(_CONNECT_SECS, lost_after_secs),
                **settings,
            )
    except ClusterError:
        raise
    except RuntimeError as error:
        raise ClusterError(
            f"{me.label(me.process)} met the other processes, but JAX could not "
            f"connect them: {error} Is there a firewall or a proxy between them? "
            f"Process 0 must be reachable at {me.address}."
        ) from error


def join_detected(
    method: str | None,
    start_timeout_secs: float,
    *,
    lost_after_secs: float,
    name_of: Callable[[int], str],
) -> None:
    """Connect the processes of the system that JAX detects, such as "slurm".

    Raises:
      ClusterError: The other processes cannot be reached, or JAX was used before.
      ValueError: JAX does not find the system.
    """
    from jax._src import clusters  # not public; JAX itself asks it at the start

    ids = os.environ.get("JAX_LOCAL_DEVICE_IDS")
    address, count, process, devices = (
        clusters.ClusterEnv.auto_detect_unset_distributed_params(
            os.environ.get("JAX_COORDINATOR_ADDRESS"),
            None,
            None,
            [int(text) for text in ids.split(",")] if ids else None,
            method,
            int(start_timeout_secs),
        )
    )
    if address is None or process is None or count is None or count == 1:
        timeouts = _timeouts(start_timeout_secs, lost_after_secs)
        start_jax(cluster_detection_method=method, **timeouts)
        return
    me = Member(address, process, count, name_of)
    join(
        me,
        start_timeout_secs,
        lost_after_secs=lost_after_secs,
        local_device_ids=devices,
    )


def _timeouts(start_timeout_secs: float, lost_after_secs: float) -> dict[str, Any]:
    """Return the time-outs of `jax.distributed.initialize`.

    JAX ends the processes by itself if one of them is lost for longer than estimax
    takes to notice. At the end a process waits for the others.
    """
    return {
        "initialization_timeout": int(start_timeout_secs),
        "heartbeat_timeout_seconds": int(lost_after_secs) + _JAX_MARGIN_SECS,
        "shutdown_timeout_seconds": _SHUTDOWN_SECS,
    }


def _check_unused() -> None:
    from jax._src import xla_bridge  # not public; JAX has no other way to ask

    if xla_bridge.backends_are_initialized():
        raise ClusterError(
            "the processes of a cluster must be connected before JAX is used, and this "
            "process has used it already (any computation, jax.devices(), or evaluate "
            "before train). Call config.connect() first, on the RunConfig."
        )
