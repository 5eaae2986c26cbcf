"""Train ops: which optimizer trains which variables; and optimizers by name.

    train_op = group(
        minimize(Ftrl(0.2), var_list="linear/"),
        minimize(Adagrad(0.05), var_list="dnn/", clip=Clip(global_norm=5.0)),
    )

A `TrainOp` is a value that the training step reads; nothing runs here. Variables that
no group matches are frozen and have no slots. The global step advances by one per
training step, whatever the number of groups.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import optax

from estimax import staging
from estimax.core.display import format_value
from estimax.core.errors import SpecError, did_you_mean
from estimax.optimizers import constructors
from estimax.optimizers.clipping import Clip, Tree
from estimax.optimizers.optimizer import Optimizer, Schedule

# Gradients by variable name -> changed ones.
ChangeGradients = Callable[[dict[str, jax.Array]], Mapping[str, jax.Array]]
VarList = str | jax.Array | Mapping[str, jax.Array] | Sequence[str | jax.Array] | None


@dataclass(frozen=True)
class Group:
    """An optimizer and the variables that it trains. `minimize` makes one.

    Args:
      pattern: A regular expression, or several, matched at the start of a variable's
        name. None matches every variable.
      optimizer: What updates the variables.
      clip: A `Clip`, or a function of the dict of all gradients of the group, that is
        called before the clipping of the optimizer. None: only the optimizer clips.

    Example:
      >>> made = minimize("SGD", var_list="dnn/").groups[0]
      >>> made.matches("dnn/logits/kernel"), made.matches("linear/bias")
      (True, False)
    """

    pattern: str | tuple[str, ...] | None
    optimizer: Optimizer
    clip: Clip | ChangeGradients | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions as a tuple. `("",)`, which matches all, for None."""
        if self.pattern is None:
            return ("",)
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern

    def matches(self, name: str) -> bool:
        """Return whether a variable belongs to the group.

        Args:
          name: The name of the variable, e.g. `"dnn/logits/kernel"`.
        """
        return any(re.match(pattern, name) for pattern in self.patterns)

    def clipped(self, grads: Tree) -> Tree:
        """Clip all gradients of the group by both clips.

        Update with `optimizer.unclipped` afterwards, so as not to clip twice.

        Args:
          grads: All gradients of the group, including the rows of its tables.

        Returns:
          The clipped gradients, in the same structure.
        """
        change: Any = self.clip  # a `Clip` takes any tree, a function a dict
        changed = grads if change is None else change(grads)
        if changed is not grads:
            _check_changed(changed, grads)
        clip = self.optimizer.clip
        clipped: Tree = changed if clip is None else clip(changed)
        return clipped


@dataclass(frozen=True)
class TrainOp:
    """How a step updates the variables. `minimize` and `group` make one.

    Args:
      groups: Optimizers with their variables. The first group that matches a variable
        trains it.
      loss: The loss that `minimize` was given, or None. The training step raises if it
        is not the loss of the spec. Comparisons ignore it.

    Example:
      >>> minimize("SGD").groups[0]
      Group(pattern=None, optimizer=SGD(learning_rate=0.01), clip=None)
    """

    groups: tuple[Group, ...]
    loss: Any = field(default=None, compare=False, repr=False)  # a traced scalar

    @property
    def rates(self) -> dict[str, jax.Array]:
        """The learning rates that the `model_fn` computed, by the index of the group.

        They are arrays of the trace in which the train op was made.
        """
        rates = {
            str(i): made.optimizer.learning_rate for i, made in self._groups_with_index
        }
        return {i: r for i, r in rates.items() if isinstance(r, jax.Array)}

    def with_rates(self, rates: Mapping[str, jax.Array]) -> TrainOp:
        """Return the train op with other learning rates.

        Args:
          rates: The learning rate by the index of the group; other groups keep theirs.
        """
        groups = [
            replace(
                made, optimizer=replace(made.optimizer, learning_rate=rates[str(i)])
            )
            if str(i) in rates
            else made
            for i, made in self._groups_with_index
        ]
        return replace(self, groups=tuple(groups))

    @property
    def _groups_with_index(self) -> Sequence[tuple[int, Group]]:
        return list(enumerate(self.groups))


def minimize(
    optimizer: object,
    loss: Any = None,  # a traced scalar
    var_list: VarList = None,
    clip: Clip | ChangeGradients | None = None,
) -> TrainOp:
    """Return a train op that minimises the loss of the spec over some or all variables.

    Use it in a `model_fn` as the `train_op` of the `EstimatorSpec`, alone or within
    `group`.

    Args:
      optimizer: An estimax optimizer, an optax transformation, a name such as
        `"Adagrad"`, or a function without arguments that returns one of these.
      loss: Optional, as in TensorFlow. The spec's loss is always the one that is
        differentiated; if given, this must be the same array.
      var_list: What is trained: a regular expression, matched at the start of variable
        names; an array that `ex.get_variable` returned in this call of the `model_fn`;
        a list of these; or a dict of `ex.variables_by_name`. None: all variables.
      clip: How the gradients of these variables change before the update: a `Clip`, or
        a function that is given all of them, a dict by variable name, and returns a
        dict of the same names and shapes. The gradient of a table that is updated by
        row has one row for each distinct id of the batch.

    Returns:
      A `TrainOp`.

    Raises:
      SpecError: `var_list` is empty, or holds an invalid regular expression or an array
        that is not a trained variable.
      TypeError: `optimizer` is none of the above.

    Example:
      >>> minimize("SGD", var_list="dnn/").groups[0].pattern
      'dnn/'
      >>> def sign(grads):
      ...     return {name: jnp.sign(grad) for name, grad in grads.items()}
      >>> minimize("SGD", clip=sign).groups[0].clipped({"w": jnp.array([-3.0, 0.5])})
      {'w': Array([-1.,  1.], dtype=float32)}
    """
    pattern = _pattern(var_list)
    if pattern == ():
        raise SpecError(
            "minimize: var_list is empty, so nothing would be trained. Name variables "
            "by regular expressions, give the arrays of ex.get_variable, or leave it "
            "out to train all."
        )
    made = Group(pattern, as_optimizer(optimizer), clip)
    for regex in made.patterns:
        _check_regex(regex)
    return TrainOp((made,), loss)


def group(*train_ops: object) -> TrainOp:
    """Join train ops into one, for models whose parts have different optimizers.

    Args:
      *train_ops: Train ops, or optimizers. A variable belongs to the first that matches
        its name, so put narrow patterns first.

    Returns:
      One `TrainOp` with the groups of all.

    Raises:
      SpecError: No train op is given, or they minimise different losses.

    Example:
      >>> op = group(minimize("Ftrl", var_list="linear/"), minimize("Adagrad"))
      >>> assign(op, ["linear/bias", "dnn/kernel"])
      {'linear/bias': 0, 'dnn/kernel': 1}
    """
    ops = [as_train_op(op) for op in train_ops]
    if not ops:
        raise SpecError("group: expected at least one train op, got none.")
    losses = [op.loss for op in ops if op.loss is not None]
    if any(loss is not losses[0] for loss in losses):
        raise SpecError(
            "group: the train ops minimise different losses. A step takes one "
            "gradient, of the spec's loss: add the losses up, and stop gradients "
            "where needed."
        )
    groups = tuple(made for op in ops for made in op.groups)
    return TrainOp(groups, losses[0] if losses else None)


def as_train_op(value: object) -> TrainOp:
    """Return a train op from a train op or an optimizer.

    Args:
      value: A `TrainOp`, or an optimizer in any form that `minimize` accepts. An
        optimizer trains all variables.

    Returns:
      A `TrainOp`.

    Raises:
      TypeError: `value` is neither.

    Example:
      >>> as_train_op("Adagrad").groups[0].optimizer.name
      'Adagrad'
    """
    return value if isinstance(value, TrainOp) else minimize(value)


def assign(train_op: TrainOp, names: Sequence[str]) -> dict[str, int | None]:
    """Return which group trains each variable.

    Args:
      train_op: The train op.
      names: The names of all trainable variables.

    Returns:
      Variable name to the index of its group, or None if no group matches (frozen).

    Raises:
      SpecError: A pattern matches no variable, or only those of earlier groups.

    Example:
      >>> assign(minimize("SGD", var_list="a"), ["a/kernel", "b/kernel"])
      {'a/kernel': 0, 'b/kernel': None}
    """
    assigned = {name: _first_match(train_op, name) for name in names}
    for index, made in enumerate(train_op.groups):
        _check_patterns(made, names)
        if made.pattern is not None and index not in assigned.values():
            raise SpecError(
                f"train_op: every variable matching {made.pattern!r} already belongs "
                "to an earlier group. Put the narrower group first."
            )
    return assigned


_NAMES: Final = (
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "LazyAdam",
    "Momentum",
    "Nadam",
    "ProximalAdagrad",
    "ProximalGradientDescent",
    "RMSProp",
    "SGD",
)


def by_name(
    name: str,
    learning_rate: float | Schedule | None = None,
    **options: Any,  # the other arguments of the optimizer of that name
) -> Optimizer:
    """Return an optimizer from its name.

    Args:
      name: The name of a constructor, in upper or lower case, e.g. `"adagrad"`.
      learning_rate: A number or a schedule. None: the default of the constructor, which
        Keras' legacy optimizer has as well.
      **options: The other arguments of the constructor.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: No optimizer has this name, or it has an argument without a default.

    Example:
      >>> by_name("sgd", 0.05, momentum=0.9)
      SGD(learning_rate=0.05, momentum=0.9, nesterov=False, generation='legacy')
    """
    known = {known.lower(): known for known in _NAMES}
    if name.lower() not in known:
        near = did_you_mean(name.lower(), known)
        raise ValueError(f"unknown optimizer {name!r}{near}")
    make: Callable[..., Optimizer] = getattr(constructors, known[name.lower()])
    if learning_rate is not None:
        options["learning_rate"] = learning_rate
    missing = [
        argument.name
        for argument in inspect.signature(make).parameters.values()
        if argument.default is argument.empty
        and argument.kind is not argument.VAR_KEYWORD
        and argument.name not in options
    ]
    if missing:
        raise ValueError(
            f"optimizer {name!r} needs {' and '.join(missing)}. Pass the optimizer "
            f"itself: ex.optimizers.{known[name.lower()]}(…)."
        )
    return make(**options)


def as_optimizer(value: object) -> Optimizer:
    """Return an optimizer from any of its accepted forms.

    Args:
      value: An `Optimizer`, an optax transformation, a name such as `"Adagrad"`, or a
        function without arguments that returns one of these.

    Returns:
      An `Optimizer`.

    Raises:
      TypeError: `value` is none of these.

    Example:
      >>> as_optimizer("SGD").name, as_optimizer(optax.adam(1e-3)).name
      ('SGD', 'optax')
    """
    made = value
    if callable(value) and not isinstance(value, Optimizer):
        made = value()
    if isinstance(made, Optimizer):
        return made
    if isinstance(made, str):
        return by_name(made)
    if isinstance(made, optax.GradientTransformation):
        wrapped = optax.with_extra_args_support(made)
        return Optimizer("optax", None, None, transformation=wrapped)
    raise TypeError(
        f"expected an optimizer, got {type(made).__name__}: {format_value(made)}. "
        "Accepted are an estimax optimizer (optimizers.Adagrad(0.05)), an optax "
        f"transformation, a name ({', '.join(_NAMES)}), or a function without "
        "arguments that returns one."
    )


def _pattern(var_list: VarList) -> str | tuple[str, ...] | None:
    """Return regular expressions for the variables of a `var_list`."""
    if var_list is None or isinstance(var_list, str):
        return var_list
    if isinstance(var_list, Mapping):
        return tuple(map(_exact, var_list))
    if isinstance(var_list, jax.Array):
        var_list = [var_list]
    return tuple(
        one if isinstance(one, str) else _exact(_name_of(one)) for one in var_list
    )


def _exact(name: str) -> str:
    """Return a regular expression that matches one name only."""
    return re.escape(name) + r"\Z"


def _name_of(variable: Any) -> str:
    trace = staging.current()
    found = None if trace is None else trace.variable_name(variable)
    if found is None:
        raise SpecError(
            f"minimize: var_list holds {format_value(variable)}, which is not a "
            "variable of this model. Give arrays that ex.get_variable returned in this "
            "call of the model_fn, or name variables by regular expressions: "
            'var_list="dnn/".'
        )
    name, trainable = found
    if not trainable:
        raise SpecError(
            f"minimize: var_list holds {name}, which was declared with trainable=False."
        )
    return name


def _check_changed(changed: Any, grads: Any) -> None:
    """Raise SpecError unless a function returned gradients like those it was given."""
    if not isinstance(grads, Mapping):
        return  # another tree, of a caller that clips by itself
    if not isinstance(changed, Mapping):
        raise SpecError(
            "minimize: clip must return a dict of the gradients that it was given, "
            f"got {type(changed).__name__}."
        )
    for name, grad in grads.items():
        if name not in changed:
            raise SpecError(
                f"minimize: clip returned no gradient of {name!r}. Return all that it "
                "was given; to leave a variable as it is, leave it out of var_list."
            )
        if jnp.shape(changed[name]) != grad.shape:
            raise SpecError(
                f"minimize: clip returned a gradient of {name!r} of shape "
                f"{jnp.shape(changed[name])}, expected {grad.shape}."
            )


def _first_match(train_op: TrainOp, name: str) -> int | None:
    matching = (i for i, made in enumerate(train_op.groups) if made.matches(name))
    return next(matching, None)


def _check_patterns(made: Group, names: Sequence[str]) -> None:
    if made.pattern is None:
        return
    for pattern in made.patterns:
        if not any(re.match(pattern, name) for name in names):
            raise SpecError(
                f"train_op: no trainable variable matches {pattern!r}"
                f"{did_you_mean(pattern, names)}"
            )


def _check_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SpecError(
            f"minimize: var_list holds {pattern!r}, which is not a regular "
            f"expression: {error}."
        ) from error
