"""One call of an Estimator: its processes, seed, devices, input and context.

    with Session(config, ModeKeys.EVAL, input_fn) as session:
        program = estimator._program(session)      # recorded and compiled once
        results, *_ = session.evaluate(program, loaded, hooks, steps=None)

An Estimator holds settings, and its caches of programs and variables. What belongs to
one call is here, so that calls in several threads do not see each other's values.
"""

from __future__ import annotations

import logging
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import jax

from estimax import checkpoints, training
from estimax import hooks as stock
from estimax.core.display import format_path
from estimax.core.errors import InputError
from estimax.core.spec import Mode, ModeKeys
from estimax.core.state import TrainState
from estimax.estimator import agreement, arguments
from estimax.estimator import results as reports
from estimax.estimator.model_dir import ended_at, explaining_nan
from estimax.estimator.restore import (
    Loaded,
    latest_checkpoint,
    restore_state,
    warm_start_state,
)
from estimax.estimator.run_config import RunConfig
from estimax.estimator.training_hooks import (
    board_hook,
    finishing_saves,
    training_hooks,
)
from estimax.hooks import Hook, RunContext
from estimax.hooks.guards import OutOfRangeIdsHook
from estimax.parallel import Placement, make_mesh
from estimax.parallel.agreement import Explain
from estimax.parallel.processes import Processes
from estimax.staging import host_plan as plans
from estimax.staging.batches import PlacedBatch
from estimax.staging.feed import Feed
from estimax.staging.large_pages import ask_for_large_pages
from estimax.staging.packing import pack
from estimax.staging.trace import Origin
from estimax.storage import forks
from estimax.training.signals import stopping_on_signals

_log = logging.getLogger("estimax")


@contextmanager
def join_cluster(config: RunConfig) -> Iterator[Processes | None]:
    """Train with the other processes of the cluster, if there is one."""
    forks.check("train")
    peers = config.connect()
    with peers.together() if peers else nullcontext():
        yield peers


def placement_of(config: RunConfig, mode: Mode) -> Placement:
    """Return the devices that share every step of a mode.

    A process of a cluster evaluates and predicts by itself, on its own devices. JAX is
    asked for devices only here, because `jax.distributed` must be initialized before.
    """
    if config.debug is True:  # a model_fn that is not compiled uses one device
        return Placement()
    if mode != ModeKeys.TRAIN and config.num_worker_replicas > 1:
        is_cpu = jax.default_backend() == "cpu"
        mesh = make_mesh(jax.local_devices()[: 1 if is_cpu else None])
    else:
        mesh = make_mesh(config.devices, config.mesh)
    if mesh is None:
        return Placement()
    return Placement(mesh, config.shard_tables_above, config.shard_tables)


class Session:
    """What belongs to one call of train, evaluate, predict or export.

    Args:
      config: The settings of the Estimator.
      mode: What the call does: TRAIN, EVAL or PREDICT.
      call: Returns what the `input_fn` returns. None if the call reads no data.
      is_eager: Whether to run the model without jit; None follows the config.
      peers: The processes of a cluster that train together.
      has_share: In a cluster, whether `call` returns the share of this process.
      checkpoint: The data continues at its position.
      seed: The seed of the call; None takes the seed of the config.
    """

    def __init__(
        self,
        config: RunConfig,
        mode: Mode,
        call: Callable[[], Any] | None = None,
        *,
        is_eager: bool | None = None,
        peers: Processes | None = None,
        has_share: bool = False,
        checkpoint: checkpoints.Checkpoint | None = None,
        seed: int | None = None,
    ) -> None:
        forks.check(f"the Estimator, in mode {mode!r}")
        self.config = config
        self.mode = mode
        self.is_eager = config.debug is True if is_eager is None else is_eager
        self.peers = peers
        self.seed = config.tf_random_seed if seed is None else seed
        self.placement = placement_of(config, mode)
        self._feed = None
        if call is not None:
            self._feed = self._open_feed(call, checkpoint, has_share)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        if self._feed is not None:
            self._feed.__exit__(*error)

    @property
    def feed(self) -> Feed:
        """The batches of the call."""
        assert self._feed is not None, "an export reads no data"
        return self._feed

    def first_batch(self) -> dict[Origin, Any]:
        """Return the first raw batch of a call that has data."""
        first = self.feed.first
        assert first is not None, "the caller has checked that there is data"
        return first

    def has_data(self) -> bool:
        """Return whether there is a first batch.

        In a cluster all processes have one, or none has.
        """
        has_first = self.feed.first is not None
        if self.peers is None:
            return has_first
        found = self.peers.gather("data", has_first)
        if any(found) and not all(found):
            empty = [i for i, has_data in enumerate(found) if not has_data]
            raise InputError(
                "train: the input_fn gave no data in "
                f"{', '.join(map(self.peers.name_of, empty))}; "
                f"{len(found) - len(empty)} of {len(found)} processes have data. A "
                "step needs a part of the batch from every process: give each some "
                "files or rows, or use fewer processes."
            )
        return has_first

    def debugging(self) -> Any:
        """Return a context in which a model that is debugged runs without jit."""
        return jax.disable_jit() if self.config.debug is True else nullcontext()

    def batches(
        self, program: training.Program, *, pads: bool = False
    ) -> Iterator[PlacedBatch]:
        """Return the batches, prepared and put on the devices by a thread."""
        depth = self.config.prefetch_batches
        return self.feed.batches(program.plan, depth=depth, pads=pads)

    def start_state(
        self,
        program: training.Program,
        checkpoint: checkpoints.Checkpoint | None,
        warm_start: checkpoints.WarmStartSettings | None,
    ) -> TrainState:
        """Return the state of the checkpoint, or else a new or warm-started state."""
        arrays = pack(program.plan.prepare(self.first_batch()))
        seed = secrets.randbits(31) if self.seed is None else self.seed
        key = jax.random.key(seed)
        with self.debugging():
            if checkpoint is not None:
                if warm_start is not None:
                    where = format_path(str(self.config.model_dir))
                    _log.info("no warm start: %s has a checkpoint", where)
                return restore_state(program, key, arrays, checkpoint)
            if warm_start is None:
                return program.init(key, arrays)
            state = program.init_unplaced(key, arrays)
        state = warm_start_state(state, warm_start)
        # Compared on one device: on a mesh no process would hold all rows.
        agreement.compare_warm_starts(self.peers, state)
        placed: TrainState = program.placement.put(state)
        return replace(placed, row_counts=program.placement.row_counts)

    def train(
        self,
        program: training.Program,
        state: TrainState,
        hooks: Sequence[Hook],
        listeners: Sequence[stock.CheckpointSaverListener],
        *,
        last_step: int | None,
        params: Any,
        explain: Explain,
        replay: Callable[[], training.NonFinite | None],
    ) -> RunContext:
        """Train from a state until the data ends, a hook stops it or `last_step`.

        `explain` returns what the model depends on, and `replay` trains again to find
        what made the loss NaN, both for error messages.
        """
        ask_for_large_pages((state.tables, state.slots))
        start = int(state.step)
        context = RunContext(
            step=start,
            input_advice=lambda: self.feed.advice,
            input_state=self.feed.position,
            logged=program.logged,
            peers=self.peers,
            requests=self.feed.requests,
        )
        every_hook = training_hooks(
            self.config,
            program.spec,
            hooks,
            listeners,
            last_step=last_step,
            board=board_hook(self.config, program, params),
        )
        # With "nan" the step has reported the value itself. The processes of a cluster
        # could only replay together, and some of them may have failed.
        can_replay = self.config.debug != "nan" and self.peers is None
        # Saves are finished first, so that a replay after a NaN reads the checkpoint
        # that was still being written when the loss went wrong.
        with (
            self.debugging(),
            explaining_nan(replay if can_replay else lambda: None),
            stopping_on_signals(context),
            finishing_saves(every_hook),
        ):
            stacks = self.feed.stacks(
                program.plan,
                depth=self.config.prefetch_batches,
                length=self._loop_length(program),
                limit=None if last_step is None else last_step - start,
            )
            training.run(
                program,
                state,
                agreement.comparing_steps(
                    self.peers, program, context, stacks, explain
                ),
                every_hook,
                context,
                waited=lambda: self.feed.waited_seconds,
            )
            if context.interrupted_by:
                saved = latest_checkpoint(str(self.config.model_dir))
                reports.log_interruption(context, saved)
            if self.peers is not None:
                self.peers.end_together()
        if self.peers is not None and context.interrupted_by:
            # The signal arrived in another process, and ends this one as well.
            raise SystemExit(128 + signal.SIGTERM)
        return context

    def evaluate(
        self,
        program: training.Program,
        loaded: Loaded,
        hooks: Sequence[Hook] | None,
        steps: int | None,
    ) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Return the results as Python numbers, the metrics, and the examples read."""
        context = RunContext(step=loaded.step)
        given = arguments.hooks_of(hooks)
        results, measured = training.evaluate(
            program,
            loaded.variables,
            # A hook may request values of a layer, which have no mask.
            self.batches(program, pads=not given),
            (
                *given,
                *program.spec.evaluation_hooks,
                OutOfRangeIdsHook(),
            ),
            context,
            steps=steps,
        )
        numbers = reports.plain_numbers(results) | {"global_step": loaded.step}
        return numbers, measured, context.examples

    def advise(self, given: set[str]) -> None:
        """Log a warning if batches cannot be split; each advice in `given` is known."""
        size = plans.batch_size(self.first_batch())
        advice = self.placement.batch_advice(size)
        if advice and advice not in given:
            given.add(advice)
            _log.warning("%s", advice)

    def _loop_length(self, program: training.Program) -> int | None:
        if self.config.debug or self.config.accumulate_steps > 1:
            # Steps that are debugged, or made of several batches, run one at a time.
            return 1
        # `iterations_per_loop` is the most steps of a loop, so fewer are allowed: a
        # step of a small image network took 60 ms alone and 1,182 ms in a loop of 10.
        return 1 if program.is_slow_in_loops else self.config.iterations_per_loop

    def _open_feed(
        self,
        call: Callable[[], Any],
        checkpoint: checkpoints.Checkpoint | None,
        has_share: bool,
    ) -> Feed:
        """Open the input; it continues at the position of `checkpoint`, if given."""
        config, peers = self.config, self.peers
        resume, is_train = config.resume_input, self.mode == ModeKeys.TRAIN
        position, has_ended, epochs_of = None, False, ()
        if checkpoint is not None and resume != "restart":
            readers = (peers.index, peers.count) if peers and has_share else (0, 1)
            position, epochs_of = arguments.saved_position(checkpoint.extra, *readers)
            has_ended = ended_at(str(config.model_dir)) == checkpoint.step
            if peers is not None:  # others may see an older file on a network drive
                has_ended = bool(peers.broadcast("ended", has_ended))
        return Feed(
            call,
            position=position,
            is_checked=resume != "unchecked",
            has_ended=has_ended,
            may_start_over=resume != "refuse",
            seed=self.seed,
            with_labels=self.mode != ModeKeys.PREDICT,
            parts=config.accumulate_steps if is_train else 1,
            placement=self.placement,
            peers=peers,
            has_share=has_share,
            epochs_of=epochs_of,
        )
