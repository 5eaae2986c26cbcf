"""A tiny training run to drive hooks with: one weight, updated by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax.core.state import TrainState
from estimax.hooks import Hook, RunContext


class Run:
    """Calls hooks as the loop does: only at the steps they asked for."""

    def __init__(self) -> None:
        self.state = TrainState(
            step=jnp.int32(0),
            params={"dnn/w": jnp.ones(3)},
            tables={"city/embedding_weights": jnp.ones((4, 2))},
            model_state={"batch_stats": {"dnn": {"mean": jnp.zeros(2)}}},
            opt_state={},
            slots={},
            key=jax.random.key(0),
        )
        self._step = jax.jit(
            lambda s: replace(
                s,
                step=s.step + 1,
                params={"dnn/w": s.params["dnn/w"] * self.factor(s.step + 1)},
            ),
            donate_argnums=0,
        )
        self.nan_from: float = np.inf  # the update of this step makes NaN
        self.on_step: Callable[[int], None] = lambda step: None
        self.logged: dict[str, str] = {}
        self.logged_values: dict[str, object] = {}
        self.fetches: list[int] = []

    def factor(self, step: jax.Array) -> jax.Array:
        return jnp.where(step >= self.nan_from, jnp.nan, 1.0)

    def __call__(self, hooks: Sequence[Hook], steps: int | None = None) -> RunContext:
        """Train until a hook stops it, or for `steps` as if the data ended then."""
        start = int(self.state.step)
        context = RunContext(step=start, state=self.state, logged=self.logged)
        context.input_state = {"position": start}
        for hook in hooks:
            hook.begin(context)
        for hook in hooks:
            hook.after_create_session(context)
        wanted = [hook.next_step(start) for hook in hooks]
        while not context.stop_requested:
            if steps is not None and context.step - start >= steps:
                break
            due = [i for i, at in enumerate(wanted) if at <= context.step + 1]
            names = {i: hooks[i].before_run(context) or () for i in due}
            self._advance(context)
            values = {
                "loss": np.float32(np.nan if context.step > self.nan_from else 0.5),
                **self.logged_values,
            }
            context.losses.append((context.step, values["loss"]))
            context.fetcher = lambda names, now=values: {n: now[n] for n in names}
            if any(names.values()):
                self.fetches.append(context.step)
            for i in due:
                hooks[i].after_run(context, {name: values[name] for name in names[i]})
                wanted[i] = hooks[i].next_step(context.step)
        for hook in hooks:
            hook.end(context)
        return context

    def _advance(self, context: RunContext) -> None:
        self.state = self._step(self.state)
        context.state = self.state
        context.step += 1
        context.examples += 8
        context.input_state = {"position": context.step}
        self.on_step(context.step)


@pytest.fixture
def run() -> Run:
    return Run()
