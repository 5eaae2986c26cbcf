"""The cluster of a run file: what can be wrong with it, and what `RunConfig` takes.

check_cluster(run.run.cluster, note)
cluster_value(run.run.cluster)      # RunConfig(cluster=…): a name, a dict or None
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from estimax.config.decode import is_broken
from estimax.config.feature_checks import Note
from estimax.config.schema.run import (
    ChiefClusterConfig,
    ClusterConfig,
    CoordinatedClusterConfig,
    JobsConfig,
    MasterClusterConfig,
)
from estimax.core.addresses import is_address


def check_cluster(given: ClusterConfig | None, note: Note) -> None:
    """Report addresses that are none, and a process that the cluster does not have."""
    if is_broken(given) or not hasattr(given, "__dataclass_fields__"):
        return
    for key, address in _addresses(given):
        if isinstance(address, str) and not is_address(address):
            text = f"must be host:port, such as 10.0.0.1:4000, got {address!r}"
            note(f"run.cluster.{key}", text)
    if isinstance(given, CoordinatedClusterConfig):
        count, process = given.processes, given.process
        if not is_broken(count) and not is_broken(process) and process >= count:
            text = f"must be less than processes ({count}), got {process}"
            note("run.cluster.process", text)
    elif isinstance(given, ChiefClusterConfig | MasterClusterConfig):
        _check_task(given, note)


def _check_task(given: JobsConfig, note: Note) -> None:
    task = given.task
    if any(map(is_broken, (task, given.worker))) or any(
        map(is_broken, (task.type, task.index))
    ):
        return
    if task.type == "worker":
        count = len(given.worker)
        if task.index >= count:
            text = f"run.cluster.worker has {count} addresses, so the index is"
            expected = f"{text} at most {count - 1}" if count else f"{text} none"
            note("run.cluster.task.index", f"{expected}, got {task.index}")
    elif task.type != "evaluator" and task.index:
        text = f"there is one {task.type}, with index 0, got {task.index}"
        note("run.cluster.task.index", text)


def _addresses(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield the key and the value of each address."""
    for key in ("coordinator", "chief", "master"):
        if hasattr(given, key):
            yield key, getattr(given, key)
    workers = getattr(given, "worker", ())
    for i, address in enumerate(() if is_broken(workers) else workers):
        yield f"worker.{i}", address


def cluster_value(given: ClusterConfig | None) -> Any:
    """Return what `RunConfig(cluster=…)` takes: a name, a dict or None."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, CoordinatedClusterConfig):
        return {
            "coordinator": given.coordinator,
            "processes": given.processes,
            "process": given.process,
        }
    if isinstance(given, ChiefClusterConfig):
        jobs = {"chief": [given.chief]}
    else:
        jobs = {"master": [given.master]}
    if given.worker:
        jobs["worker"] = list(given.worker)
    task = {"type": given.task.type, "index": given.task.index}
    return {"cluster": jobs, "task": task}
