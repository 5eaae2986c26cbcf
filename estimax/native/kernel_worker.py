"""The process that compiles kernels beside a program: `native.background` starts it.

It receives names of modules, and answers when Numba's cache has all of their functions.
"""

from __future__ import annotations

import os
import warnings


def main() -> None:
    """Compile modules of kernels until the process that started this one ends."""
    # Errors are messages, which the log of the program shows once.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # The program goes on meanwhile, and should not notice.
    if hasattr(os, "nice"):
        os.nice(5)
    # Kernels that XLA calls import jax, which must not take a GPU for that.
    os.environ["JAX_PLATFORMS"] = "cpu"
    from estimax.storage.worker_pool import ParentPipe

    pipe = ParentPipe()
    while True:
        name = pipe.receive()["compile"]
        pipe.send({"error": _compile(name)})


def _compile(name: str) -> str | None:
    """Compile a module; return what went wrong, or None."""
    from estimax.native import loading

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loading.compile_module(name)
    # Any exception: a compiler may fail in many ways, and the program that asked for
    # the kernels says it and goes on without them.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    main()
