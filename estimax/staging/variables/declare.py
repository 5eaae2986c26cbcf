"""Variables declared by hand: `get_variable`, `variable_scope`, `assign`.

    with ex.variable_scope("tower"):
        w = ex.get_variable("w", (3, 1), regularizer=ex.optimizers.l2(0.01))
    seen = ex.get_variable("seen", (), initializer=0.0, trainable=False)
    ex.assign(seen, seen + batch_size)             # saved in the next checkpoint

`get_variable` returns the variable's value, an ordinary array. Trainable variables are
Flax params; the others are in a collection of their own, as batch statistics are.
`ModelModule` is the Flax module that calls a `model_fn`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen import module as flax_module
from jax.typing import ArrayLike, DTypeLike

from estimax import staging
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec

PARAMS = "params"
REGULARIZATION = "regularization_losses"  # tf.GraphKeys.REGULARIZATION_LOSSES
UNTRAINED = "untrained"  # the Flax collection of variables that are not trained

Initializer = Callable[..., Any]  # (key, shape, dtype) -> array, as Flax's are


# Names that a checkpoint has for other arrays -> what they are.
_RESERVED = {
    "global_step": "the step that the Estimator counts and saves. Read it with "
    "ex.get_global_step(), and leave it out of minimize",
    "random_key": "the random key that the Estimator saves. Give the variable another "
    "name",
}

AUTO_REUSE = "auto_reuse"
Reuse = bool | str | None


@dataclass(eq=False)
class VariableScope:
    """An open scope; `variable_scope` makes it and `get_variable_scope` returns it.

    Args:
      name: The full name, with slashes; empty at the top.
      reuse: Whether variables are shared: False, True or `AUTO_REUSE`.
      initializer: The default `initializer` of `get_variable`.
      regularizer: The default `regularizer` of `get_variable`.
      module: The Flax module that holds the scope's variables; None outside of a
        `model_fn`.
    """

    name: str
    reuse: Reuse
    initializer: Any = None
    regularizer: Callable[[Any], Any] | None = None
    module: Any = None

    def reuse_variables(self) -> None:
        """Share what exists from here on, as if the scope had `reuse=True`.

        Raises:
          SpecError: The scope was not opened by a `model_fn` or by `variable_scope`.
        """
        if self.module is None:
            raise SpecError(
                "reuse_variables: no model_fn and no variable_scope is open. Open a "
                "scope with reuse=True instead."
            )
        again = _again(self.module)
        # Flax lets a module make layers only while its compact method runs. The copy
        # stands for a module whose method is running, so it takes over that state and
        # the place in the stack, where layers find their parent.
        again._state.in_compact_method = True
        stack = flax_module._context.module_stack
        stack[:] = [again if one is self.module else one for one in stack]
        self.reuse, self.module = True, again


_TOP = VariableScope("", reuse=False)
_current: ContextVar[VariableScope] = ContextVar("estimax_scope", default=_TOP)


def get_variable(
    name: str,
    shape: Sequence[int] | int | None = None,
    dtype: DTypeLike = jnp.float32,
    initializer: Initializer | ArrayLike | None = None,
    regularizer: Callable[[jax.Array], Any] | None = None,
    trainable: bool = True,
) -> jax.Array:
    """Return the value of a variable of the current scope, and make it if needed.

    Use it inside a `model_fn` or a Flax module, as in TensorFlow 1, for variables that
    no layer declares.

    Args:
      name: The name in the scope; slashes open scopes inside it.
      shape: The shape; may be left out if the initializer is a constant, or if the
        scope shares a variable that exists.
      dtype: The type.
      initializer: A function of key, shape and dtype, or a constant. By default the
        scope's; else Glorot's uniform for floats, and zero for other types.
      regularizer: A function of the value that returns a penalty; see
        `regularization_losses`. By default the scope's.
      trainable: Whether an optimizer updates the variable. If not, use `assign`.

    Returns:
      The value, an ordinary array.

    Raises:
      SpecError: The variable exists and the scope does not reuse, or the other way
        round; the shape is missing or differs; or there is no model around the call.

    Example:
      >>> class Line(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, x):
      ...         return x @ get_variable("w", (2, 1)) + get_variable("b", 1)
      >>> jax.tree.map(jnp.shape, Line().init(jax.random.key(0), jnp.ones((4, 2))))
      {'params': {'b': (1,), 'w': (2, 1)}}
    """
    head, _, last = name.rpartition("/")
    if head:
        with variable_scope(head):
            return get_variable(last, shape, dtype, initializer, regularizer, trainable)
    scope = get_variable_scope()
    module = current_module(f"get_variable({name!r})")
    path = "/".join((*module.path, name))
    if path in _RESERVED:
        raise SpecError(f"get_variable: {path!r} is {_RESERVED[path]}.")
    trace = staging.current()
    collection = PARAMS if trainable else UNTRAINED
    made = module.has_variable(collection, name)
    if module.is_initializing():
        # A Flax module that is called again declares its names again, and shares them.
        is_taken = made and (
            module.scope.name_reserved(name, collection) or not _is_in_layer(module)
        )
        _check_use(path, made, is_taken, scope.reuse)
    if made and scope.reuse:
        value: jax.Array = module.get_variable(collection, name)
        _check_shape(path, value, shape)
    else:
        if initializer is None:
            initializer = scope.initializer
        make = _maker(path, shape, jnp.dtype(dtype), initializer)
        value = declare_variable(module, name, make, collection)
    if trace is not None:
        if trainable and path not in trace.penalties:
            # By the first declaration in this call of the model_fn. Whether the
            # variable exists says nothing: when a model runs, all of them do.
            rule = regularizer or scope.regularizer
            trace.penalties[path] = None if rule is None else rule(value)
        # Keep the array with its id: the id of a freed object may be used again.
        trace.declared[id(value)] = (value, (module, name, trainable))
    return value


def assign(variable: jax.Array, value: ArrayLike) -> jax.Array:
    """Set the value that a non-trainable variable has in the next step.

    Use it for counters, moving averages and other state of a model. The array that
    `get_variable` returned keeps the value of this step. Evaluation and prediction
    discard what they assign after each batch.

    Args:
      variable: What `get_variable(…, trainable=False)` returned in this call of the
        `model_fn`.
      value: The new value, of the same shape; it is cast to the variable's type.

    Returns:
      The new value.

    Raises:
      SpecError: The array is not such a variable, or the shapes differ.

    Example:
      >>> assign(jnp.zeros(()), 1.0)
      Traceback (most recent call last):
      estimax.core.errors.SpecError: assign: this array is not a variable. Give what \
ex.get_variable(…, trainable=False) returned in this call of the model_fn.
      >>> from estimax import staging
      >>> class Counter(nn.Module):
      ...     @nn.compact
      ...     def __call__(self):
      ...         seen = get_variable("seen", (), initializer=3.0, trainable=False)
      ...         return assign(seen, seen + 1)
      >>> with staging.tracing(staging.Trace("train", None)):
      ...     Counter().init_with_output(jax.random.key(0))[0].tolist()
      4.0
    """
    trace = staging.current()
    found = trace.declared.get(id(variable)) if trace is not None else None
    if found is None:
        raise SpecError(
            "assign: this array is not a variable. Give what ex.get_variable(…, "
            "trainable=False) returned in this call of the model_fn."
        )
    module, name, trainable = found[1]
    path = "/".join((*module.path, name))
    if trainable:
        raise SpecError(
            f"assign: {path} is trainable, so the optimizer changes it. Declare it "
            "with trainable=False to assign it yourself."
        )
    new = jnp.asarray(value, variable.dtype)
    if new.shape != variable.shape:
        raise SpecError(
            f"assign: {path} has shape {variable.shape}, the value {new.shape}."
        )
    # Initializing a model is not a step, so it must not change the value.
    if not module.is_initializing():
        module.put_variable(UNTRAINED, name, new)
    return new


def regularization_losses(scope: str | None = None) -> list[jax.Array]:
    """Return the penalties of the variables declared so far with a regularizer.

    Nothing adds them to the loss by itself: pass them to a head
    (`regularization_losses=`), or add their sum to the loss.

    Args:
      scope: Keep only variables, and scopes of losses, whose name begins with it; by
        default all.

    Returns:
      One scalar for each such variable, in order of declaration, and then the losses
      that were added with `ex.losses.add_loss(loss, "regularization_losses")`.

    Example:
      >>> from estimax import staging
      >>> class Line(nn.Module):
      ...     @nn.compact
      ...     def __call__(self):
      ...         get_variable("w", (2,), initializer=3.0, regularizer=jnp.sum)
      ...         return regularization_losses()
      >>> with staging.tracing(staging.Trace("train", None)):
      ...     Line().init_with_output(jax.random.key(0))[0][0].tolist()
      6.0
    """
    trace = staging.current()
    if trace is None:
        return []
    declared = [(n, v) for n, v in trace.penalties.items() if v is not None]
    added = trace.losses.get(REGULARIZATION, [])
    return [v for name, v in [*declared, *added] if name.startswith(scope or "")]


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope,
    reuse: Reuse = None,
    *,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
) -> Iterator[VariableScope]:
    """Open a scope: variables and Flax layers made inside are named under it.

    Use it with `with`, inside a `model_fn` or a Flax module, as in TensorFlow 1.

    Args:
      name_or_scope: A name, with slashes for scopes inside scopes; `""` for the scope
        around; or a scope that `with … as` or `get_variable_scope` returned, to open
        it again from anywhere.
      reuse: True shares what an earlier scope of this name made, and makes nothing
        new. `AUTO_REUSE` shares what exists and makes what does not. None takes the
        setting of the scope around; a scope that reuses cannot be left inside.
      initializer: The default of `get_variable`, here and in scopes inside.
      regularizer: The default of `get_variable`, here and in scopes inside.

    Yields:
      The open `VariableScope`.

    Raises:
      SpecError: The name or `reuse` is invalid, or there is no model around the call.

    Example:
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
    # As in TensorFlow, a scope inside one that reuses cannot stop reusing.
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
        with _inside(module), _operations_named(module.path[-1:]):
            yield scope
    finally:
        _current.reset(token)


def get_variable_scope() -> VariableScope:
    """Return the scope that is open here.

    Use it to open the same scope again later, with `variable_scope(scope)`, or to read
    its name.

    Returns:
      The open `VariableScope`; at the top its name is empty.

    Example:
      >>> get_variable_scope().name
      ''
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self):
      ...         with variable_scope("tower/first"):
      ...             return get_variable_scope().name
      >>> Net().apply({})
      'tower/first'
    """
    return _current.get()


def declare_variable(
    module: nn.Module,
    name: str,
    make: Callable[[jax.Array], jax.Array],
    collection: str,
) -> jax.Array:
    """Return the value of a module's variable, made by `make` from a random key."""
    if collection == PARAMS:
        param: jax.Array = module.param(name, make)
        return param
    # From the keys of the params, as `module.param` does.
    kept: jax.Array = module.variable(
        collection, name, lambda: make(module.make_rng(PARAMS))
    ).value
    return kept


def declared_name(value: Any) -> tuple[str, bool] | None:
    """Return the name of the variable that an array object is, and if it is trained.

    Return None for an array that neither `get_variable` nor a Flax module declared.
    """
    trace = staging.current()
    return None if trace is None else trace.variable_name(value)


def scoped(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that the layers it makes are named under `name`.

    Call the result inside a `model_fn` or another scope.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        with variable_scope(name):
            return body(*args, **kwargs)

    return call


_model_top: ContextVar[str] = ContextVar("estimax_model_top", default="")


@contextmanager
def model_scope(name: str) -> Iterator[None]:
    """Open a scope for a whole model: what is at its top is named under `name` too.

    Shared embedding tables are at the top of a model, whatever scope uses them. Several
    models inside one `model_fn` would otherwise share those that have the same name.
    """
    with variable_scope(name) as scope:
        token = _model_top.set(scope.name)
        try:
            yield
        finally:
            _model_top.reset(token)


def model_top() -> str:
    """Return the name of the scope that `model_scope` opened; empty if none is open."""
    return _model_top.get()


def current_module(asker: str) -> Any:
    """Return the Flax module that is being called; new variables belong to it.

    Raise `SpecError`, which names the caller `asker`, if there is none.
    """
    module = flax_module._context.module_stack[-1]
    if module is None:
        raise SpecError(
            f"{asker} was called outside of a model_fn. Variables belong to the model "
            "that is being traced: call it inside the model_fn of an Estimator, or in "
            "a compact method of a Flax module."
        )
    return module


class ModelModule(nn.Module):
    """A Flax module that calls a function, whose layers become the module's variables.

    Args:
      function: A function of features and labels that returns an `EstimatorSpec`.
      parent: The Flax module that it belongs to; set by Flax.
      name: The name of the module.
    """

    function: Callable[[Any, Any], EstimatorSpec]

    @nn.compact
    def __call__(self, features: Any, labels: Any) -> EstimatorSpec:
        """Call the function on features and labels."""
        trace = staging.current()
        if trace is not None:
            trace.variables = lambda: self.variables
        token = _current.set(VariableScope("", reuse=False, module=self))
        try:
            return self.function(features, labels)
        finally:
            _current.reset(token)


def _check_use(path: str, made: bool, is_taken: bool, reuse: Reuse) -> None:
    if is_taken and not reuse:
        raise SpecError(
            f"get_variable: {path} exists already. Share it with "
            "variable_scope(…, reuse=True) or reuse=ex.AUTO_REUSE, or give it "
            "another name."
        )
    if not made and reuse is True:
        raise SpecError(
            f"get_variable: {path} does not exist, and reuse=True only shares what "
            "does. Make it first without reuse, or use reuse=ex.AUTO_REUSE."
        )


def _check_shape(
    path: str, value: jax.Array, shape: Sequence[int] | int | None
) -> None:
    if shape is not None and value.shape != _as_shape(shape):
        raise SpecError(
            f"get_variable: {path} has shape {value.shape} and is reused with shape "
            f"{_as_shape(shape)}."
        )


def _maker(
    path: str, shape: Sequence[int] | int | None, dtype: Any, initializer: Any
) -> Callable[[jax.Array], jax.Array]:
    """Return a function of a key that makes the initial value."""
    if initializer is not None and not callable(initializer):
        constant = jnp.asarray(initializer, dtype)
        whole = constant.shape if shape is None else _as_shape(shape)
        return lambda key: jnp.broadcast_to(constant, whole)
    if shape is None:
        raise SpecError(
            f"get_variable: {path} needs a shape, or a constant as its initializer."
        )
    chosen = initializer or _default_initializer(dtype)
    return lambda key: jnp.asarray(chosen(key, _as_shape(shape), dtype))


def _default_initializer(dtype: Any) -> Initializer:
    return _glorot if jnp.issubdtype(dtype, jnp.floating) else jax.nn.initializers.zeros


def _glorot(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    # jax's own refuses vectors and scalars, for which TensorFlow defines the fans.
    fan_in, fan_out = _fans(shape)
    limit = math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, dtype, -limit, limit)


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


def _as_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)


class _Scope(nn.Module):
    """A module that is never called; `variable_scope` enters it."""


def _module_of(name_or_scope: str | VariableScope, reuse: Reuse) -> Any:
    where = current_module("variable_scope")
    if isinstance(name_or_scope, VariableScope):
        where = name_or_scope.module or where
        return _again(where) if reuse else where
    names = name_or_scope.split("/") if name_or_scope else []
    if not all(names):
        raise SpecError(
            f"variable_scope: {name_or_scope!r} is no name for a scope. Give one or "
            "more words with a slash between them."
        )
    for name in names:
        with _inside(where):
            known = where._state.children.get(name)
            # A Flax module that is called again has a new scope of variables, and
            # makes the scopes inside it anew.
            scope = known.scope if isinstance(known, _Scope) else None
            is_open = scope is not None and scope.parent is where.scope
            where = known if is_open else _Scope(name=name)
    return _again(where) if reuse else where


def _is_in_layer(module: Any) -> bool:
    """Return whether a module, or the one around its scopes, is a user's layer."""
    while isinstance(module, _Scope):
        module = module.parent
    return isinstance(module, nn.Module) and not isinstance(module, ModelModule)


def _again(module: Any) -> Any:
    """Return a module on the same variables that may declare their names again."""
    return _Scope(parent=module.scope.rewound())


def _operations_named(name: tuple[str, ...]) -> AbstractContextManager[Any]:
    """Name operations in profiles after the scope; the top has no name."""
    return jax.named_scope(name[0]) if name else nullcontext()


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
