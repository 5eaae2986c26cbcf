"""Log values from inside a `model_fn`, for summaries and hooks.

    def model_fn(features, labels, mode):
        ...
        ex.summary.scalar("accuracy", accuracy)
        ex.summary.histogram("logits", logits)

`SummarySaverHook` writes the values to event files, and every hook can request them by
name. `log_value` names a value for hooks alone. These calls do nothing outside of a
`model_fn` that estimax runs, such as in a unit test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax import staging
from estimax.core.errors import SpecError
from estimax.core.spec import ModeKeys
from estimax.staging import variables

# A histogram of 10,000 values looks like one of all values, and copies less from the
# device.
_SAMPLE = 10_000


def scalar(name: str, value: ArrayLike) -> None:
    """Log a number under a name, from inside a `model_fn`.

    Use it for values to plot over the steps in TensorBoard. It does nothing outside of
    a `model_fn` that estimax runs.

    Args:
      name: The tag in TensorBoard, after the name of the open variable scope. If the
        model used it before, `_1`, `_2` and so on is appended.
      value: One number, of shape [] or [1].

    Raises:
      SpecError: `value` is not one number.

    Example:
      >>> import estimax as ex
      >>> def model_fn(features, labels, mode):
      ...     ex.summary.scalar("mean_age", features["age"].mean())
      ...     ...
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
    """Log the distribution of the values of an array, from inside a `model_fn`.

    Use it to see how logits or activations change during training. Of an array with
    more than 10,000 values, a sample of about 10,000 is logged.

    Args:
      name: The tag in TensorBoard, after the name of the open variable scope. If the
        model used it before, `_1`, `_2` and so on is appended.
      value: An array of any shape.

    Example:
      >>> histogram("logits", jnp.zeros((2, 3)))  # no model_fn is running
    """
    if _is_watched():
        flat = jnp.asarray(value).reshape(-1)
        # An exported evaluation has a free batch size, and nobody reads logged values.
        if isinstance(flat.size, int):
            flat = flat[:: stride_of_sample(flat.size)]
        _log(name, staging.LoggedValue("histogram", flat))


def stride_of_sample(size: int) -> int:
    """Return the stride that takes a sample of about 10,000 values of an array.

    The stride is odd. An even one would share a factor with the width of most layers,
    and the sample would hold few of their columns.

    Args:
      size: The number of values of the array.

    Returns:
      A stride of at least 1.

    Example:
      >>> stride_of_sample(9_999), stride_of_sample(1_000_000)
      (1, 101)
    """
    return (size // _SAMPLE) | 1


def image(name: str, value: ArrayLike, max_outputs: int = 3) -> None:
    """Log the first images of a batch, from inside a `model_fn`.

    Args:
      name: The tag in TensorBoard, after the name of the open variable scope. If the
        model used it before, `_1`, `_2` and so on is appended.
      value: Images [B, H, W, C] with 1, 3 or 4 channels. uint8 is written unchanged;
        other numbers are scaled to 0…255, each image by itself.
      max_outputs: How many images of the batch to log, at least 1.

    Raises:
      SpecError: `value` has another shape, or `max_outputs` is less than 1.

    Example:
      >>> image("digits", jnp.zeros((8, 28, 28, 1)))  # no model_fn is running
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


def audio(name: str, value: ArrayLike, sample_rate: int, max_outputs: int = 3) -> None:
    """Log the first sounds of a batch, from inside a `model_fn`.

    TensorBoard plays them. They are written as WAV files of 16 bits.

    Args:
      name: The tag in TensorBoard, after the name of the open variable scope. If the
        model used it before, `_1`, `_2` and so on is appended.
      value: Samples within [-1, 1], of shape [B, T] or [B, T, C] for C channels.
        Samples outside of the range are clipped.
      sample_rate: Samples per second, such as 16000; a Python number.
      max_outputs: How many sounds of the batch to log, at least 1.

    Raises:
      SpecError: `value` has another shape, or `sample_rate` or `max_outputs` is less
        than 1.

    Example:
      >>> audio("spoken", jnp.zeros((8, 16000)), 16000)  # no model_fn is running
    """
    array = jnp.asarray(value)
    if array.ndim not in (2, 3):
        raise SpecError(
            f"summary.audio({name!r}): expected shape [B, T] or [B, T, C], got "
            f"{array.shape}."
        )
    if min(int(sample_rate), max_outputs) < 1:
        raise SpecError(
            f"summary.audio({name!r}): sample_rate and max_outputs must be at least 1, "
            f"got {sample_rate} and {max_outputs}."
        )
    if _is_watched():
        kind = f"audio/{int(sample_rate)}"
        _log(name, staging.LoggedValue(kind, array[:max_outputs]))


def text(name: str, value: str) -> None:
    """Log a fixed text, from inside a `model_fn`.

    The text is the same at every step, because the model is traced once.

    Args:
      name: The tag in TensorBoard, after the name of the open variable scope. If the
        model used it before, `_1`, `_2` and so on is appended.
      value: The text, which TensorBoard renders as Markdown.

    Raises:
      SpecError: `value` is not a `str`.

    Example:
      >>> text("about", "two **towers**")  # no model_fn is running
    """
    if not isinstance(value, str):
        raise SpecError(
            f"summary.text({name!r}): expected a str, got {type(value).__name__}. "
            "Text cannot be computed on a device."
        )
    _log(name, staging.LoggedValue("text", value))


def log_value(name: str, value: ArrayLike) -> None:
    """Name a value inside a `model_fn` so that hooks can request it.

    Nothing is written by itself. `LoggingTensorHook({"norm": "norm"}, every_n_iter=10)`
    logs the value, and every hook gets it by returning its name from `before_run`. It
    is copied to the host only then. If several steps ran in one compiled loop
    (`iterations_per_loop`), a hook gets the value of the last step.

    Args:
      name: The name that hooks request, unique in the model.
      value: An array of any shape.

    Raises:
      SpecError: `name` is in use, or is "loss", "global_step" or "step".

    Example:
      >>> log_value("norm", jnp.float32(2.0))  # no model_fn is running
    """
    trace = staging.current()
    if trace is None:
        return
    if name in trace.logged or name in ("loss", "global_step", "step"):
        raise SpecError(
            f"log_value: {name!r} already names a value of this model. Choose another "
            "name: hooks request values by name."
        )
    trace.logged[name] = staging.LoggedValue("value", jnp.asarray(value))


_carries_scope: ContextVar[bool] = ContextVar("estimax_tag_scope", default=True)


@contextmanager
def unscoped() -> Iterator[None]:
    """Log under names as they are given, whatever variable scope is open."""
    token = _carries_scope.set(False)
    try:
        yield
    finally:
        _carries_scope.reset(token)


def _is_watched() -> bool:
    """Return whether summaries are logged: in training and evaluation."""
    trace = staging.current()
    return trace is not None and trace.mode != ModeKeys.PREDICT


def _log(name: str, value: staging.LoggedValue) -> None:
    """Record a value under `name`, or under `name_1`, `name_2`, … if that is taken."""
    trace = staging.current()
    if trace is None:
        return
    scope = variables.get_variable_scope().name if _carries_scope.get() else ""
    # A model of several in one has its own summaries, which are named after it.
    scope = f"{scope}/".removeprefix(f"{variables.model_top()}/").removesuffix("/")
    name = f"{scope}/{name}" if scope else name
    unique, number = name, 0
    while unique in trace.logged:
        number += 1
        unique = f"{name}_{number}"
    trace.logged[unique] = value
