"""Load compiled kernels at first use, after a comparison with the reference.

    kernels = loading.kernels("hashing", proof=_agrees)
    if kernels is None:
        return reference.fingerprints(data, offsets)
    kernels.fingerprints(data, offsets, out)

A module of kernels is used only if it gives the result of the reference on a tiny case.
If it cannot be imported, fails or differs, it is switched off for the rest of the
process, with one warning that names the versions. `ESTIMAX_NATIVE=off` switches all of
them off.

Nobody waits for the compiler: a module that this machine has not compiled yet is
compiled by a child process (`background`), and the reference is used until then. It
gives the same bits. `ESTIMAX_NATIVE=wait` compiles at first use, as benchmarks and
tests want it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import platform
import threading
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from estimax.core.errors import ConfigError
from estimax.native import background, kernel_cache

_log = logging.getLogger("estimax")

# Read once, because a lookup in the environment takes longer than the checks here.
setting = os.environ.get("ESTIMAX_NATIVE", "on")

_lock = threading.RLock()
_loaded: dict[str, ModuleType | None] = {}
_compiling: set[str] = set()  # modules that the child process compiles

Proof = Callable[[ModuleType], bool]


def is_on() -> bool:
    """Return whether compiled kernels may be used: `ESTIMAX_NATIVE` is not "off".

    Raises:
      ConfigError: `ESTIMAX_NATIVE` is not "on", "wait" or "off".
    """
    if setting == "on":  # the fast path: called several times for every batch
        return True
    if setting not in ("off", "wait"):
        raise ConfigError(
            f"ESTIMAX_NATIVE={setting!r}: expected 'on' (compiled kernels as soon as "
            "they are compiled, the default), 'wait' (wait for the compiler) or 'off' "
            "(the same in NumPy and XLA)."
        )
    return setting == "wait"


def wait_for_compiler() -> None:
    """Compile kernels at first use from now on, unless they are switched off.

    For programs that prepare a machine, and for those that measure.
    """
    global setting
    if setting == "on":
        setting = "wait"


def kernels(
    name: str, proof: Proof, *, waits: bool = False, replaces: bool = True
) -> ModuleType | None:
    """Return a module of `native.kernels`, or None if the reference must be used.

    Args:
      name: The module's name, e.g. "hashing".
      proof: Called once per process with the module; returns whether it gives the
        result of the reference on a tiny case.
      waits: Whether to wait for the compiler, if this machine has not compiled the
        module yet: for work that takes the reference longer than that.
      replaces: Whether this process uses the module when it was compiled meanwhile. If
        not, the next process does.
    """
    if not is_on():
        return None
    # Both are safe without the lock. An entry of `_loaded` is never removed.
    if name in _loaded:
        return _loaded[name]
    if name in _compiling and not waits:
        return None
    with _lock:
        if name not in _loaded:
            source = kernel_cache.source_of(name)
            if waits or not _is_patient() or kernel_cache.is_complete(source):
                _loaded[name] = _proven(name, proof)
            elif name not in _compiling:
                _compile_later(name, proof, replaces)
    return _loaded.get(name)


def _is_patient() -> bool:
    """Return whether the reference may be used until a module is compiled."""
    return setting != "wait" and background.can_compile()


def _compile_later(name: str, proof: Proof, replaces: bool) -> None:
    _log.info(
        "compiling native kernels %r beside this program (once per machine, about 10 "
        "seconds); slower code with the same results is used until then",
        name,
    )
    _compiling.add(name)
    if not replaces:
        _loaded[name] = None
    background.request(name, partial(_replace, name, proof), is_urgent=replaces)


def _replace(name: str, proof: Proof, problem: str | None) -> None:
    """Use a module from now on, which the child process has compiled."""
    with _lock:
        if problem is not None:
            log_turned_off(name, problem)
            _loaded[name] = None
        elif name not in _loaded:
            _loaded[name] = _proven(name, proof)
        _compiling.discard(name)


def is_loaded(name: str) -> bool:
    """Return whether a module of kernels has been loaded, so that calls are cheap."""
    return _loaded.get(name) is not None and is_on()


def compile_module(name: str) -> ModuleType:
    """Import a module of kernels; compile it if this machine has not done so."""
    source = kernel_cache.source_of(name)
    is_complete = kernel_cache.is_complete(source)
    # Imported here and not at `import estimax`: Numba alone takes half a second.
    if not is_complete:
        _log.info("compiling native kernels %r (once per machine, ~10 seconds)", name)
    module = importlib.import_module(f"estimax.native.kernels.{name}")
    if not is_complete:
        kernel_cache.complete(source)
    return module


def _proven(name: str, proof: Proof) -> ModuleType | None:
    try:
        module = compile_module(name)
        if proof(module):
            _announce()
            return module
        reason = "a test case gave another result than the reference"
    # Any exception: a compiler, or the code that it made, may fail in many ways, and
    # the reference works in all of them.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    log_turned_off(name, reason)
    return None


@functools.cache
def _announce() -> None:
    _log.debug("native kernels are on: test cases agree (%s)", versions())


def log_turned_off(name: str, reason: str) -> None:
    """Log that kernels are switched off for the rest of the process."""
    _log.warning(
        "native kernels %r are off for this process: %s (%s). Results are the same "
        "without them, training and reading are slower. ESTIMAX_NATIVE=off turns all "
        "of them off without this warning.",
        name,
        reason,
        versions(),
    )


def versions() -> str:
    """Return the versions of the packages that compiled code depends on."""
    found = [f"Python {platform.python_version()}"]
    for package in ("numba", "llvmlite", "numpy", "jax", "jaxlib"):
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def _start_again() -> None:
    global _lock
    # A thread that holds the lock is not copied by a fork, and would never release it.
    _lock = threading.RLock()
    _compiling.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
