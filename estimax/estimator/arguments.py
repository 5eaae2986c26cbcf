"""The arguments of an Estimator's methods: checked, and completed."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from estimax import checkpoints
from estimax.core.errors import ConfigError, SpecError
from estimax.estimator.feeding import Feed
from estimax.estimator.run_config import RunConfig
from estimax.hooks import Hook
from estimax.staging.recording import Origin

_log = logging.getLogger("estimax")


def with_model_dir(
    config: RunConfig | None, model_dir: str | os.PathLike[str] | None
) -> RunConfig:
    """The config with the model_dir that it or the argument names, or a new one."""
    if config is not None and not isinstance(config, RunConfig):
        raise ConfigError(
            f"Estimator: config must be a RunConfig, got {type(config).__name__}."
        )
    config = config or RunConfig()
    given = os.fspath(model_dir) if model_dir else None
    if given and config.model_dir and given != config.model_dir:
        raise ConfigError(
            f"Estimator: model_dir is {given!r} here and {config.model_dir!r} in the "
            "RunConfig. Give one of them."
        )
    resolved = given or config.model_dir
    if resolved is None:
        resolved = tempfile.mkdtemp(prefix="estimax-")
        _log.warning("no model_dir given: using the temporary folder %s", resolved)
    return config.replace(model_dir=resolved)


def check_steps(**given: int | None) -> None:
    """Refuse counts of steps that cannot be meant."""
    values = {name: value for name, value in given.items() if value is not None}
    if len(values) > 1:
        raise SpecError(
            "train: give steps (that many more) or max_steps (up to that many in all), "
            "not both."
        )
    for name, value in values.items():
        check_count(name, value)


def check_count(name: str, value: Any) -> None:
    """Refuse what is neither a number of steps nor None."""
    if value is None:
        return
    if not isinstance(value, Integral):
        raise SpecError(
            f"{name} must be a whole number, got {value!r}. Use int(…) or //."
        )
    if value <= 0:
        raise SpecError(f"{name} must be > 0 or None, got {value}.")


def checked_hooks(hooks: Sequence[Hook] | None, where: str = "") -> tuple[Hook, ...]:
    """The hooks, which must be some."""
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(
            f"{where}hooks must be a list of Hooks, got {type(hooks).__name__}."
        )
    every = tuple(hooks or ())
    for hook in every:
        if isinstance(hook, type):
            raise TypeError(
                f"{where}hooks must be Hooks, got the class {hook.__name__}. Call it: "
                f"{hook.__name__}(…)."
            )
        if not isinstance(hook, Hook):
            raise TypeError(
                f"{where}hooks must be Hooks, got {type(hook).__name__}. Subclass "
                "ex.hooks.Hook and override what you need."
            )
    return every


def needed(feed: Feed, what: str) -> dict[Origin, Any]:
    """The first batch, where there must be one."""
    if feed.first is None:
        raise SpecError(
            f"{what}: the input_fn gave no data; check its files and filters."
        )
    return feed.first


def check_folder(model_dir: str) -> None:
    """Refuse to start from nothing in the folder of a model that TensorFlow trained."""
    found = checkpoints.tensorflow_checkpoint(model_dir)
    if found is not None:
        raise ConfigError(
            f"train: {model_dir!r} holds a checkpoint of TensorFlow's. Use a new "
            f"model_dir, and go on from it with warm_start_from={found!r}."
        )
