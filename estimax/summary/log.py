"""Values that a model wants seen, named inside its `model_fn`.

    def model_fn(features, labels, mode):
        ...
        ex.summary.scalar("accuracy", accuracy)
        ex.summary.histogram("logits", logits)

Hooks write them (`SummarySaverHook`) and can ask for them by name. What is only to be
asked for is named by `log_value`. Outside of a `model_fn` that estimax runs, in a unit
test say, these calls do nothing.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax import staging
from estimax.core.errors import SpecError
from estimax.core.spec import ModeKeys

# A histogram of 10,000 values looks like one of all, and is brought to the host fast.
_SAMPLE = 10_000


def scalar(name: str, value: ArrayLike) -> None:
    """Log a number under a name; a name used before gets `_1`, `_2`, … appended.

    >>> scalar("accuracy", 0.5)  # no model_fn is running: nothing happens
    """
    array = jnp.asarray(value)
    if array.size != 1:
        raise SpecError(
            f"summary.scalar({name!r}): expected one number, got shape {array.shape}. "
            "Reduce it with jnp.mean, or use summary.histogram."
        )
    _log(name, staging.LoggedValue("scalar", array.reshape(())))


def histogram(name: str, value: ArrayLike) -> None:
    """Log the distribution of an array under a name.

    Of more than ten thousand values, of a sample of them: it looks the same.

    >>> histogram("logits", jnp.zeros((2, 3)))
    """
    if _is_watched():
        flat = jnp.asarray(value).reshape(-1)
        flat = flat[:: stride_of_sample(flat.size)]
        _log(name, staging.LoggedValue("histogram", flat))


def stride_of_sample(size: int) -> int:
    """Every how many values to look at one, to see about ten thousand.

    Odd: a stride that shares a factor with the width of a layer would look at few of
    its columns.

    >>> stride_of_sample(9_999), stride_of_sample(1_000_000)
    (1, 101)
    """
    return (size // _SAMPLE) | 1


def image(name: str, value: ArrayLike, max_outputs: int = 3) -> None:
    """Log the first images of a batch [B, H, W, C], C being 1, 3 or 4.

    Bytes (uint8) are shown as they are; other numbers are scaled, image by image.

    >>> image("digits", jnp.zeros((8, 28, 28, 1)))
    """
    array = jnp.asarray(value)
    if array.ndim != 4 or array.shape[-1] not in (1, 3, 4):
        raise SpecError(
            f"summary.image({name!r}): expected shape [B, H, W, C] with 1, 3 or 4 "
            f"channels, got {array.shape}."
        )
    if max_outputs < 1:
        raise SpecError(f"summary.image({name!r}): max_outputs must be at least 1.")
    if _is_watched():
        _log(name, staging.LoggedValue("image", array[:max_outputs]))


def text(name: str, value: str) -> None:
    """Log a fixed text, known when the model is traced.

    >>> text("about", "two **towers**")
    """
    if not isinstance(value, str):
        raise SpecError(
            f"summary.text({name!r}): expected a str, got {type(value).__name__}. "
            "Text cannot be computed on a device."
        )
    _log(name, staging.LoggedValue("text", value))


def log_value(name: str, value: ArrayLike) -> None:
    """Name a value of any shape for hooks to ask for; nothing is written by itself.

    `LoggingTensorHook({"norm": "norm"}, every_n_iter=10)` logs it, and any hook gets it
    by returning its name from `before_run`. It is brought to the host only then. Of
    steps that ran in one loop (`iterations_per_loop`) a hook gets the last one's.

    >>> log_value("norm", jnp.float32(2.0))  # no model_fn is running: nothing happens
    """
    trace = staging.current()
    if trace is None:
        return
    if name in trace.logged or name in ("loss", "global_step", "step"):
        raise SpecError(
            f"log_value: {name!r} already names a value of this model. Hooks ask by "
            "name: give each value its own."
        )
    trace.logged[name] = staging.LoggedValue("value", jnp.asarray(value))


def _is_watched() -> bool:
    """Whether somebody could look: predictions have no summaries.

    In an export, which is one, sizes are symbols, and no sample can be taken.
    """
    trace = staging.current()
    return trace is not None and trace.mode != ModeKeys.PREDICT


def _log(name: str, value: staging.LoggedValue) -> None:
    trace = staging.current()
    if trace is None:
        return
    unique, number = name, 0
    while unique in trace.logged:
        number += 1
        unique = f"{name}_{number}"
    trace.logged[unique] = value
