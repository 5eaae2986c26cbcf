"""Names for groups of variables and layers, inline: `variable_scope` as in TF 1.

    with ex.variable_scope("tower"):
        net = nn.Dense(8, name="hidden")(a)          # tower/hidden/kernel
    with ex.variable_scope("tower", reuse=True):
        net = nn.Dense(8, name="hidden")(b)          # the very same kernel

A scope is a Flax module that is entered by `with` instead of by a call. Flax keeps the
module that is being called on a stack of its own, and has no public way onto it but a
method; `_inside` is the one place that goes there (flax 0.8 to 0.12 are alike).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
from flax import linen as nn
from flax.linen import module as flax_module

from estimax.core.errors import SpecError

AUTO_REUSE = "auto_reuse"
Reuse = bool | str | None


@dataclass(frozen=True)
class VariableScope:
    """An open scope: its name, whether it reuses, and its variables' defaults."""

    name: str
    reuse: Reuse
    initializer: Any = None
    regularizer: Callable[[Any], Any] | None = None
    module: Any = None  # the Flax module that holds its variables; None at the top


_TOP = VariableScope("", reuse=False)
_current: ContextVar[VariableScope] = ContextVar("estimax_scope", default=_TOP)


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope,
    reuse: Reuse = None,
    *,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
) -> Iterator[VariableScope]:
    """Put variables and Flax layers made inside under a name.

    `reuse=True` shares what an earlier scope of this name made and makes nothing new;
    `AUTO_REUSE` shares what is there and makes what is not; None is as around. What
    `as` binds can be given again in the place of the name, from anywhere. `initializer`
    and `regularizer` are the defaults of `get_variable`, here and in scopes inside.

    >>> class Twins(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, a, b):
    ...         with variable_scope("tower"):
    ...             a = nn.Dense(3, name="hidden")(a)
    ...         with variable_scope("tower", reuse=True):
    ...             b = nn.Dense(3, name="hidden")(b)
    ...         return a, b
    >>> x = jax.numpy.ones((1, 2))
    >>> (a, b), made = Twins().init_with_output(jax.random.key(0), x, x)
    >>> list(made["params"]), bool((a == b).all())
    (['tower'], True)
    """
    if reuse not in (None, False, True, AUTO_REUSE):
        raise SpecError(
            "variable_scope: reuse must be None, False, True or ex.AUTO_REUSE, got "
            f"{reuse!r}."
        )
    around = _current.get()
    # As in TensorFlow, what is inside a scope that reuses cannot stop reusing.
    reuse = reuse or around.reuse
    module = _module_of(name_or_scope, reuse)
    if isinstance(name_or_scope, VariableScope):
        around = name_or_scope
    scope = VariableScope(
        "/".join(module.path),
        reuse,
        around.initializer if initializer is None else initializer,
        around.regularizer if regularizer is None else regularizer,
        module,
    )
    token = _current.set(scope)
    try:
        with _inside(module), jax.named_scope("/".join(module.path[-1:])):
            yield scope
    finally:
        _current.reset(token)


def get_variable_scope() -> VariableScope:
    """The scope that is open here, which `variable_scope` takes in place of a name.

    >>> get_variable_scope().name
    ''
    """
    return _current.get()


def scoped(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that layers it makes are named under `name`.

    To be used inside a `model_fn` or another scope.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        with variable_scope(name):
            return body(*args, **kwargs)

    return call


def current_module(asker: str) -> Any:
    """The Flax module that is being called, which new variables would belong to."""
    module = flax_module._context.module_stack[-1]
    if module is None:
        raise SpecError(
            f"{asker} was called outside of a model_fn. Variables belong to the model "
            "that is being traced: call it inside the model_fn of an Estimator, or in "
            "a compact method of a Flax module."
        )
    return module


class _Scope(nn.Module):
    """A module without a call: entered by `with`."""


def _module_of(name_or_scope: str | VariableScope, reuse: Reuse) -> Any:
    where = current_module("variable_scope")
    if isinstance(name_or_scope, VariableScope):
        where = name_or_scope.module or where
        return _again(where) if reuse else where
    names = name_or_scope.split("/")
    if not all(names):
        raise SpecError(
            f"variable_scope: {name_or_scope!r} is no name for a scope. Expected one "
            "or more words with a slash between them."
        )
    for name in names:
        with _inside(where):
            known = where._state.children.get(name)
            where = known if isinstance(known, _Scope) else _Scope(name=name)
    return _again(where) if reuse else where


def _again(module: Any) -> Any:
    """A module on the same variables, as if none of them had been named yet."""
    return _Scope(parent=module.scope.rewound())


@contextmanager
def _inside(module: Any) -> Iterator[None]:
    was_compact = module._state.in_compact_method
    module._state.in_compact_method = True
    flax_module._context.module_stack.append(module)
    try:
        yield
    finally:
        flax_module._context.module_stack.pop()
        module._state.in_compact_method = was_compact
