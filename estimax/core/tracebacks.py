"""Short tracebacks: an error of a user's program shows the frames of that program.

    with short_traceback():
        train(...)

An error in a `model_fn` passes through 200 lines of JAX, Flax and estimax. The block
removes those frames from the traceback of estimax's own errors, whose message says what
is wrong, and of errors that are raised in the user's code. All other errors keep every
frame. `JAX_TRACEBACK_FILTERING=off`, JAX's own switch, keeps them everywhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import jax

from estimax.core.errors import EstimaxError

_HIDDEN = ("estimax", "flax", "jax", "jaxlib", "optax")  # packages
_NOTE_OF_JAX = "JAX has removed its internal frames"


# A class: `contextlib.contextmanager` would raise the error again from a frame of its
# own, with the traceback that it had.
class short_traceback:  # noqa: N801 - used like a function
    """Shorten the traceback of an error that leaves the block."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Replace the traceback of the error."""
        if not isinstance(error, Exception) or traceback is None:
            return
        config: Any = jax.config  # jax leaves its settings without types
        if config.jax_traceback_filtering == "off":
            return
        frames = list(_frames(traceback))
        hidden = _hidden_files()
        if not isinstance(error, EstimaxError) and _is_hidden(frames[-1], hidden):
            return
        # The first frame is the function that has the block: users called it.
        shown = [f for f in frames[1:] if not _is_hidden(f, hidden)]
        error.__traceback__ = _linked([frames[0], *shown])
        _remove_note(error)


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _linked(frames: list[TracebackType]) -> TracebackType | None:
    """Return a traceback of these frames only."""
    linked: TracebackType | None = None
    for frame in reversed(frames):
        linked = TracebackType(linked, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return linked


def _hidden_files() -> tuple[str, ...]:
    """Return the beginnings of the paths of files whose frames are hidden."""
    packages = (sys.modules.get(name) for name in _HIDDEN)
    files = (getattr(package, "__file__", None) for package in packages)
    folders = (os.path.dirname(file) + os.sep for file in files if file)
    return (*folders, contextlib.__file__)


def _is_hidden(frame: TracebackType, hidden: tuple[str, ...]) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith(hidden)


def _remove_note(error: Exception) -> None:
    """Remove JAX's note about its frames, which would be the last lines."""
    notes = getattr(error, "__notes__", None)
    if notes:
        notes[:] = [note for note in notes if _NOTE_OF_JAX not in note]
