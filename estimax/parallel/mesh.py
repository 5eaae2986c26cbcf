"""The mesh: the devices that share one step, along one axis.

    mesh = make_mesh(devices=None)     # None for one device: no mesh is needed

The batch is split over the axis, and so are the rows of large tables. A mesh may hold
the devices of several processes; every process then runs the same program.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from estimax.core.errors import ConfigError

AXIS = "data"
_spec: Any = PartitionSpec  # its constructor is not annotated
BY_ROW: PartitionSpec = _spec(AXIS)  # the first axis is split over the devices
EVERYWHERE: PartitionSpec = _spec()  # every device holds the whole

Devices = int | str | Sequence[Any] | None


def make_mesh(devices: Devices = None, mesh: Mesh | None = None) -> Mesh | None:
    """Return a mesh with one axis, or None if a single device is to be used.

    Args:
      devices: How many of the devices of this process to use, "all", or a list of
        devices. None is the default: all devices of an accelerator; one device of a
        CPU, whose further devices are simulated; and all devices of all processes
        after `jax.distributed.initialize`.
      mesh: A mesh, whose devices are used in its order. Its axes are joined to one.

    Raises:
      ConfigError: Both are given, there are fewer devices, or the devices of a process
        are not neighbours in the mesh.
    """
    if mesh is not None and devices is not None:
        raise ConfigError("RunConfig: give devices or mesh, not both.")
    chosen = _chosen(devices) if mesh is None else list(mesh.devices.flat)
    if len(chosen) == 1 and chosen[0] == _default_device():
        return None
    made = Mesh(np.array(chosen), (AXIS,))
    process_block(made)
    return made


def split_sharding(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Return the sharding of an array of which one axis is split over the devices."""
    return NamedSharding(mesh, _spec(*[None] * axis, AXIS))


def whole_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds."""
    return NamedSharding(mesh, EVERYWHERE)


def with_sharding(tree: Any, shardings: Any) -> Any:
    """Fix the shardings of arrays: one for all, or a tree of them. Inside jit."""
    constrain: Any = jax.lax.with_sharding_constraint  # not annotated
    return constrain(tree, shardings)


def one_at_a_time(function: Any, mesh: Mesh | None) -> Any:
    """Return a function of `jax.jit` that waits for its result on simulated devices.

    The simulated devices of a CPU share one pool of threads. The batches of an
    evaluation do not depend on each other, so XLA starts several at once. On a busy
    machine, the collectives of one then held all threads while they waited for devices
    that had none, until XLA aborted the process (seen with jax 0.10.2).
    """
    here = [] if mesh is None else mesh.local_devices
    if len(here) < 2 or here[0].platform != "cpu":
        return function

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]

    waiting: Any = call
    waiting.lower, waiting.trace = function.lower, function.trace
    return waiting


def process_block(mesh: Mesh) -> tuple[int, int]:
    """Return which block of the mesh's axis is this process's, and of how many blocks.

    Every process must hold equally many neighbouring devices.
    """
    owners = [device.process_index for device in mesh.devices.flat]
    order = list(dict.fromkeys(owners))
    each = len(owners) // len(order)
    if owners != [owner for owner in order for _ in range(each)]:
        raise ConfigError(
            "RunConfig: the devices of a process must be neighbours in the mesh, and "
            f"equally many for each process; the owners are {owners}."
        )
    here = jax.process_index()
    if here not in order:
        raise ConfigError(
            f"RunConfig: the mesh has no device of this process ({here}). Every "
            "process that trains needs one."
        )
    return order.index(here), len(order)


def _chosen(devices: Devices) -> list[Any]:
    if devices is None:
        if jax.process_count() > 1:
            return list(jax.devices())
        is_cpu = jax.default_backend() == "cpu"
        return [_default_device()] if is_cpu else list(jax.local_devices())
    if isinstance(devices, str):
        if devices != "all":
            raise ConfigError(
                'RunConfig: devices must be a number, "all" or a list of devices, got '
                f"{devices!r}."
            )
        return list(jax.devices())
    if isinstance(devices, int):
        return _first(devices)
    return list(devices)


def _first(count: int) -> list[Any]:
    """Return `count` devices of each process."""
    there = jax.local_device_count()
    if not 1 <= count <= there:
        raise ConfigError(
            f"RunConfig: devices must be between 1 and {there}, the number of devices "
            f"of this process, got {count}. To simulate devices on a CPU, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={max(count, 2)} before "
            "the program starts."
        )
    if jax.process_count() == 1 and count == 1:
        return [_default_device()]
    return [
        device
        for process in range(jax.process_count())
        for device in jax.local_devices(process_index=process)[:count]
    ]


def _default_device() -> Any:
    """Return the device that JAX uses if none is named."""
    config: Any = jax.config  # its settings are not annotated
    chosen = config.jax_default_device
    if chosen is None:
        return jax.local_devices()[0]
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen
