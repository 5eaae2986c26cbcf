"""`RunConfig`: where a run writes, how often it saves and logs, and how it computes.

`RunConfig` also accepts the settings of tf.estimator that JAX has no use for. Those
that would have changed the result must be None; the others are ignored with a warning.
The lists are at the end of this file.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, get_args

from jax.sharding import Mesh

from estimax.core.errors import ConfigError, did_you_mean
from estimax.parallel import processes
from estimax.parallel.cluster import Cluster, ClusterMember, resolve_cluster
from estimax.storage.compilation_cache import AUTO

ResumeInput = Literal["exact", "refuse", "restart", "unchecked"]
_log = logging.getLogger("estimax")
_UNSET: Any = object()
DEFAULT_CHECKPOINT_SECS = 600
PRECISIONS = ("float32", "bfloat16")
# A table of 1,000,000 rows of 32 numbers. Smaller ones are faster if every device has a
# copy, and their slots fit beside them.
SHARDED_BYTES = 128 << 20


@dataclass(frozen=True, init=False, repr=False)
class RunConfig(ClusterMember):
    """Settings of a run: folder, checkpoints, logging, input, precision.

    Pass it as `config` to an Estimator. Names and defaults are those of tf.estimator's
    RunConfig; the parameters after the `*` are new. A config cannot be changed;
    `replace` makes a changed copy. The TF_CONFIG environment variable is read when the
    config is made, and properties such as `task_type` and `is_chief` tell its content.
    Several processes that train one model are connected when `train` begins.

    Args:
      model_dir: Folder for checkpoints, summaries and exports. By default the folder
        that TF_CONFIG names, else a temporary one.
      tf_random_seed: Seed of the initial values and of the model's random numbers.
        None takes a new seed for every new model.
      save_summary_steps: Steps between two summaries; 0 or None writes none.
      save_checkpoints_steps: Steps between two checkpoints.
      save_checkpoints_secs: Seconds between two checkpoints. Give one of the two; with
        neither given, it is 600 seconds. Both None, or 0, saves no checkpoints.
      session_config: Must be None. JAX has no sessions.
      keep_checkpoint_max: Number of newest checkpoints to keep; 0 or None keeps all.
      keep_checkpoint_every_n_hours: Keep one checkpoint of every so many hours for
        good, in addition to `keep_checkpoint_max`.
      log_step_count_steps: Steps between two log lines with loss and speed; None logs
        none.
      train_distribute: Must be None. Use `devices` or `cluster` instead of a strategy.
      device_fn: Must be None. There are no ops to place.
      protocol: Must be None. There are no servers.
      eval_distribute: Must be None, as `train_distribute`.
      experimental_distribute: Must be None, as `train_distribute`.
      experimental_max_worker_delay_secs: Has no effect.
      session_creation_timeout_secs: Seconds that a process of a cluster waits at the
        start for the others.
      checkpoint_save_graph_def: Has no effect.
      iterations_per_loop: Most steps to run in one compiled loop when no hook is called
        in between. None chooses by the size of a batch; 1 runs single steps. On a CPU,
        models with convolutions always run single steps, because XLA is slow in loops.
      prefetch_batches: Batches to prepare ahead of the step.
      compilation_cache_dir: Folder in which compiled programs are kept for the next
        start. "auto" is `estimax/compiled` in the cache folder of the user
        (`$XDG_CACHE_HOME` or `~/.cache` on Linux), where old programs are removed above
        512 MB; a folder that JAX's own setting names is used instead. None keeps none.
        The setting is JAX's and applies to the whole process.
      debug: True runs the `model_fn` without jit, so that print and pdb work. "nan"
        checks every step and raises an error that names the first value that is not
        finite.
      resume_input: Where the data continues when training resumes. "exact", or True,
        continues after the last batch trained on. For a Dataset, a list or an iterator
        with `get_state` and `set_state` this takes no time; a plain iterator is read up
        to that batch. After a normal end only the same Dataset continues; other input
        is read from its beginning. If the files or arrays of a Dataset have changed
        after an interruption, ChangedInputError is raised. "refuse" raises in both
        cases, and for a plain iterator. "restart", or False, reads the data from its
        beginning in every call; model and step are kept. "unchecked" is "exact" without
        comparing the data: use it when only rows not yet read have changed.
      average_decay: Decay of an exponential moving average of every trained variable,
        in [0, 1), e.g. 0.999. None keeps no averages. An embedding table then costs
        time and memory of its full size at every step.
      use_averages: Whether evaluation, prediction and export use the averages in place
        of the variables, if there are any.
      precision: "float32", or "bfloat16" to let layers compute in bfloat16. Variables,
        optimizer state and the loss stay float32.
      accumulate_steps: Batches per step. The gradients of n batches are averaged over
        their examples before one update, in the memory of one batch. A step is an
        update, so each step reads n batches.
      devices: The devices that share every step: a number, "all", or a list of JAX
        devices. The batch is split over them. By default all devices of an accelerator
        are used, and one device of a CPU, whose further devices are simulated; in a
        cluster, all devices of all processes.
      mesh: A `jax.sharding.Mesh` instead of `devices`, to choose their order. The batch
        is split over all of its axes.
      shard_tables_above: Embedding tables of this many bytes or more are sharded by
        row over the devices, so that each holds one part; smaller ones are copied to
        every device. None shards none. With one device it has no effect.
      shard_tables: Exceptions by name: a dict from a regular expression, found in the
        name of a table such as "dnn/city_embedding/embedding_weights", to whether it is
        sharded. The first that is found decides.
      cluster: The processes that train one model, instead of TF_CONFIG: a dict of the
        same content; a dict with the address of process 0 as "coordinator"
        ("host:port"), the number of "processes", and the number of this "process"; or
        "slurm", "k8s", "ompi", "mpi4py" or "auto" to let JAX detect them, which
        connects them at once.
      split_batches: Whether, in a cluster, every process reads the whole training data
        and trains on its part of the rows of each batch, which is the same training as
        in one process. An `input_fn` with the argument `input_context` returns a share
        of the data for its process instead, and so does every `input_fn` if this is
        False.
      lost_after_secs: Seconds without a sign of life after which a process of a cluster
        counts as lost, and the others end. They also end if all of them wait for each
        other in different places for so long. Signs of life come from a Python thread:
        choose more seconds than any single call holds Python's lock (GIL).

    Raises:
      ConfigError: A value is out of range, a setting cannot be used with JAX, both
        checkpoint intervals are given, or TF_CONFIG is not valid. A TF_CONFIG that
        makes this process a parameter server (`ps`) is not valid.

    Example:
      >>> config = RunConfig(model_dir="runs/a", save_checkpoints_steps=500)
      >>> config
      RunConfig(model_dir='runs/a', save_checkpoints_steps=500)
      >>> config.save_checkpoints_secs is None, config.is_chief
      (True, True)
    """

    # Always None, for programs that read these settings of tf.estimator.
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
    devices: int | str | Sequence[Any] | None
    mesh: Mesh | None
    shard_tables_above: int | None
    shard_tables: tuple[tuple[str, bool], ...]
    session_creation_timeout_secs: float
    cluster: str | Mapping[str, Any] | None
    lost_after_secs: float
    split_batches: bool

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
        compilation_cache_dir: str | os.PathLike[str] | None = AUTO,
        debug: bool | str = False,
        resume_input: ResumeInput | bool = "exact",
        average_decay: float | None = None,
        use_averages: bool = True,
        precision: str = "float32",
        accumulate_steps: int = 1,
        devices: int | str | Sequence[Any] | None = None,
        mesh: Mesh | None = None,
        shard_tables_above: int | None = SHARDED_BYTES,
        shard_tables: Mapping[str, bool] | Sequence[tuple[str, bool]] = (),
        cluster: str | Mapping[str, Any] | None = None,
        lost_after_secs: float = processes.DEFAULT_LOST_AFTER_SECS,
        split_batches: bool = True,
    ) -> None:
        given = locals()
        check_retired({name: given[name] for name in RETIRED})
        resolved = resolve_cluster(
            cluster,
            start_timeout_secs=session_creation_timeout_secs,
            lost_after_secs=lost_after_secs,
        )
        steps, secs = _checkpoint_interval(
            save_checkpoints_steps, save_checkpoints_secs
        )
        values = {
            "model_dir": _model_dir(_path("model_dir", model_dir), resolved),
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
            "devices": devices,
            "mesh": mesh,
            "shard_tables_above": shard_tables_above,
            "shard_tables": tuple(dict(shard_tables).items()),
            "session_creation_timeout_secs": session_creation_timeout_secs,
            "cluster": cluster,
            "lost_after_secs": lost_after_secs,
            "split_batches": split_batches,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_cluster", resolved)
        self._check()

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with other values.

        Setting one of the two checkpoint intervals unsets the other. The content of
        TF_CONFIG is kept as it was when this config was made.

        Args:
          **changes: New values, by the names of the constructor.

        Returns:
          A new RunConfig.

        Raises:
          ConfigError: A name or a value is not valid.

        Example:
          >>> RunConfig().replace(save_checkpoints_steps=10).save_checkpoints_secs
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
        if "cluster" not in changes:
            # Not the present TF_CONFIG, which may have changed.
            object.__setattr__(new, "_cluster", self._cluster)
        return new

    def connect(self) -> processes.Processes | None:
        """Connect the processes of the cluster; nothing is done without one.

        `train` calls it. Call it yourself, in every process, if your program uses JAX
        before it trains: processes can be connected only before that.

        Returns:
          The connected processes; None if this process trains alone.

        Raises:
          ClusterError: The other processes cannot be reached within
            `session_creation_timeout_secs`, or JAX was used before.

        Example:
          >>> RunConfig().connect()
        """
        return processes.connect(
            self._cluster,
            start_timeout_secs=self.session_creation_timeout_secs,
            lost_after_secs=self.lost_after_secs,
        )

    @property
    def saves_checkpoints(self) -> bool:
        """Whether checkpoints are saved at all."""
        return bool(self.save_checkpoints_steps or self.save_checkpoints_secs)

    def __repr__(self) -> str:
        parameters = inspect.signature(RunConfig.__init__).parameters
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.save_checkpoints_secs == DEFAULT_CHECKPOINT_SECS:
            del values["save_checkpoints_secs"]
        shown = [
            f"{name}={value!r}"
            for name, value in values.items()
            if value != parameters[name].default
            and (value is not None or parameters[name].default is not _UNSET)
        ]
        if not self.saves_checkpoints:
            shown.append("save_checkpoints_secs=None")
        if self.cluster_spec or self.task_type != "worker":
            shown.append(f"task={self.task_type} {self.task_id}")
        return f"RunConfig({', '.join(shown)})"

    def _check(self) -> None:
        at_least = {
            "save_summary_steps": 0,
            "save_checkpoints_steps": 0,
            "keep_checkpoint_max": 0,
            "log_step_count_steps": 1,
            "iterations_per_loop": 1,
            "prefetch_batches": 1,
            "accumulate_steps": 1,
            "shard_tables_above": 0,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None:
                _require(isinstance(value, Integral), name, "a whole number", value)
                _require(value >= least, name, f">= {least}", value)
        secs = self.save_checkpoints_secs
        _require(secs is None or secs >= 0, "save_checkpoints_secs", ">= 0", secs)
        hours = self.keep_checkpoint_every_n_hours
        name = "keep_checkpoint_every_n_hours"
        _require(hours is None or hours > 0, name, "> 0", hours)
        decay = self.average_decay
        is_decay = decay is None or 0 <= decay < 1
        _require(is_decay, "average_decay", "at least 0 and below 1", decay)
        is_debug = self.debug in (True, False, "nan")
        _require(is_debug, "debug", 'True, False or "nan"', self.debug)
        for name in ("session_creation_timeout_secs", "lost_after_secs"):
            seconds = getattr(self, name)
            _require(seconds is not None and seconds >= 1, name, ">= 1", seconds)
        seed = self.tf_random_seed
        is_seed = seed is None or isinstance(seed, int)
        _require(is_seed, "tf_random_seed", "an int", seed)
        self._check_devices()
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"RunConfig: no precision {self.precision!r}"
                f"{did_you_mean(self.precision, PRECISIONS)}"
            )

    def _check_devices(self) -> None:
        devices = self.devices
        if isinstance(devices, Sequence) and not isinstance(devices, str):
            is_valid = len(devices) > 0
        else:
            is_number = isinstance(devices, int) and devices >= 1
            is_valid = is_number or devices in (None, "all")
        expected = 'a number of at least 1, "all" or a list of JAX devices'
        _require(is_valid, "devices", expected, devices)
        both = devices is not None and self.mesh is not None
        _require(not both, "devices", "None if mesh is given", devices)
        _require(
            self.mesh is None or isinstance(self.mesh, Mesh),
            "mesh",
            "a jax.sharding.Mesh",
            self.mesh,
        )
        for pattern, _ in self.shard_tables:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"RunConfig: shard_tables has {pattern!r}, which is no regular "
                    f"expression: {error}."
                ) from error


def _require(is_valid: bool, name: str, expected: str, value: Any) -> None:
    if not is_valid:
        raise ConfigError(f"RunConfig: {name} must be {expected}, got {value!r}.")


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
    both = (given, cluster.model_dir)
    if all(both) and len({os.path.abspath(str(path)) for path in both}) > 1:
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


# Settings that would have changed how a model runs. To ignore them could go unnoticed,
# so they raise an error.
_NO_STRATEGIES = (
    "there are no distribution strategies. On one machine write "
    'ex.RunConfig(devices="all"), or a number of devices; on several, TF_CONFIG or '
    "ex.RunConfig(cluster=…)"
)
_REFUSED = {
    "session_config": "JAX has no sessions; set threads and memory with XLA_FLAGS and "
    "XLA_PYTHON_CLIENT_MEM_FRACTION in the environment",
    "train_distribute": _NO_STRATEGIES,
    "device_fn": "there are no ops to place; choose devices with JAX_PLATFORMS or "
    "jax.default_device",
    "protocol": "there are no parameter servers to talk to",
    "eval_distribute": _NO_STRATEGIES,
    "experimental_distribute": _NO_STRATEGIES,
}
# Delays and files of sessions and graphs, with their defaults. They do not change the
# result, so other values only cause a warning.
_IGNORED: dict[str, Any] = {
    "experimental_max_worker_delay_secs": None,
    "checkpoint_save_graph_def": True,
}
RETIRED = (*_REFUSED, *_IGNORED)


def check_retired(given: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings in `_REFUSED`, log a warning for `_IGNORED`."""
    for name, advice in _REFUSED.items():
        if given[name] is not None:
            raise ConfigError(f"RunConfig: {name} cannot be used: {advice}.")
    for name, usual in _IGNORED.items():
        if given[name] != usual:
            _log.warning(
                "RunConfig: %s=%r has no effect: there are no sessions or graphs",
                name,
                given[name],
            )
