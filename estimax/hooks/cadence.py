"""When a hook acts: every so many steps, or every so many seconds.

    timer = SecondOrStepTimer(every_steps=100)
    if timer.should_trigger_for_step(step):
        timer.update_last_triggered_step(step)
        ...

Steps are told to the loop ahead, which stops for them. Seconds cannot be: such a hook
is called whenever the loop comes out, and fetches nothing unless its time has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from estimax.core.errors import ConfigError

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
