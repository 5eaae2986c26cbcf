"""Which optimizer moves which variables: what a `train_op` is in estimax.

    train_op = group(
        minimize(Ftrl(0.2), var_list="linear/"),
        minimize(Adagrad(0.05), var_list="dnn/", clip=Clip(global_norm=5.0)),
    )

Nothing runs here. A TrainOp is a value that the training step reads; variables that
no group matches are frozen and get no slots. The global step advances by one a step,
however many groups there are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import optax

from estimax.core.errors import SpecError, did_you_mean
from estimax.optimizers import constructors
from estimax.optimizers.clipping import Clip, Tree
from estimax.optimizers.optimizer import Optimizer, Schedule


@dataclass(frozen=True)
class Group:
    """An optimizer and its variables: regexes that match the start of their names.

    `clip` is applied to the group's gradients together, before the optimizer's own.
    `pattern` None means every variable.
    """

    pattern: str | tuple[str, ...] | None
    optimizer: Optimizer
    clip: Clip | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regexes as a tuple; one that matches anything for None."""
        if self.pattern is None:
            return ("",)
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern

    def matches(self, name: str) -> bool:
        """Whether a variable of this name belongs to the group."""
        return any(re.match(pattern, name) for pattern in self.patterns)

    def clipped(self, grads: Tree) -> Tree:
        """Clip all gradients of the group, rows of tables among them.

        After this use `optimizer.unclipped`.
        """
        for clip in (self.clip, self.optimizer.clip):
            grads = grads if clip is None else clip(grads)
        return grads


@dataclass(frozen=True)
class TrainOp:
    """How a step updates the variables: the first group that matches one has it.

    `loss` is what `minimize` was given, if anything, so that the training step can
    refuse one which is not the spec's; it takes no part in comparisons.
    """

    groups: tuple[Group, ...]
    loss: Any = field(default=None, compare=False, repr=False)  # a traced scalar


def minimize(
    optimizer: object,
    loss: Any = None,  # a traced scalar
    var_list: str | Sequence[str] | None = None,
    clip: Clip | None = None,
) -> TrainOp:
    """Minimise the loss of the spec over some variables, or all of them.

    `optimizer` is whatever `as_optimizer` accepts. The gradient is always that of the
    spec's loss; `loss` may be passed for likeness with TensorFlow and must be that.

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
            "by regexes, or leave it out to train all."
        )
    made = Group(pattern, as_optimizer(optimizer), clip)
    for regex in made.patterns:
        _check_regex(regex)
    return TrainOp((made,), loss)


def group(*train_ops: object) -> TrainOp:
    """Join train ops into one; a variable goes to the first that matches it.

    >>> len(group(minimize("Ftrl", var_list="linear/"), minimize("Adagrad")).groups)
    2
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
    """Accept a TrainOp, or whatever `as_optimizer` accepts, for all variables.

    >>> as_train_op("Adagrad").groups[0].optimizer.name
    'Adagrad'
    """
    return value if isinstance(value, TrainOp) else minimize(value)


def assign(train_op: TrainOp, names: Sequence[str]) -> dict[str, int | None]:
    """Map each variable's name to the index of its group, or None if it is frozen.

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
            f"minimize: var_list holds {pattern!r}, which is no regex: {error}."
        ) from error


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
    **options: Any,  # whatever the optimizer of that name takes
) -> Optimizer:
    """Make an optimizer from its name, in upper or lower case, and its arguments.

    Without a learning rate it gets the default of Keras' legacy optimizer.

    >>> by_name("adagrad", 0.05).learning_rate
    0.05
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
            f"optimizer {name!r} needs {' and '.join(missing)}. Give the optimizer "
            f"itself: ex.optimizers.{known[name.lower()]}(…)."
        )
    return make(**options)


def as_optimizer(value: object) -> Optimizer:
    """Accept an Optimizer, an optax transformation, a name, or a function making one.

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
        f"expected an optimizer, got {type(made).__name__}: {made!r}. Accepted are an "
        "estimax optimizer (optimizers.Adagrad(0.05)), an optax transformation, a name "
        f"({', '.join(_NAMES)}), or a function without arguments that returns one."
    )
