"""What hooks request and receive: names in any structure, and values in the same one.

    names_in({"a": "loss", "b": ["global_step"]})       # ["loss", "global_step"]
    RunValues.of("loss", {"loss": 0.5}).results         # 0.5

`before_run` returns names: a string, a list, a dict, or `SessionRunArgs` as in
tf.estimator. `after_run` receives `RunValues`, a dict of the values by name whose
`results` have the structure of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEP_NAMES = ("global_step", "step")  # known on the host, so not fetched


@dataclass(frozen=True)
class SessionRunArgs:
    """What `before_run` of a hook requests, in the form of tf.estimator.

    Returning the names alone is shorter: `return ["loss"]`.

    Args:
      fetches: A name, or a list or dict of names: "loss", "global_step", a variable, a
        summary, or a value that the model logs with `ex.log_value`.
      feed_dict: Must be None, because there are no placeholders. Yield the values from
        the `input_fn`, as features.
      options: Ignored.

    Raises:
      TypeError: `fetches` holds something other than names, or `feed_dict` is given.

    Example:
      >>> SessionRunArgs({"cost": "loss"}).fetches
      {'cost': 'loss'}
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None

    def __post_init__(self) -> None:
        names_in(self.fetches, "SessionRunArgs")
        if self.feed_dict:
            raise TypeError(
                "SessionRunArgs: feed_dict must be None, because there are no "
                "placeholders to feed. Yield the values from the input_fn, as features."
            )


class RunValues(dict[str, Any]):
    """The values that a hook has requested: a dict by name, as NumPy arrays.

    `after_run` of a hook receives it. `results` has the values in the structure that
    `before_run` returned, as in tf.estimator.

    Example:
      >>> values = RunValues.of(["loss", "step"], {"loss": 0.5, "step": 3})
      >>> values["loss"], values.results
      (0.5, [0.5, 3])
    """

    results: Any = None
    options: None = None
    run_metadata: None = None

    @staticmethod
    def of(wanted: Any, found: Mapping[str, Any]) -> RunValues:
        """Return the values of a request, taken from `found`.

        Args:
          wanted: What `before_run` returned.
          found: Values by name, without the ":0" of a tensor's name. More than those
            requested may be there.
        """
        names = names_in(wanted)
        values = RunValues({name: found[plain_name(name)] for name in names})
        values.results = replace_names(wanted, values.__getitem__)
        return values


def is_observed(name: str, logged: Mapping[str, str]) -> bool:
    """Return whether a value is computed only if a hook requests it.

    `logged` has the kind of each value that the model logs; see `RunContext.logged`. A
    step returns the loss and the values of `ex.log_value`, whose kind is "value". For
    others the model runs once more, in all processes of a cluster.

    >>> logged = {"loss": "scalar", "accuracy": "scalar", "margin": "value"}
    >>> [name for name in logged if is_observed(name, logged)]
    ['accuracy']
    """
    return name != "loss" and logged.get(name, "value") != "value"


def names_in(wanted: Any, where: str = "before_run of a hook") -> list[str]:
    """Return the names in a request; raise TypeError for anything but names."""
    if wanted is None:
        return []
    if isinstance(wanted, str):
        return [wanted]
    if isinstance(wanted, SessionRunArgs):
        return names_in(wanted.fetches, where)
    if isinstance(wanted, Mapping):
        return [n for part in wanted.values() for n in names_in(part, where)]
    if isinstance(wanted, list | tuple | set | frozenset):
        return [n for part in wanted for n in names_in(part, where)]
    raise TypeError(
        f"{where}: expected the names of values, such as 'loss' or ['loss', "
        f"'global_step'], found a value of type {type(wanted).__name__}. There are no "
        "tensors to fetch: name a value in the model_fn with ex.log_value(name, value) "
        "and give that name."
    )


def replace_names(wanted: Any, value_of: Callable[[str], Any]) -> Any:
    """Return a request with each name replaced by its value."""
    if wanted is None or isinstance(wanted, str):
        return None if wanted is None else value_of(wanted)
    if isinstance(wanted, SessionRunArgs):
        return replace_names(wanted.fetches, value_of)
    if isinstance(wanted, Mapping):
        return {key: replace_names(part, value_of) for key, part in wanted.items()}
    parts = [replace_names(part, value_of) for part in wanted]
    if hasattr(wanted, "_fields"):  # a named tuple
        return type(wanted)(*parts)
    return tuple(parts) if isinstance(wanted, tuple) else parts


def plain_name(name: str) -> str:
    """Return the name of a value without the ":0" of a tensor's name.

    >>> plain_name("loss:0")
    'loss'
    """
    return name.removesuffix(":0")


def plain_names(wanted: Sequence[Any]) -> set[str]:
    """Return the names in several requests, as the model knows them."""
    return {plain_name(name) for each in wanted for name in names_in(each)}
