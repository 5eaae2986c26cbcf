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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from estimax.core.state import TrainState

REMEMBERED_LOSSES = 256


@dataclass
class RunContext:
    """What a hook may see and do. One object per `train`, `evaluate` or `predict`.

    In `before_run` the step is the number of steps done so far; in `after_run` the
    number done including the one that just ran. `state` is None outside training, and
    its arrays live only until the next step: copy what you keep.
    """

    step: int
    state: TrainState | None = None
    stop_requested: bool = False
    examples: int = 0  # trained on since the call began
    input_wait: float = 0.0  # seconds the loop waited for input since the call began
    input_state: Any = None  # position of the input after the last trained batch
    # What the model logs and hooks may ask for: name -> scalar, histogram or text.
    logged: Mapping[str, str] = field(default_factory=dict)
    # The latest (step, loss), still on the device: reading one waits for it.
    losses: deque[tuple[int, Any]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_LOSSES)
    )

    def request_stop(self) -> None:
        """Ask the loop to end after this step; the other hooks still see the step."""
        self.stop_requested = True


Values = Mapping[str, NDArray[Any] | np.generic]


@runtime_checkable
class Hook(Protocol):
    """Called by the loop: begin, then before_run and after_run around steps, then end.

    `end` runs after a normal finish (steps done, data ended, stop requested), never
    after an error.
    """

    def begin(self, context: RunContext) -> None:
        """Run once, when the state is there and before the first step."""
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
