"""The devices of an Estimator, from its `RunConfig`.

    devices = Devices(config)
    devices.mesh                      # None for one device
    devices.placing.pack(prepared)    # a batch, split over the devices

Nothing is asked of JAX before the first use, because `jax.distributed` must be
initialized before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property, partial

import jax
from jax.sharding import Mesh

from estimax.estimator.run_config import RunConfig
from estimax.parallel import Placement, TableRule, make_mesh
from estimax.staging import host_plan as plans
from estimax.staging.placing import BatchPlacing

_log = logging.getLogger("estimax")


class Devices:
    """Which devices share every step, and what each of them holds.

    With `is_alone`, only those of this process, although it is one of a cluster: it
    evaluates and predicts by itself.
    """

    def __init__(self, config: RunConfig, *, is_alone: bool = False) -> None:
        self._config = config
        self._is_alone = is_alone and config.num_worker_replicas > 1
        self._advised: set[str] = set()

    @cached_property
    def mesh(self) -> Mesh | None:
        """The devices that share every step; None for one device."""
        if self._config.debug is True:  # a model_fn that is not compiled uses one
            return None
        if self._is_alone:
            is_cpu = jax.default_backend() == "cpu"
            return make_mesh(jax.local_devices()[: 1 if is_cpu else None])
        return make_mesh(self._config.devices, self._config.mesh)

    @cached_property
    def place(self) -> Callable[..., Placement] | None:
        """A function that decides which tables are sharded; None for one device."""
        if self.mesh is None:
            return None
        above, named = self._config.shard_tables_above, self._config.shard_tables
        return partial(Placement.of, self.mesh, TableRule(above, named))

    @cached_property
    def placing(self) -> BatchPlacing:
        """How batches reach the devices."""
        return BatchPlacing(self.mesh)

    def advise(self, batch: plans.RawBatch) -> None:
        """Log a warning, once, if batches of this size cannot be split."""
        advice = self.placing.advice(plans.batch_size(batch))
        if advice and advice not in self._advised:
            self._advised.add(advice)
            _log.warning("%s", advice)
