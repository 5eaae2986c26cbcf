"""Hooks that watch for bad values: NaN, and ids out of range.

Only ids that a `model_fn` computes can be out of range: ids of the input are checked on
the host. `ex.embedding_lookup` clamps them, and the compiled step counts them
(`Trace.count_out_of_range`).

Reading the loss waits for the device, so `NanTensorHook` reads it every 100 steps only.
No NaN is saved in between: `CheckpointSaverHook` checks every state before it saves it.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from estimax import checkpoints
from estimax.core.errors import NanLossError
from estimax.core.table_stacks import on_host
from estimax.hooks.fetching import names_in
from estimax.hooks.hook import (
    NEVER,
    Hook,
    RunContext,
    SecondOrStepTimer,
    Values,
    describe_hook,
)
from estimax.staging import OUT_OF_RANGE

_log = logging.getLogger("estimax")


class NanTensorHook(Hook):
    """End training when the loss is NaN.

    `train` always adds one that checks the loss every 100 steps and raises. Pass
    another one to check more often, or to check another value. The value is checked
    after the first step and then every `every_n_steps` steps. After the last step the
    variables are checked as well.

    Args:
      loss_tensor: Name of the value to check: "loss", or a value that the model logs.
      fail_on_nan_loss: True raises NanLossError; False logs a warning and stops.
      every_n_steps: Steps between two checks. Each check waits for the device.

    Raises:
      ConfigError: `every_n_steps` is not above 0.
      TypeError: `loss_tensor` is not a name.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.full(4, np.nan)
      >>> model = ex.BaselineRegressor()
      >>> hook = ex.hooks.NanTensorHook(every_n_steps=1)
      >>> try:
      ...     model.train(lambda: data, steps=10, hooks=[hook])
      ... except RuntimeError as error:
      ...     print(str(error).split(".")[0])
      the loss is NaN at step 1
    """

    def __init__(
        self,
        loss_tensor: str = "loss",
        fail_on_nan_loss: bool = True,
        *,
        every_n_steps: int = 100,
    ) -> None:
        names_in([loss_tensor], "NanTensorHook")
        self._name = loss_tensor
        self._fail = fail_on_nan_loss
        self._timer = SecondOrStepTimer(every_steps=every_n_steps)
        self._last_finite: int | None = None

    def __repr__(self) -> str:
        return describe_hook(
            self,
            self._name,
            fail_on_nan_loss=self._fail,
            every_n_steps=self._timer.every_steps,
        )

    def begin(self, context: RunContext) -> None:
        self._timer.reset()
        self._last_finite = None

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        return [self._name]

    def after_run(self, context: RunContext, values: Values) -> None:
        self._timer.update_last_triggered_step(context.step)
        if math.isnan(float(values[self._name])):
            self._report(context, f"the {self._name} is NaN")
        else:
            self._last_finite = context.step

    def end(self, context: RunContext) -> None:
        # The steps since the last look have not been examined. The last loss was
        # computed before the last update, so look at the variables themselves.
        if context.state is None or self._timer.last_triggered_step() == context.step:
            return
        tables = _named(on_host(context.state.tables))
        variables = {**_named(context.state.params), **tables}
        bad = checkpoints.first_nan(variables)
        if bad is not None:
            self._report(context, f"{bad} holds NaN")

    def next_step(self, step: int) -> int:
        return self._timer.next_step(step)

    def _report(self, context: RunContext, what: str) -> None:
        message = f"{what} at step {context.step}{self._since(context)}."
        if self._fail:
            raise NanLossError(
                f"{message} No checkpoint holds the NaN; the next train call continues "
                "from the latest checkpoint. Try a lower learning rate or gradient "
                "clipping, check the features for NaN, or run with "
                'RunConfig(debug="nan").'
            )
        _log.warning("%s Stopping.", message)
        context.request_stop()

    def _since(self, context: RunContext) -> str:
        first = _first_nan_step(context)
        if first is not None and first != context.step:
            return f" (the loss has been NaN since step {first})"
        if first is None and self._last_finite is not None:
            return f" (the loss was not NaN at step {self._last_finite})"
        return ""


def _first_nan_step(context: RunContext) -> int | None:
    """Return the first step whose loss was NaN, of those that the context keeps."""
    steps = (step for step, loss in context.losses if math.isnan(float(loss)))
    return next(steps, None)


def _named(tree: object) -> dict[str, np.ndarray]:
    """Return the variables by name; of those sharded over processes, the rows here."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        is_host = isinstance(leaf, np.ndarray)
        if is_host or leaf.is_fully_addressable or leaf.is_fully_replicated:
            named[name] = np.asarray(leaf)
            continue
        for shard in leaf.addressable_shards:
            named[f"{name} on {shard.device}"] = np.asarray(shard.data)
    return named


# Reading a count waits for the device, so this many are read together.
_READ_TOGETHER = 100


class OutOfRangeIdsHook(Hook):
    """Log one warning with the number of computed ids that were out of range.

    `train` and `evaluate` add it. It does nothing for a model without such lookups.
    """

    def begin(self, context: RunContext) -> None:
        self._names = [n for n in context.logged if n.startswith(OUT_OF_RANGE)]
        self._unread: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    def after_run(self, context: RunContext, values: Values) -> None:
        if self._names:
            self._unread.append({n: context.outputs[n] for n in self._names})
        if len(self._unread) >= _READ_TOGETHER:
            self._report(context)

    def end(self, context: RunContext) -> None:
        self._report(context)

    def next_step(self, step: int) -> int:
        return step if self._names else NEVER

    def _report(self, context: RunContext) -> None:
        for counts in jax.device_get(self._unread):
            self._counts.update({name: int(n) for name, n in counts.items()})
        self._unread = []
        found = [(n, count) for n, count in self._counts.items() if count]
        if not found:
            return
        self._names = []  # report once
        listed = ", ".join(
            f"{count} ids for {name.removeprefix(OUT_OF_RANGE)}"
            for name, count in found
        )
        _log.warning(
            "embedding_lookup: %s were out of range by step %d, and the nearest valid "
            "id was looked up instead. The model_fn computes these ids, so they cannot "
            "be checked before the step; check how it computes them. Later ones are "
            "not reported.",
            listed,
            context.step,
        )
