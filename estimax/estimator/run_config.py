"""How a run goes: where it writes, how often it saves, logs and summarises."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, get_args

from estimax.core.errors import ConfigError, did_you_mean
from estimax.estimator.cluster import Cluster, ClusterMember, read_cluster

ResumeInput = Literal["exact", "refuse", "restart", "unchecked"]
_UNSET: Any = object()
DEFAULT_CHECKPOINT_SECS = 600
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True, init=False)
class RunConfig(ClusterMember):
    """Settings of a run, named and defaulted as tf.estimator's.

    Checkpoints are saved every `save_checkpoints_steps` steps or
    `save_checkpoints_secs` seconds, not both; neither given means every 600 seconds,
    both None (or 0) means never. `keep_checkpoint_max` 0 or None keeps all.

    New here: up to `iterations_per_loop` steps run in one compiled call when no hook
    wants to see them (None: as many as pay, by the size of a batch; 1: each alone);
    `prefetch_batches` batches are made ready ahead; `compilation_cache_dir`
    keeps compiled programs for the next start; `debug` True runs the `model_fn`
    without jit, so that print and pdb work, and "nan" looks at every step and names
    what first was not a number; `resume_input` says what becomes of the data when
    a run resumes (below); `average_decay` keeps an exponential moving average of every
    trained variable (for a table that costs time and memory of its size at every
    step), which evaluation, prediction and export take instead of the variable, unless
    `use_averages` is False; `precision` "bfloat16" lets layers compute in bfloat16
    while variables, optimizer state and the loss stay float32; `accumulate_steps` n
    makes one step of n batches, whose gradients are averaged by their examples before
    the update: a step is an update, and n batches cost the memory of one.

    `resume_input` "exact" (or True) continues behind the last batch trained on: at
    once for a Dataset, a list or an iterator with get_state and set_state; a plain
    iterator is run up to that batch, which costs the time to make them all. If the last
    `train` call was interrupted and a Dataset's files or arrays have changed since,
    that is a `ChangedInputError`; after a call that ended normally, changed data is
    read from its beginning, with a warning. "refuse" raises in both cases, and in place
    of running a plain iterator up. "restart" (or False) starts the data over at every
    call and keeps the model and its step. "unchecked" continues as "exact" does, but
    does not compare the data: for files in which only rows not yet read were corrected.

    Of tf.estimator's settings some mean nothing to JAX, which has no sessions, graphs
    or strategies. session_config, device_fn, protocol, train_distribute,
    eval_distribute and experimental_distribute must be None, as they would have
    changed the run; experimental_max_worker_delay_secs, session_creation_timeout_secs
    and checkpoint_save_graph_def are taken and have no effect.

    The environment's TF_CONFIG is read when a config is made; `task_type`, `is_chief`
    and the like tell what it says. A parameter server (`ps`) is refused.

    >>> RunConfig(save_checkpoints_steps=500).save_checkpoints_secs is None
    True
    """

    # Always None; here for programs that ask.
    session_config: ClassVar[None] = None
    train_distribute: ClassVar[None] = None
    eval_distribute: ClassVar[None] = None
    device_fn: ClassVar[None] = None
    protocol: ClassVar[None] = None

    model_dir: str | None
    tf_random_seed: int | None
    save_summary_steps: int | None
    save_checkpoints_steps: int | None
    save_checkpoints_secs: float | None
    keep_checkpoint_max: int | None
    keep_checkpoint_every_n_hours: float | None
    log_step_count_steps: int | None
    iterations_per_loop: int | None
    prefetch_batches: int
    compilation_cache_dir: str | None
    debug: bool | str
    resume_input: ResumeInput
    average_decay: float | None
    use_averages: bool
    precision: str
    accumulate_steps: int

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _UNSET,
        save_checkpoints_secs: float | None = _UNSET,
        session_config: None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10_000,
        log_step_count_steps: int | None = 100,
        train_distribute: None = None,
        device_fn: None = None,
        protocol: None = None,
        eval_distribute: None = None,
        experimental_distribute: None = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
        *,
        iterations_per_loop: int | None = None,
        prefetch_batches: int = 2,
        compilation_cache_dir: str | os.PathLike[str] | None = None,
        debug: bool | str = False,
        resume_input: ResumeInput | bool = "exact",
        average_decay: float | None = None,
        use_averages: bool = True,
        precision: str = "float32",
        accumulate_steps: int = 1,
    ) -> None:
        given = locals()
        check_retired({name: given[name] for name in RETIRED})
        cluster = read_cluster()
        steps, secs = _checkpoint_interval(
            save_checkpoints_steps, save_checkpoints_secs
        )
        values = {
            "model_dir": _model_dir(_path("model_dir", model_dir), cluster),
            "tf_random_seed": tf_random_seed,
            "save_summary_steps": save_summary_steps,
            "save_checkpoints_steps": steps,
            "save_checkpoints_secs": secs,
            "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "log_step_count_steps": log_step_count_steps,
            "iterations_per_loop": iterations_per_loop,
            "prefetch_batches": prefetch_batches,
            "compilation_cache_dir": _path(
                "compilation_cache_dir", compilation_cache_dir
            ),
            "debug": debug,
            "resume_input": _resume_input(resume_input),
            "average_decay": average_decay,
            "use_averages": use_averages,
            "precision": precision,
            "accumulate_steps": accumulate_steps,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_cluster", cluster)
        self._check()

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with other values; setting one checkpoint interval unsets the other.

        >>> RunConfig().replace(save_checkpoints_steps=10).save_checkpoints_secs is None
        True
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        unknown = changes.keys() - values.keys() - set(RETIRED)
        if unknown:
            name = sorted(unknown)[0]
            raise ConfigError(
                f"RunConfig.replace: no field {name!r}{did_you_mean(name, values)}"
            )
        if changes.get("save_checkpoints_steps") is not None:
            values["save_checkpoints_secs"] = None
        if changes.get("save_checkpoints_secs") is not None:
            values["save_checkpoints_steps"] = None
        new = RunConfig(**(values | changes))
        # As it was when this config was made, whatever the environment says by now.
        object.__setattr__(new, "_cluster", self._cluster)
        return new

    @property
    def saves_checkpoints(self) -> bool:
        """Whether checkpoints are saved at all."""
        return bool(self.save_checkpoints_steps or self.save_checkpoints_secs)

    def _check(self) -> None:
        at_least = {
            "save_summary_steps": 0,
            "save_checkpoints_steps": 0,
            "save_checkpoints_secs": 0,
            "keep_checkpoint_max": 0,
            "log_step_count_steps": 1,
            "iterations_per_loop": 1,
            "prefetch_batches": 1,
            "accumulate_steps": 1,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is None:
                continue
            if name != "save_checkpoints_secs" and not isinstance(value, Integral):
                raise ConfigError(
                    f"RunConfig: {name} must be a whole number, got {value!r}."
                )
            if not value >= least:
                raise ConfigError(f"RunConfig: {name} must be >= {least}, got {value}.")
        hours = self.keep_checkpoint_every_n_hours
        if hours is not None and not hours > 0:
            raise ConfigError(
                f"RunConfig: keep_checkpoint_every_n_hours must be > 0, got {hours}."
            )
        decay = self.average_decay
        if decay is not None and not 0 <= decay < 1:
            raise ConfigError(
                f"RunConfig: average_decay must be at least 0 and below 1, got {decay}."
            )
        if self.debug not in (True, False, "nan"):
            raise ConfigError(
                f'RunConfig: debug must be True, False or "nan", got {self.debug!r}.'
            )
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"RunConfig: no precision {self.precision!r}"
                f"{did_you_mean(self.precision, PRECISIONS)}"
            )
        seed = self.tf_random_seed
        if seed is not None and not isinstance(seed, int):
            raise ConfigError(
                f"RunConfig: tf_random_seed must be an int, got {seed!r}."
            )


def _checkpoint_interval(
    steps: int | None, secs: float | None
) -> tuple[int | None, float | None]:
    if steps is _UNSET and secs is _UNSET:
        return None, DEFAULT_CHECKPOINT_SECS
    steps = None if steps is _UNSET else steps
    secs = None if secs is _UNSET else secs
    if steps is not None and secs is not None:
        raise ConfigError(
            "RunConfig: save_checkpoints_steps and save_checkpoints_secs are both set "
            f"({steps} and {secs}); give one."
        )
    return steps, secs


def _model_dir(given: str | None, cluster: Cluster) -> str | None:
    if given and cluster.model_dir and given != cluster.model_dir:
        raise ConfigError(
            f"RunConfig: model_dir is {given!r} here and {cluster.model_dir!r} in "
            "TF_CONFIG. Give one of them."
        )
    return given or cluster.model_dir


def _resume_input(given: ResumeInput | bool) -> ResumeInput:
    if isinstance(given, bool):
        return "exact" if given else "restart"
    known = get_args(ResumeInput)
    if given not in known:
        raise ConfigError(
            f"RunConfig: unknown resume_input {given!r}"
            f"{did_you_mean(str(given), known)}"
        )
    return given


def _path(name: str, value: str | os.PathLike[str] | None) -> str | None:
    if value is None:
        return None
    if not os.fspath(value):
        raise ConfigError(f"RunConfig: {name} is empty; leave it out or name a folder.")
    return os.fspath(value)


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
