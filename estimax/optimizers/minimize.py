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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import optax

from estimax.core.display import shown
from estimax.core.errors import SpecError, did_you_mean
from estimax.optimizers import constructors
from estimax.optimizers.clipping import Clip, Tree
from estimax.optimizers.optimizer import Optimizer, Schedule


@dataclass(frozen=True)
class Group:
    """An optimizer and the variables that it trains. `minimize` makes one.

    Args:
      pattern: A regular expression, or several, matched at the start of a variable's
        name. None matches every variable.
      optimizer: What updates the variables.
      clip: Clipping of all gradients of the group together, before that of the
        optimizer. None: only that of the optimizer.

    Example:
      >>> made = minimize("SGD", var_list="dnn/").groups[0]
      >>> made.matches("dnn/logits/kernel"), made.matches("linear/bias")
      (True, False)
    """

    pattern: str | tuple[str, ...] | None
    optimizer: Optimizer
    clip: Clip | None = None

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
        for clip in (self.clip, self.optimizer.clip):
            grads = grads if clip is None else clip(grads)
        return grads


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


def minimize(
    optimizer: object,
    loss: Any = None,  # a traced scalar
    var_list: str | Sequence[str] | None = None,
    clip: Clip | None = None,
) -> TrainOp:
    """Return a train op that minimises the loss of the spec over some or all variables.

    Use it in a `model_fn` as the `train_op` of the `EstimatorSpec`, alone or within
    `group`.

    Args:
      optimizer: An estimax optimizer, an optax transformation, a name such as
        `"Adagrad"`, or a function without arguments that returns one of these.
      loss: Optional, as in TensorFlow. The gradient is always that of the spec's loss;
        if given, this must be the same array.
      var_list: A regular expression, or several, matched at the start of variable
        names. None: all variables.
      clip: Clipping of all gradients of these variables together.

    Returns:
      A `TrainOp`.

    Raises:
      SpecError: `var_list` is empty or holds an invalid regular expression.
      TypeError: `optimizer` is none of the above.

    Example:
      >>> minimize("SGD", var_list="dnn/").groups[0].pattern
      'dnn/'
    """
    if var_list is None or isinstance(var_list, str):
        pattern: str | tuple[str, ...] | None = var_list
    else:
        pattern = tuple(var_list)
    if pattern == ():
        raise SpecError(
            "minimize: var_list is empty, so nothing would be trained. Name variables "
            "by regular expressions, or leave it out to train all."
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
        is that of Keras' legacy optimizer.
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
        f"expected an optimizer, got {type(made).__name__}: {shown(made)}. Accepted "
        "are an estimax optimizer (optimizers.Adagrad(0.05)), an optax transformation, "
        f"a name ({', '.join(_NAMES)}), or a function without arguments that returns "
        "one."
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
