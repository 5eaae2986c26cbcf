"""InputContext: which part of the input a process reads.

def input_fn(input_context=None):
    data = csv_files("train-*.csv")
    return data if input_context is None else input_context.shard(data)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import ConfigError, InputError
from estimax.input.dataset import Dataset

# Who trains; evaluators and parameter servers read no part of the training input.
_TRAINERS = ("chief", "master", "worker")


@dataclass(frozen=True)
class InputContext:
    """Process number `input_pipeline_id` of `num_input_pipelines`.

    >>> context = InputContext(num_input_pipelines=2, input_pipeline_id=1)
    >>> list(context.shard(Dataset.range(5)).batch(9))
    [array([1, 3])]
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.input_pipeline_id < self.num_input_pipelines:
            raise InputError(
                "InputContext: input_pipeline_id must be in [0, "
                f"{self.num_input_pipelines}), got {self.input_pipeline_id}."
            )

    def shard(self, dataset: Dataset) -> Dataset:
        """This process's part: whole files where there are enough, else records."""
        if self.num_input_pipelines == 1:
            return dataset
        return dataset.auto_shard(self.num_input_pipelines, self.input_pipeline_id)

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The batch size of one of the replicas that train together.

        >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(64)
        16
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise InputError(
                f"the batch size {global_batch_size} cannot be divided between "
                f"{self.num_replicas_in_sync} replicas."
            )
        return global_batch_size // self.num_replicas_in_sync

    @staticmethod
    def from_run_config(config: Any) -> InputContext:  # a RunConfig, which is above us
        """The part of the process that a `RunConfig` describes.

        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(num_worker_replicas=3, global_id_in_cluster=1)
        >>> InputContext.from_run_config(config).input_pipeline_id
        1
        """
        count = int(config.num_worker_replicas or 1)
        index = config.global_id_in_cluster
        if index is None or not 0 <= index < count:  # an evaluator reads everything
            return InputContext()
        return InputContext(count, index, count)

    @staticmethod
    def from_tf_config(environment: Mapping[str, str] | None = None) -> InputContext:
        """From TF_CONFIG's cluster and task; alone where there is none.

        >>> cluster = '{"chief": ["a:1"], "worker": ["b:1", "c:1"]}'
        >>> task = '{"type": "worker", "index": 1}'
        >>> InputContext.from_tf_config(
        ...     {"TF_CONFIG": f'{{"cluster": {cluster}, "task": {task}}}'})
        InputContext(num_input_pipelines=3, input_pipeline_id=2, num_replicas_in_sync=3)
        """
        text = (os.environ if environment is None else environment).get("TF_CONFIG")
        try:
            config: dict[str, Any] = json.loads(text or "{}")
            cluster, task = config.get("cluster", {}), config.get("task", {})
            before = [len(cluster.get(kind, ())) for kind in _TRAINERS]
            count, kind = sum(before), task.get("type")
            if not count or kind not in _TRAINERS:
                return InputContext()
            index = sum(before[: _TRAINERS.index(kind)]) + int(task.get("index", 0))
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"TF_CONFIG: expected JSON, {error}: {text!r}."
            ) from error
        return InputContext(count, index, count)
