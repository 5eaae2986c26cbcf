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

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import SpecError
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
