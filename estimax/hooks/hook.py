"""The hook protocol: code that runs beside training, at the steps it asks for.

    class PrintLoss(Hook):
        def before_run(self, context):
            return ["loss"]                      # fetched from the device only now
        def after_run(self, context, values):
            print(context.step, values["loss"])

Subclass `Hook` and override what you need, as with SessionRunHook. A hook that wants
to be called less than every step says so in `next_step`; the loop then runs several
steps in one compiled call between two visits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import ConfigError, SpecError
from estimax.core.state import TrainState

REMEMBERED_LOSSES = 256

Values = Mapping[str, NDArray[Any] | np.generic]


@dataclass
class RunContext:
    """What a hook may see and do. One object per `train`, `evaluate` or `predict`.

    >>> RunContext(step=10).stop_requested
    False

    In `before_run` the step is the number of steps done so far; in `after_run` the
    number done including the one that just ran. `state` is None outside training, and
    its arrays live only until the next step: copy what you keep.
    """

    step: int
    state: TrainState | None = None
    stop_requested: bool = False
    is_waiting: bool = False  # for input, which a signal may end
    examples: int = 0  # trained on since the call began
    input_wait: float = 0.0  # seconds the loop waited for input since the call began
    input_state: Any = None  # position of the input after the last trained batch
    # What the model logs and hooks may ask for: name -> scalar, histogram, image, text.
    logged: Mapping[str, str] = field(default_factory=dict)
    fetcher: Callable[[Sequence[str]], Values] | None = None  # set by the loop
    # The latest (step, loss), still on the device: reading one waits for it.
    losses: deque[tuple[int, Any]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_LOSSES)
    )

    def request_stop(self) -> None:
        """Ask the loop to end after this step; the other hooks still see the step."""
        self.stop_requested = True

    def fetch(self, names: Sequence[str]) -> Values:
        """Compute values as of now: variables, and what the model says of a last batch.

        For `end`, and for the odd value elsewhere: it waits for the device. What is
        wanted at every call is asked for in `before_run`, which costs no extra pass.
        """
        if self.fetcher is None:
            raise SpecError(
                f"a hook asked for {sorted(names)} where no step has been run. Values "
                "can be fetched in train, from the first step on."
            )
        return self.fetcher(names)


@runtime_checkable
class Hook(Protocol):
    """Called by the loop: begin, then before_run and after_run around steps, then end.

    Hooks are called in the order of their list, in every phase. `end` runs after a
    normal finish (steps done, data ended, stop requested, StopIteration raised by a
    hook), never after an error.

    >>> class Announces(Hook):
    ...     def end(self, context):
    ...         print(f"done after {context.step} steps")
    >>> Announces().end(RunContext(step=3))
    done after 3 steps
    """

    def begin(self, context: RunContext) -> None:
        """Run once, when the state is there and before the first step."""
        return

    def after_create_session(self, context: RunContext) -> None:
        """Run once, when every hook has begun: the start is saved and evaluated here.

        The name is tf.estimator's; there is no session.
        """
        return

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Name the values wanted from the coming step, such as ["loss"]."""
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Receive the wanted values after the step."""
        return

    def end(self, context: RunContext) -> None:
        """Run once after a normal finish."""
        return

    def next_step(self, step: int) -> int:
        """Return the next step count, after `step` steps, at which to be called.

        `step` itself means: whenever the loop comes out, without cutting it short.
        """
        return step + 1


# What `next_step` returns for a hook that needs no call before the end.
NEVER = 2**62


class SecondOrStepTimer:
    """Triggers at first use, then every `every_steps` steps or `every_secs` seconds.

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
        given = [value for value in (every_secs, every_steps) if value is not None]
        if len(given) != 1 or given[0] <= 0:
            raise ConfigError(
                "a hook acts every so many steps or every so many seconds: give "
                f"exactly one, above 0; got {every_steps} steps and {every_secs} "
                "seconds."
            )
        self._every_secs = every_secs
        self._every_steps = every_steps
        self._clock = clock
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether to act after this many steps; never twice for the same count."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_steps is not None:
            return step >= self._last_step + self._every_steps
        return self._time_has_come()

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that it acted; returns seconds and steps since the time before."""
        now = self._clock()
        elapsed: tuple[float | None, int | None] = (None, None)
        if self._last_step is not None:
            elapsed = (now - self._last_time, step - self._last_step)
        self._last_step, self._last_time = step, now
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step count at which it last acted."""
        return self._last_step

    def reset(self) -> None:
        """Forget the past: the next use triggers."""
        self._last_step = None

    def next_step(self, step: int) -> int:
        """The step count at which to ask next; `step` itself means "any later one".

        A hook by seconds has no count to name, and must not cut the loop short.
        """
        if self._last_step is None:
            return step + 1
        if self._every_steps is not None:
            return max(step + 1, self._last_step + self._every_steps)
        return step

    def is_due_next(self) -> bool:
        """Whether the coming call may trigger: asked before values are fetched.

        By steps it may, as the loop calls only then. By seconds it is decided now.
        """
        if self._last_step is None or self._every_steps is not None:
            return True
        return self._time_has_come()

    def _time_has_come(self) -> bool:
        assert self._every_secs is not None
        return self._clock() >= self._last_time + self._every_secs


_ADVICE = {
    "CheckpointInputPipelineHook": (
        "a checkpoint holds the input's position by itself, as long as "
        "RunConfig(resume_input=True)"
    ),
    "FeedFnHook": (
        "there are no placeholders to feed; yield the values from the input_fn, as "
        "features"
    ),
    "NanLossDuringTrainingError": "it is estimax.core.errors.NanLossError here",
    "SessionRunArgs": "return a list of names from before_run",
    "SessionRunContext": "it is ex.hooks.RunContext here",
    "SessionRunHook": "subclass ex.hooks.Hook",
    "SessionRunValues": "after_run gets a dict of the values by name",
}


def __getattr__(name: str) -> Any:
    advice = _ADVICE.get(name)
    raise AttributeError(
        f"module 'estimax.hooks' has no attribute {name!r}"
        + (f": {advice}." if advice else "")
    )
