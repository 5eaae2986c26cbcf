"""Values taken once, when training has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimax.hooks.cadence import NEVER
from estimax.hooks.hook import Hook, RunContext

FinalOps = str | Sequence[str] | Mapping[str, str] | Callable[[RunContext], Any]


class FinalOpsHook(Hook):
    """Takes values at the end of a run; `final_ops_values` then holds them.

    `final_ops` is a name, a list of names or a dict to names, and the values come in
    the same form. Names are those of variables and of what the model logs, computed
    anew on the last batch. Or it is a function of the `RunContext`.

    >>> hook = FinalOpsHook({"bias": "line/bias"})
    >>> hook.final_ops_values is None
    True
    """

    def __init__(self, final_ops: FinalOps) -> None:
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values of the last run that ended; None before."""
        return self._values

    def end(self, context: RunContext) -> None:
        """Take the values."""
        wanted = self._final_ops
        if callable(wanted):
            self._values = wanted(context)
        elif isinstance(wanted, str):
            self._values = context.fetch([wanted])[wanted]
        elif isinstance(wanted, Mapping):
            found = context.fetch(list(wanted.values()))
            self._values = {key: found[name] for key, name in wanted.items()}
        else:
            found = context.fetch(wanted)
            self._values = [found[name] for name in wanted]

    def next_step(self, step: int) -> int:
        """Never: only the end matters."""
        return NEVER
