"""The value of `run.cluster`: the processes that train together.

run:
  cluster: {chief: "10.0.0.1:4000", worker: ["10.0.0.2:4000"],
            task: {type: worker, index: 0}}

or the address of process 0 alone, or the name of a system that JAX detects:

  cluster: {coordinator: "10.0.0.1:4000", processes: 3, process: "${env:RANK}"}
  cluster: slurm
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from estimax.config.decode import About

_FIRST = About("The address of process 0, host:port, where the others connect.")
_WORKERS = About("The addresses of the workers; only their number matters.")
_INDEX = About("The number of this process among those of its type.", at_least=0)
_TASK = About("The role of this process; it differs between the processes.")


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The role of a process in a cluster with a chief."""

    type: Annotated[
        Literal["chief", "worker", "evaluator"], About("What the process does.")
    ]
    index: Annotated[int, _INDEX] = 0


@dataclass(frozen=True, kw_only=True)
class MasterTaskConfig:
    """The role of a process in a cluster with a master."""

    type: Annotated[Literal["master", "worker"], About("What the process does.")]
    index: Annotated[int, _INDEX] = 0


@dataclass(frozen=True, kw_only=True)
class ChiefClusterConfig:
    """A cluster whose chief only trains; an evaluator may follow it."""

    chief: Annotated[str, _FIRST]
    worker: Annotated[tuple[str, ...], _WORKERS] = ()
    task: Annotated[TaskConfig, _TASK]


@dataclass(frozen=True, kw_only=True)
class MasterClusterConfig:
    """A cluster whose first process trains and evaluates."""

    master: Annotated[str, _FIRST]
    worker: Annotated[tuple[str, ...], _WORKERS] = ()
    task: Annotated[MasterTaskConfig, _TASK]


@dataclass(frozen=True, kw_only=True)
class CoordinatedClusterConfig:
    """A cluster of numbered processes; process 0 is the chief and evaluates."""

    coordinator: Annotated[str, _FIRST]
    processes: Annotated[int, About("The number of processes that train.", at_least=1)]
    process: Annotated[int, About("The number of this process, from 0.", at_least=0)]


JobsConfig = ChiefClusterConfig | MasterClusterConfig
Detected = Literal["auto", "slurm", "k8s", "ompi", "mpi4py"]
ClusterConfig = Detected | JobsConfig | CoordinatedClusterConfig
