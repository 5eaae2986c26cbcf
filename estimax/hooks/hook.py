"""The hook interface, the context that hooks receive, and the timer that hooks share.

    class PrintLoss(Hook):
        def before_run(self, context):
            return ["loss"]                      # copied from the device for this step
        def after_run(self, context, values):
            print(context.step, values["loss"])

Subclass `Hook` and override the methods you need, as with SessionRunHook. By default a
hook is called at every step. A hook that returns a later step from `next_step` lets the
loop run all steps up to that one in a single compiled call. Hooks with the arguments of
tf.estimator are called as well (`calling.py`).

Also here: the interval check and the repr of the stock hooks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from estimax.core import display
from estimax.core.errors import ConfigError, SpecError
from estimax.core.migration import Retired
from estimax.core.state import TrainState
from estimax.hooks.fetching import (
    STEP_NAMES,
    SessionRunArgs,
    names_in,
    plain_name,
    replace_names,
)
from estimax.parallel.processes import Processes
from estimax.parallel.requests import STOP, Requests, interruption

REMEMBERED_LOSSES = 256

Values = Mapping[str, NDArray[Any] | np.generic]
"""Values that a hook has requested, by name."""
# What `before_run` returns: names in any structure.
Requested = str | Sequence[Any] | Mapping[str, Any] | SessionRunArgs | None


@dataclass
class RunContext:
    """What a hook can read and do while a model runs.

    The Estimator makes one context per `train`, `evaluate` or `predict` call and passes
    it to every method of every hook. Hooks only read its attributes; to end the run,
    call `request_stop`.

    Attributes:
      step: Steps trained so far. In `before_run` the coming step is not counted; in
        `after_run` the step that just ran is.
      state: The training state, None in `evaluate` and `predict`. Its arrays are
        donated to the next step and deleted there: copy the values you keep.
      stop_requested: Whether a hook or a signal has asked the run to end.
      interrupted_by: The signal that asked the run to end, "Ctrl-C" or "SIGTERM"; None
        if there was none. A hook should then end quickly.
      is_waiting: Whether the loop does what a signal may end at once: it waits for
        input, or a checkpoint is evaluated.
      examples: Examples trained on since the call began.
      input_wait: Seconds that the loop has waited for input since the call began.
      input_advice: Function that returns what makes the input slow, if that is known:
        a sentence, or "".
      input_state: Position of the input after the last batch trained on, as saved in
        a checkpoint.
      logged: Values that the model logs and hooks may request: name to kind ("scalar",
        "histogram", "image", "audio/<rate>", "text", "norm" for the norms of layers,
        or, for `ex.log_value`, "value").
      fetcher: Function behind `fetch`, set by the loop. None where nothing can be
        fetched.
      outputs: The loss and the values of `ex.log_value` of the last step, still on the
        device. Hooks request them by name in `before_run` instead.
      peers: The processes of a cluster that train together; None in one process.
      requests: In a cluster, what this process asks the others for.
      agreed: In a cluster, what all processes do at this step.
      losses: The latest 256 pairs (step, loss), one for the last step of each compiled
        loop. The losses are still on the device, so converting one to a number waits
        for its step.

    Example:
      >>> context = RunContext(step=10)
      >>> context.request_stop()
      >>> context.stop_requested
      True
    """

    step: int
    state: TrainState | None = None
    stop_requested: bool = False
    interrupted_by: str | None = None
    is_waiting: bool = False
    examples: int = 0
    input_wait: float = 0.0
    input_advice: Callable[[], str] = lambda: ""
    input_state: Any = None
    logged: Mapping[str, str] = field(default_factory=dict)
    fetcher: Callable[[Sequence[str]], Values] | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    peers: Processes | None = None
    requests: Requests | None = None
    agreed: frozenset[str] = frozenset()
    losses: deque[tuple[int, Any]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_LOSSES)
    )

    def __repr__(self) -> str:
        stop = ", stop_requested=True" if self.stop_requested else ""
        return f"RunContext(step={self.step}, examples={self.examples}{stop})"

    def request_stop(self) -> None:
        """End the run after this step; the other hooks are still called for it.

        In a cluster, all processes end together, up to `prefetch_batches` + 2 steps
        later.
        """
        if self.requests is None:
            self.stop_requested = True
        elif self.interrupted_by:
            self.requests.ask(interruption(self.interrupted_by))
        else:
            self.requests.ask(STOP)

    def fetch(self, names: Sequence[str]) -> Values:
        """Compute values now: variables, and what the model logs for the last batch.

        Use it in `end`, or for a value that is needed rarely. It waits for the device
        and runs the model on the last batch again. To get a value at every call, return
        its name from `before_run`, which needs no extra pass.

        Args:
          names: Names of variables, or of values that the model logs.

        Returns:
          The values by name, as NumPy arrays.

        Raises:
          SpecError: No training step has run yet, or this is not a `train` call.
        """
        if all(plain_name(name) in STEP_NAMES for name in names):
            return {name: np.int64(self.step) for name in names}
        if self.fetcher is None:
            raise SpecError(
                f"a hook asked for {sorted(names)}, but no training step has run yet. "
                "Values can be fetched in train, after the first step."
            )
        return self.fetcher(names)

    graph = Retired("there is no graph; request values by name in before_run")
    original_args = Retired("there is no session; request values in before_run")

    @property
    def session(self) -> RunContext:
        """The context itself, for hooks of tf.estimator that call `session.run`."""
        return self

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute values now, in the form of `session.run`.

        `fetch` does the same for a list of names. See there for what it costs.

        Args:
          fetches: A name, or a list or dict of names.
          feed_dict: Must be None, because there are no placeholders.

        Returns:
          The values in the structure of `fetches`.

        Raises:
          TypeError: `fetches` holds something other than names, or `feed_dict` is
            given.
          SpecError: No training step has run yet, or this is not a `train` call.
        """
        found = self.fetch(names_in(SessionRunArgs(fetches, feed_dict), "session.run"))
        return replace_names(fetches, found.__getitem__)

    def should_stop(self) -> bool:
        """Return `stop_requested`, for hooks of tf.estimator that ask the coordinator.

        Example:
          >>> RunContext(step=0).should_stop()
          False
        """
        return self.stop_requested


@runtime_checkable
class Hook(Protocol):
    """Base class for code that runs between the steps of `train`.

    Use a hook to log, save, evaluate or stop during training. `evaluate` and `predict`
    take hooks as well. Subclass it and override the methods you need. In every phase
    hooks are called in the order of their list.

    Steps are dispatched asynchronously. Only a hook that requests a value waits for the
    device.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> class PrintEveryOther(ex.hooks.Hook):
      ...     def before_run(self, context):
      ...         return ["loss"]
      ...     def after_run(self, context, values):
      ...         print(f"step {context.step}: loss is a {values['loss'].dtype}")
      ...     def end(self, context):
      ...         print(f"done after {context.step} steps")
      ...     def next_step(self, step):
      ...         return step + 2
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> model = model.train(lambda: data, steps=4, hooks=[PrintEveryOther()])
      step 2: loss is a float32
      step 4: loss is a float32
      done after 4 steps
    """

    def begin(self, context: RunContext) -> None:
        """Prepare for a run. Called once, before the first step.

        The training state exists and is restored from a checkpoint if there is one. A
        hook object may be used for several runs: reset its counters here.

        Args:
          context: The context of this run.
        """
        return

    def after_create_session(self, context: RunContext) -> None:
        """Act on the initial state. Called once, after `begin` of every hook.

        `CheckpointSaverHook` saves the first checkpoint here. The name is
        tf.estimator's; there is no session.

        Args:
          context: The context of this run.
        """
        return

    def before_run(self, context: RunContext) -> Requested:
        """Return the names of the values that `after_run` shall receive.

        Called before a step for which the hook is due (see `next_step`).

        Args:
          context: The context of this run. `context.step` does not count the coming
            step.

        Returns:
          Names such as `["loss"]`, or None for no values. A name is "loss",
          "global_step", a variable, a summary, or a value that the model logs with
          `ex.log_value`. A single name, a dict of names and `SessionRunArgs` are
          accepted as well.
        """
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Act after a step for which the hook is due.

        Args:
          context: The context of this run. `context.step` counts the step that just
            ran.
          values: The values requested in `before_run`, by name, as NumPy arrays.
            `values.results` has them in the structure that `before_run` returned.

        Raises:
          StopIteration: A hook may raise it to end the run normally.
        """
        return

    def end(self, context: RunContext) -> None:
        """Finish. Called once, after a run that ended normally.

        A run ends normally when its steps are done, its data has ended, a stop was
        requested or a hook raised StopIteration. After any other error `end` is not
        called.

        Args:
          context: The context of this run.
        """
        return

    def next_step(self, step: int) -> int:
        """Return the step at which the hook is to be called next.

        The compiled loop stops at that step and calls the hook. The default is
        `step + 1`, every step, which compiles loops of one step. Returning a later step
        makes training faster.

        Args:
          step: Steps trained so far.

        Returns:
          A step above `step`; or `step` itself to be called after every compiled loop
          without shortening it, for hooks that act on elapsed time; or `NEVER`.
        """
        return step + 1


NEVER = 2**62
"""What `next_step` returns for a hook that is called only at the start and the end."""


class SecondOrStepTimer:
    """Decide when a hook acts: every `every_steps` steps or `every_secs` seconds.

    Use it in a hook of your own. The first check after construction or `reset` always
    triggers.

    Args:
      every_secs: Seconds between two triggers; 0 triggers at every step.
      every_steps: Steps between two triggers. Exactly one of the two must be given.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: Neither or both of `every_secs` and `every_steps` are given, or
        `every_secs` is below 0 or `every_steps` below 1.

    Example:
      >>> timer = SecondOrStepTimer(every_steps=50)
      >>> fired = []
      >>> for step in range(1, 120):
      ...     if timer.should_trigger_for_step(step):
      ...         _ = timer.update_last_triggered_step(step)
      ...         fired.append(step)
      >>> fired
      [1, 51, 101]
    """

    def __init__(
        self,
        every_secs: float | None = None,
        every_steps: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_interval("hook", secs=every_secs, steps=every_steps)
        self.every_secs = every_secs
        self.every_steps = every_steps
        self._clock = clock
        self._last_step: int | None = None
        self._last_time = 0.0
        self._has_asked = False  # whether the chief has asked for the next trigger

    def __repr__(self) -> str:
        secs, steps = self.every_secs, self.every_steps
        return describe_hook(self, every_secs=secs, every_steps=steps)

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether the interval has passed; False twice for the same step.

        Args:
          step: Steps trained so far.
        """
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self.every_steps is not None:
            return step >= self._last_step + self.every_steps
        return self._is_time_over()

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Start the next interval at `step`.

        Args:
          step: Steps trained so far.

        Returns:
          Seconds and steps since the last trigger; (None, None) for the first one.
        """
        now = self._clock()
        elapsed: tuple[float | None, int | None] = (None, None)
        if self._last_step is not None:
            elapsed = (now - self._last_time, step - self._last_step)
        self._last_step, self._last_time = step, now
        self._has_asked = False
        return elapsed

    def last_triggered_step(self) -> int | None:
        """Return the step of the last trigger; None if there was none."""
        return self._last_step

    def reset(self) -> None:
        """Forget the last trigger, so that the next check triggers."""
        self._last_step = None
        self._has_asked = False

    def next_step(self, step: int) -> int:
        """Return the step for `Hook.next_step`.

        Args:
          step: Steps trained so far.

        Returns:
          The step of the next trigger. For an interval in seconds it is `step` itself:
          the hook is called after every compiled loop and does not shorten it. For 0
          seconds it is the next step.
        """
        if self._last_step is None:
            return step + 1
        if self.every_steps is not None:
            return max(step + 1, self._last_step + self.every_steps)
        return step if self.every_secs else step + 1

    def is_due_next(self) -> bool:
        """Return whether the coming step may trigger, to decide in `before_run`.

        An interval in steps always may, because the loop calls the hook only at the
        step of the next trigger. An interval in seconds is compared with the clock now.
        """
        if self._last_step is None or self.every_steps is not None:
            return True
        return self._is_time_over()

    def is_due_for_all(self, context: RunContext, request: str) -> bool:
        """Return whether the coming step triggers in all processes of a cluster.

        Use it in `before_run` in place of `is_due_next` if the hook then does what all
        processes do together, such as to save or to compute a summary. Their clocks
        differ, so an interval in seconds goes by the clock of the chief: it asks all
        processes, and they act at the step on which they agree.

        Args:
          context: The context of this run. In one process this is `is_due_next`.
          request: Names what is due. The same in all processes, and of this hook alone.

        Example:
          >>> SecondOrStepTimer(every_secs=60).is_due_for_all(RunContext(3), "report")
          True
        """
        # 0 seconds are every step, without a request that takes some steps.
        is_by_step = not self.every_secs or self._last_step is None
        if context.peers is None or context.requests is None or is_by_step:
            return self.is_due_next()
        if context.peers.is_chief and not self._has_asked and self.is_due_next():
            context.requests.ask(request)
            self._has_asked = True
        return request in context.agreed

    def _is_time_over(self) -> bool:
        assert self.every_secs is not None
        return self._clock() >= self._last_time + self.every_secs


def check_interval(where: str, *, secs: float | None, steps: int | None) -> None:
    """Raise ConfigError unless exactly one is given: seconds >= 0, or steps > 0."""
    is_interval = secs is None if steps is not None else secs is not None
    if not is_interval or (steps is not None and steps <= 0) or (secs or 0) < 0:
        raise ConfigError(
            f"{where}: give exactly one of steps (above 0) and seconds (0 or more), "
            f"and None for the other; got {steps} steps and {secs} seconds."
        )


def describe_hook(value: object, *args: Any, **settings: Any) -> str:
    """Return a repr of a class name, `args`, and those settings that are not None.

    >>> describe_hook(RunContext(0), "runs/a", every=10, name=None)
    "RunContext('runs/a', every=10)"
    """
    shown = [display.format_value(arg) for arg in args]
    shown += [
        f"{name}={display.format_value(v)}"
        for name, v in settings.items()
        if v is not None
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
