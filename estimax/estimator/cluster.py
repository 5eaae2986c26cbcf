"""The TF_CONFIG environment variable: the processes of a cluster, and this one's role.

    TF_CONFIG='{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
                "task": {"type": "worker", "index": 1}}'
    read_cluster().global_id_in_cluster        # 2

The chief counts as a worker. An evaluator is not counted as part of the cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from estimax.core.errors import ConfigError, did_you_mean

CHIEF, MASTER, WORKER, PS, EVALUATOR = "chief", "master", "worker", "ps", "evaluator"
_LOCAL = "local execution, without a cluster,"


@dataclass(frozen=True)
class Cluster:
    """The content of TF_CONFIG; the default is one process without a cluster."""

    cluster_spec: dict[str, tuple[str, ...]] = field(default_factory=dict)
    task_type: str = WORKER
    task_id: int = 0
    is_chief: bool = True
    master: str = ""
    evaluation_master: str = ""
    num_worker_replicas: int = 1
    num_ps_replicas: int = 0
    global_id_in_cluster: int | None = 0
    service: dict[str, Any] | None = None
    model_dir: str | None = None


class ClusterMember:
    """The properties of a RunConfig that come from TF_CONFIG, as in tf.estimator."""

    _cluster: Cluster

    @property
    def cluster_spec(self) -> dict[str, tuple[str, ...]]:
        """The addresses of each job; empty without a cluster, and for an evaluator."""
        return dict(self._cluster.cluster_spec)

    @property
    def task_type(self) -> str:
        """The role of this process: "chief", "worker", "evaluator" or "master"."""
        return self._cluster.task_type

    @property
    def task_id(self) -> int:
        """The index of this process among those of its type, from 0."""
        return self._cluster.task_id

    @property
    def is_chief(self) -> bool:
        """Whether this process saves checkpoints and writes training summaries."""
        return self._cluster.is_chief

    @property
    def num_worker_replicas(self) -> int:
        """The number of processes that train, including the chief."""
        return self._cluster.num_worker_replicas

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers in TF_CONFIG; they are not used."""
        return self._cluster.num_ps_replicas

    @property
    def global_id_in_cluster(self) -> int | None:
        """The index of this process in the cluster; 0 is the chief, None outside."""
        return self._cluster.global_id_in_cluster

    @property
    def master(self) -> str:
        """The address of this process in TF_CONFIG; empty without a cluster."""
        return self._cluster.master

    @property
    def evaluation_master(self) -> str:
        """The evaluation address in TF_CONFIG; empty if there is none."""
        return self._cluster.evaluation_master

    @property
    def service(self) -> dict[str, Any] | None:
        """The "service" object of TF_CONFIG, not interpreted."""
        return self._cluster.service


def read_cluster(environ: Mapping[str, str] | None = None) -> Cluster:
    """Read TF_CONFIG from `environ`, by default the process environment.

    >>> read_cluster({}).is_chief
    True
    """
    text = (os.environ if environ is None else environ).get("TF_CONFIG")
    if text is None:
        return Cluster()
    config = _parsed(text)
    service = config.get("service")
    if service is not None and not isinstance(service, dict):
        raise TypeError(f"TF_CONFIG: service must be an object, got {service!r}.")
    model_dir = config.get("model_dir")
    if model_dir == "":
        raise ConfigError("TF_CONFIG: model_dir is empty; leave it out or name it.")
    shared = {"service": service, "model_dir": model_dir}
    jobs = _jobs(config)
    task = config.get("task") or {}
    if not isinstance(task, dict):
        raise ConfigError(f"TF_CONFIG: task must be an object, got {task!r}.")
    if not jobs:
        return _alone(config, task, shared)
    return _member(config, jobs, task, shared)


def check_trains(config: ClusterMember) -> None:
    """Raise ConfigError if this process is an evaluator or one of several workers."""
    if config.task_type == EVALUATOR:
        raise ConfigError(
            "train: TF_CONFIG makes this process an evaluator. Call evaluate, or "
            "train_and_evaluate, which trains or evaluates by the role of the process."
        )
    if config.num_worker_replicas > 1:
        raise ConfigError(
            f"train: TF_CONFIG names {config.num_worker_replicas} processes that "
            "train, but estimax does not train one model in several processes. Start "
            "the chief alone, or the chief and an evaluator."
        )


def _parsed(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"TF_CONFIG in the environment is not JSON: {error}. Unset it to run "
            "without a cluster."
        ) from None
    if not isinstance(config, dict):
        raise ConfigError(f"TF_CONFIG must be a JSON object, got {text!r}.")
    return config


def _jobs(config: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    jobs = config.get("cluster") or {}
    if not isinstance(jobs, dict) or not all(
        isinstance(j, list) for j in jobs.values()
    ):
        raise ConfigError(
            "TF_CONFIG: cluster must map each job to a list of addresses, got "
            f"{jobs!r}."
        )
    return {job: tuple(addresses) for job, addresses in jobs.items()}


def _alone(
    config: Mapping[str, Any], task: Mapping[str, Any], shared: dict[str, Any]
) -> Cluster:
    task_type, index = task.get("type", WORKER), _index(task.get("index", 0))
    if (task_type, index) != (WORKER, 0):
        raise ConfigError(
            f"TF_CONFIG: {_LOCAL} is task worker 0, got {task_type} {index}. Give "
            "the cluster as well."
        )
    return Cluster(
        master=config.get("session_master", ""),
        evaluation_master=config.get("eval_session_master", ""),
        **shared,
    )


def _member(
    config: Mapping[str, Any],
    jobs: dict[str, tuple[str, ...]],
    task: Mapping[str, Any],
    shared: dict[str, Any],
) -> Cluster:
    chief = _chief_of(jobs)
    task_type, index = _task(jobs, task, chief)
    if task_type == EVALUATOR:
        return Cluster(
            task_type=EVALUATOR,
            task_id=index,
            is_chief=False,
            evaluation_master=config.get("eval_session_master", ""),
            num_worker_replicas=0,
            global_id_in_cluster=None,
            **shared,
        )
    is_single = sum(map(len, jobs.values())) == 1
    address = "" if is_single else f"grpc://{jobs[task_type][index]}"
    return Cluster(
        cluster_spec=jobs,
        task_type=task_type,
        task_id=index,
        is_chief=task_type == chief,
        master=config.get("session_master", address),
        num_worker_replicas=len(jobs.get(WORKER, ())) + 1,
        num_ps_replicas=len(jobs.get(PS, ())),
        global_id_in_cluster=_global_id(jobs, task_type, index, chief),
        **shared,
    )


def _chief_of(jobs: Mapping[str, tuple[str, ...]]) -> str:
    if CHIEF in jobs and MASTER in jobs:
        raise ConfigError(
            "TF_CONFIG: cluster has a chief and a master, which are the same role; "
            "keep the chief."
        )
    chief = MASTER if MASTER in jobs else CHIEF
    found = len(jobs.get(chief, ()))
    if found != 1:
        raise ConfigError(f"TF_CONFIG: cluster needs exactly one {chief}, got {found}.")
    return chief


def _task(
    jobs: Mapping[str, tuple[str, ...]], task: Mapping[str, Any], chief: str
) -> tuple[str, int]:
    if "type" not in task or "index" not in task:
        raise ConfigError(
            "TF_CONFIG: with a cluster, task needs a type and an index, got "
            f"{dict(task)!r}."
        )
    task_type, index = str(task["type"]), _index(task["index"])
    if task_type == EVALUATOR:
        if chief == MASTER:
            raise ConfigError(
                "TF_CONFIG: a cluster with a master evaluates there; an evaluator "
                "needs a chief instead."
            )
        return task_type, index
    if task_type == PS:
        raise ConfigError(
            "TF_CONFIG: this process is a parameter server (ps), which estimax does "
            "not use: the process that trains holds the model. Start the chief only."
        )
    if task_type not in jobs:
        raise ConfigError(
            f"TF_CONFIG: the cluster has no job {task_type!r}"
            f"{did_you_mean(task_type, [*jobs, EVALUATOR])}"
        )
    if index >= len(jobs[task_type]):
        raise ConfigError(
            f"TF_CONFIG: task index {index} is out of range, the cluster has "
            f"{len(jobs[task_type])} {task_type} tasks."
        )
    return task_type, index


def _index(given: Any) -> int:
    try:
        index = int(given)
    except (TypeError, ValueError):
        index = -1
    if index < 0:
        raise ConfigError(f"TF_CONFIG: task index must be 0 or more, got {given!r}.")
    return index


def _global_id(
    jobs: Mapping[str, tuple[str, ...]], task_type: str, index: int, chief: str
) -> int:
    """Return an index over all jobs: the chief, others by name, parameter servers."""
    others = sorted(job for job in jobs if job not in (chief, PS))
    order = [chief, *others, PS]
    before = order[: order.index(task_type)]
    return sum(len(jobs.get(job, ())) for job in before) + index
