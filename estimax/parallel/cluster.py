"""The cluster: which processes train together, and the role of this one.

    TF_CONFIG='{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
                "task": {"type": "worker", "index": 1}}'
    resolve_cluster(None).process_id           # 2, of 3

A cluster is described by the environment variable TF_CONFIG, by a dict of the same
content, by a dict with the address of process 0 ("coordinator"), or by the name of a
system that JAX detects, such as "slurm". The chief counts as a worker and is process 0.
An evaluator is not counted as part of the cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from estimax.core.errors import ClusterError, ConfigError, did_you_mean
from estimax.core.machine import is_address
from estimax.parallel.starting import join_detected

CHIEF, MASTER, WORKER, PS, EVALUATOR = "chief", "master", "worker", "ps", "evaluator"
_LOCAL = "local execution, without a cluster,"
# The systems in which JAX finds out by itself which processes belong together.
DETECTED = ("auto", "slurm", "k8s", "ompi", "mpi4py")
_COORDINATED = ("coordinator", "processes", "process")


@dataclass(frozen=True)
class Cluster:
    """The processes of a job; the default is one process without a cluster."""

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
    # Where process 0 listens, "host:port"; None if JAX has connected the processes.
    coordinator: str | None = None

    @property
    def process_id(self) -> int:
        """The number of this process among those that train; the chief is 0."""
        if self.task_type == WORKER and not self.is_chief:
            return self.task_id + 1
        return 0

    def name_of(self, process: int) -> str:
        """Return the role of a process that trains, such as "worker 0".

        >>> Cluster().name_of(2)
        'worker 1'
        """
        return CHIEF if process == 0 else f"{WORKER} {process - 1}"


class ClusterMember:
    """The properties of a RunConfig that tell its cluster, as in tf.estimator."""

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
        """The index of this process among the processes of its type, from 0."""
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


def resolve_cluster(
    given: str | Mapping[str, Any] | None,
    environ: Mapping[str, str] | None = None,
    *,
    start_timeout_secs: float = 300,
    lost_after_secs: float = 30,
) -> Cluster:
    """Return the cluster that `RunConfig(cluster=…)` or else TF_CONFIG describes.

    A name in `DETECTED` lets JAX detect the processes, and connects them at once, with
    the given time-outs.

    >>> resolve_cluster(None, {}).is_chief
    True
    >>> given = {"coordinator": "10.0.0.1:4000", "processes": 2, "process": 1}
    >>> resolve_cluster(given).task_type
    'worker'
    """
    if given is None:
        text = (os.environ if environ is None else environ).get("TF_CONFIG")
        return Cluster() if text is None else _from_tf_config(_parse_tf_config(text))
    if isinstance(given, str):
        return _from_environment(given, start_timeout_secs, lost_after_secs)
    if not isinstance(given, Mapping):
        raise ConfigError(
            "RunConfig: cluster must be a dict, or the name of a system that JAX "
            f"detects ({', '.join(DETECTED)}), got {given!r}."
        )
    if given.keys() & set(_COORDINATED):
        return _from_coordinator(given)
    return _from_tf_config(given)


def _from_tf_config(config: Mapping[str, Any]) -> Cluster:
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
    """Raise ConfigError if this process is an evaluator."""
    if config.task_type == EVALUATOR:
        raise ConfigError(
            "train: TF_CONFIG makes this process an evaluator. Call evaluate, or "
            "train_and_evaluate, which trains or evaluates by the role of the process."
        )
    if config.task_type not in (CHIEF, MASTER, WORKER):
        raise ConfigError(
            f"train: TF_CONFIG makes this process {config.task_type!r}, which does not "
            "train; expected chief, master or worker."
        )


def check_alone(config: ClusterMember, what: str) -> None:
    """Raise ConfigError if this process is one of several that train together."""
    if config.num_worker_replicas > 1:
        raise ConfigError(
            f"{what}: this process is one of {config.num_worker_replicas} that train "
            "together, and none of them has all of the state. Evaluate checkpoints; "
            "to look at a state, start one process without a cluster."
        )


def _from_coordinator(given: Mapping[str, Any]) -> Cluster:
    """Return the cluster of a dict with the keys `_COORDINATED`."""
    for key in given:
        if key not in _COORDINATED:
            raise ConfigError(
                f"RunConfig: cluster has an unknown key {key!r}"
                f"{did_you_mean(str(key), _COORDINATED)}"
            )
    missing = [key for key in _COORDINATED if key not in given]
    if missing:
        raise ConfigError(
            f"RunConfig: cluster lacks {' and '.join(missing)}. Give the address of "
            "process 0 as coordinator, the number of processes, and the number of "
            "this process, from 0."
        )
    count, process = given["processes"], given["process"]
    if not isinstance(count, int) or not isinstance(process, int):
        raise ConfigError(
            "RunConfig: cluster: processes and process must be whole numbers, got "
            f"{count!r} and {process!r}."
        )
    if not 0 <= process < count:
        raise ConfigError(
            f"RunConfig: cluster: process must be in [0, {count}), got {process}."
        )
    address = _address(str(given["coordinator"]), "RunConfig: cluster: coordinator")
    return _trainer(process, count, coordinator=address)


def _trainer(process: int, count: int, coordinator: str | None) -> Cluster:
    if count == 1:
        return Cluster()
    return Cluster(
        task_type=CHIEF if process == 0 else WORKER,
        task_id=max(process - 1, 0),  # worker 0 is process 1: the chief is not a worker
        is_chief=process == 0,
        num_worker_replicas=count,
        global_id_in_cluster=process,
        coordinator=coordinator,
    )


def _from_environment(
    system: str, start_timeout_secs: float, lost_after_secs: float
) -> Cluster:
    if system not in DETECTED:
        raise ConfigError(
            f"RunConfig: cluster: JAX does not detect {system!r}"
            f"{did_you_mean(system, DETECTED)}"
        )
    # The number of processes is known only after JAX has connected them, so a detected
    # cluster connects here, where others wait until `train`.
    if not jax.distributed.is_initialized():
        try:
            join_detected(
                None if system == "auto" else system,
                start_timeout_secs,
                lost_after_secs=lost_after_secs,
                name_of=Cluster().name_of,
            )
        except ClusterError:
            raise
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"RunConfig: cluster={system!r}: JAX could not connect the processes: "
                f"{error} Start the program under that system before JAX is used, or "
                "name the cluster in TF_CONFIG."
            ) from error
    return _trainer(jax.process_index(), jax.process_count(), coordinator=None)


def _address(text: str, where: str) -> str:
    if not is_address(text):
        raise ConfigError(
            f"{where} must be host:port, such as 10.0.0.1:4000, got {text!r}."
        )
    return text


def _parse_tf_config(text: str) -> dict[str, Any]:
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
    # Only the chief and the workers train. Evaluators read checkpoints, and parameter
    # servers in the TF_CONFIG of an old job take no part.
    count = len(jobs.get(WORKER, ())) + 1
    coordinator = jobs[chief][0] if count > 1 else None
    if coordinator is not None:
        _address(coordinator, f"TF_CONFIG: the address of the {chief}")
    is_single = sum(map(len, jobs.values())) == 1
    address = "" if is_single else f"grpc://{jobs[task_type][index]}"
    return Cluster(
        cluster_spec=jobs,
        task_type=task_type,
        task_id=index,
        is_chief=task_type == chief,
        master=config.get("session_master", address),
        num_worker_replicas=count,
        num_ps_replicas=len(jobs.get(PS, ())),
        global_id_in_cluster=_global_id(jobs, task_type, index, chief),
        coordinator=coordinator,
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
            "not use: the processes that train hold the model, and large tables are "
            "divided among them. Start the chief and the workers only."
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
    """Return an index over all jobs: the chief, others by name, parameter servers.

    An evaluator does not count, so that workers have the same index with and without.
    """
    others = sorted(job for job in jobs if job not in (chief, PS, EVALUATOR))
    order = [chief, *others, PS]
    before = order[: order.index(task_type)]
    return sum(len(jobs.get(job, ())) for job in before) + index
