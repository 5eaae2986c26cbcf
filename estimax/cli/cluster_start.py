"""The order in which the processes of a cluster begin to train a run.

    with chief_first(run) as is_first:
        ...          # the chief first, then the others at the same time

The chief claims the model directory and saves the statistics of the data there. The
others begin when it has done so: they would otherwise read what an earlier run left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from estimax import config

if TYPE_CHECKING:  # loads jax
    from estimax.estimator import RunConfig


@contextmanager
def chief_first(run: config.Run) -> Iterator[bool]:
    """Run the block in the chief of a cluster, and then in the other processes.

    Yields:
      Whether this process writes what all have in common: it is the chief, or there is
      no cluster.

    Raises:
      ConfigError: TF_CONFIG or `run.cluster` describes no cluster.
      ClusterError: The other processes cannot be reached.
    """
    if "TF_CONFIG" not in os.environ and run.run.cluster is None:
        yield True  # without loading jax
        return
    settings = _settings(run)
    peers = settings.connect()
    if peers is None:  # alone, or an evaluator
        yield settings.is_chief
        return
    with peers.together():
        if not peers.is_chief:
            peers.wait("chief first")
        yield peers.is_chief
        if peers.is_chief:
            peers.wait("chief first")


def _settings(run: config.Run) -> RunConfig:
    from estimax.config.build import run_config_call
    from estimax.config.expressions import evaluate

    made: RunConfig = evaluate(run_config_call(run))
    return made
