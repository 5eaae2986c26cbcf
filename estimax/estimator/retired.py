"""Settings of tf.estimator that JAX has no use for, and what to do instead."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from estimax.core.errors import ConfigError

_log = logging.getLogger("estimax")

# Each of these would have changed how a model runs: silence would be a lie.
_REFUSED = {
    "session_config": "JAX has no sessions; threads and memory are XLA's affair, set "
    "with XLA_FLAGS and XLA_PYTHON_CLIENT_MEM_FRACTION in the environment",
    "train_distribute": "strategies are TensorFlow's; devices are a JAX mesh here",
    "device_fn": "there are no ops to place; choose devices with JAX_PLATFORMS or "
    "jax.default_device",
    "protocol": "there are no servers to talk to; processes meet through JAX",
    "eval_distribute": "strategies are TensorFlow's; devices are a JAX mesh here",
    "experimental_distribute": "strategies are TensorFlow's; devices are a JAX mesh "
    "here",
}
# Waiting times and files of things that are gone: nothing is lost without them.
_IGNORED: dict[str, Any] = {
    "experimental_max_worker_delay_secs": None,
    "session_creation_timeout_secs": 7200,
    "checkpoint_save_graph_def": True,
}
RETIRED = (*_REFUSED, *_IGNORED)


def check_retired(given: Mapping[str, Any]) -> None:
    """Refuse settings that cannot be honoured; tell of those that do not matter."""
    for name, advice in _REFUSED.items():
        if given[name] is not None:
            raise ConfigError(f"RunConfig: {name} cannot be used: {advice}.")
    timeout = given["session_creation_timeout_secs"]
    if timeout is not None and timeout <= 0:
        raise ConfigError(
            f"RunConfig: session_creation_timeout_secs must be > 0, got {timeout}."
        )
    for name, usual in _IGNORED.items():
        if given[name] != usual:
            _log.warning(
                "RunConfig: %s=%r has no effect: there are no sessions or graphs",
                name,
                given[name],
            )
