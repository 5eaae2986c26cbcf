"""Call hooks and listeners, also those written with the arguments of tf.estimator.

    check_hook(hook)                       # TypeError that shows the arguments to use
    begin(hook, context)                   # hook.begin(context) or hook.begin()
    after_save(listener, context, 100, path)

A hook of tf.estimator has `begin(self)` and `after_create_session(self, session,
coord)`, a listener `after_save(self, session, global_step_value)`. In place of the
session and the coordinator they receive the `RunContext`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from estimax.hooks.hook import Hook, RunContext

# Method -> numbers of arguments that it may take, estimax's own first.
_HOOK = {
    "begin": (1, 0),
    "after_create_session": (1, 2),
    "before_run": (1,),
    "after_run": (2,),
    "end": (1,),
    "next_step": (1,),
}
_LISTENER = {
    "begin": (0,),
    "before_save": (1, 2),
    "after_save": (2,),
    "end": (1, 2),
}
_ARGUMENTS = {
    "begin": "self, context",
    "after_create_session": "self, context",
    "before_run": "self, context",
    "after_run": "self, context, values",
    "end": "self, context",
    "next_step": "self, step",
}
_LISTENER_ARGUMENTS = {
    "begin": "self",
    "before_save": "self, step",
    "after_save": "self, step, path",
    "end": "self, step",
}


def check_hook(hook: Hook) -> None:
    """Raise TypeError if a method of a hook cannot be called with its arguments."""
    _check(hook, _HOOK, _ARGUMENTS)


def check_listener(listener: object) -> None:
    """Raise TypeError if a method of a listener cannot be called with its arguments."""
    _check(listener, _LISTENER, _LISTENER_ARGUMENTS)


def begin(hook: Hook, context: RunContext) -> None:
    """Call `begin` of a hook."""
    method: Callable[..., None] = hook.begin
    if _accepts(method, 1):
        method(context)
        return
    with _explaining("begin"):
        method()


def after_create_session(hook: Hook, context: RunContext) -> None:
    """Call `after_create_session` of a hook; the context is session and coordinator."""
    method: Callable[..., None] = hook.after_create_session
    if _accepts(method, 1):
        method(context)
        return
    with _explaining("after_create_session"):
        method(context, context)


def before_save(listener: Any, context: RunContext, step: int) -> None:
    """Call `before_save` of a listener."""
    _call_with_step(listener.before_save, context, step)


def after_save(listener: Any, context: RunContext, step: int, path: str) -> bool | None:
    """Call `after_save` of a listener; return whether it wants training to stop."""
    method = listener.after_save
    wants_stop: bool | None = (
        method(context, step) if _takes_session(method) else method(step, path)
    )
    return wants_stop


def end(listener: Any, context: RunContext, step: int) -> None:
    """Call `end` of a listener."""
    _call_with_step(listener.end, context, step)


def _call_with_step(
    method: Callable[..., None], context: RunContext, step: int
) -> None:
    if _accepts(method, 1):
        method(step)
    else:
        method(context, step)


def _takes_session(method: Callable[..., Any]) -> bool:
    """Return whether the arguments are (session, step) rather than (step, path)."""
    names = list(inspect.signature(method).parameters)
    first, second = [*names, "", ""][:2]
    return "sess" in first.lower() or "step" in second.lower()


def _check(
    value: object,
    methods: Mapping[str, tuple[int, ...]],
    arguments: Mapping[str, str],
) -> None:
    for name, counts in methods.items():
        method = getattr(value, name)
        if not any(_accepts(method, count) for count in counts):
            kind = type(value).__name__
            raise TypeError(
                f"{kind}.{name}{inspect.signature(method)} cannot be called. Write "
                f"def {name}({arguments[name]})."
            )


def _accepts(method: Callable[..., Any], count: int) -> bool:
    """Return whether a method can be called with so many positional arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


@contextmanager
def _explaining(name: str) -> Iterator[None]:
    """Add to a TypeError what a method of tf.estimator's form may have missed."""
    try:
        yield
    except TypeError as error:
        error.add_note(
            f"The hook defines {name} as in tf.estimator. In estimax it is "
            f"def {name}({_ARGUMENTS[name]}), and so is that of its base class: "
            f"super().{name}(context)."
        )
        raise
