"""Load compiled kernels at first use, after a comparison with the reference.

    kernels = loading.kernels("hashing", proof=_agrees)
    if kernels is None:
        return reference.fingerprints(data, offsets)
    kernels.fingerprints(data, offsets, out)

A module of kernels is used only if it gives the result of the reference on a tiny case.
If it cannot be imported, fails or differs, it is switched off for the rest of the
process, with one warning that names the versions. `ESTIMAX_NATIVE=off` switches all of
them off.

Numba keeps compiled code beside the source, in `__pycache__`, which `pip install`
removes. A copy in the cache folder of the user is named by the content of the source,
so that other environments and versions find it as well. Numba compares the content and
its own version before it uses a file, and the processor too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import logging
import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from estimax.core.errors import ConfigError
from estimax.core.machine import user_cache_folder

_KERNELS = Path(__file__).parent / "kernels"
# Modules whose functions and constants are compiled into several modules of kernels.
_SHARED = [
    *(_KERNELS / name for name in ("call_frames.py", "memory.py", "protos.py")),
    *(_KERNELS.parent / "reference" / name for name in ("hashing.py", "records.py")),
]
_log = logging.getLogger("estimax")

# Read once, because a lookup in the environment takes longer than the checks here.
setting = os.environ.get("ESTIMAX_NATIVE", "on")

_lock = threading.RLock()
_loaded: dict[str, ModuleType | None] = {}

Proof = Callable[[ModuleType], bool]


def is_on() -> bool:
    """Return whether compiled kernels may be used: `ESTIMAX_NATIVE` is not "off".

    Raises:
      ConfigError: `ESTIMAX_NATIVE` is neither "on" nor "off".
    """
    if setting == "on":  # the fast path: called several times for every batch
        return True
    if setting != "off":
        raise ConfigError(
            f"ESTIMAX_NATIVE={setting!r}: expected 'on' (compiled kernels, the "
            "default) or 'off' (the same in NumPy and XLA)."
        )
    return False


def kernels(name: str, proof: Proof) -> ModuleType | None:
    """Return a module of `native.kernels`, or None if the reference must be used.

    Args:
      name: The module's name, e.g. "hashing".
      proof: Called once per process with the module; returns whether it gives the
        result of the reference on a tiny case.
    """
    if not is_on():
        return None
    if name not in _loaded:  # safe without the lock, because entries are never removed
        with _lock:
            if name not in _loaded:
                _loaded[name] = _proven(name, proof)
    return _loaded[name]


def is_loaded(name: str) -> bool:
    """Return whether a module of kernels has been loaded, so that calls are cheap."""
    return _loaded.get(name) is not None and is_on()


def _proven(name: str, proof: Proof) -> ModuleType | None:
    source = _KERNELS / f"{name}.py"
    try:
        is_compiled = is_cached(source)
        module = _import(name, is_compiled)
        if proof(module):
            _announce()
            if not is_compiled:
                keep(source, _SHARED)
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


def _import(name: str, is_compiled: bool) -> ModuleType:
    # Imported here and not at `import estimax`: Numba alone takes half a second.
    if not is_compiled:
        _log.info("compiling native kernels %r (once per machine, ~10 seconds)", name)
    return importlib.import_module(f"estimax.native.kernels.{name}")


def _indices(source: Path) -> Iterator[Path]:
    return (source.parent / "__pycache__").glob(f"{source.stem}.*.nbi")


def is_cached(source: Path) -> bool:
    """Return whether Numba's cache has a module in its present form.

    Look in the user's cache folder as well, for what an earlier installation compiled.
    Cache indices that are older than a shared module are removed: Numba itself only
    compares the time of the file that a kernel is in.
    """
    # If this directory is read-only, Numba's cache is elsewhere, and False is returned
    # although the module may be cached. The only effect is a superfluous log line.
    indices = list(_indices(source))
    newest = max(file.stat().st_mtime for file in (source, *_SHARED))
    stale = [file for file in indices if file.stat().st_mtime < newest]
    for file in stale:
        with contextlib.suppress(OSError):
            file.unlink()
    if len(stale) < len(indices):
        return True
    fetch(source, _SHARED)
    return any(_indices(source))


def fetch(source: Path, shared: Iterable[Path]) -> None:
    """Copy what was compiled from this source to where Numba looks for it."""
    with contextlib.suppress(OSError, RuntimeError):  # a cache that cannot be used
        _copy(_folder(source, shared), _beside(source), source.stem)


def keep(source: Path, shared: Iterable[Path]) -> None:
    """Copy what Numba has compiled from this source to the cache folder."""
    with contextlib.suppress(OSError, RuntimeError):
        _copy(_beside(source), _folder(source, shared), source.stem)


def _beside(source: Path) -> Path:
    return source.parent / "__pycache__"


def _folder(source: Path, shared: Iterable[Path]) -> Path:
    digest = hashlib.sha256()
    for path in (source, *shared):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    with contextlib.suppress(PackageNotFoundError):
        digest.update(version("numba").encode())
    name = f"{source.stem}-{digest.hexdigest()[:16]}"
    return user_cache_folder() / "estimax" / "kernels" / name


def _copy(here: Path, there: Path, stem: str) -> None:
    # Data first: an index without its data would be compiled again.
    files = [*here.glob(f"{stem}.*.nbc"), *here.glob(f"{stem}.*.nbi")]
    if not files:
        return
    there.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in files:
        # Renamed when it is complete: other processes read the folder meanwhile.
        handle, made = tempfile.mkstemp(dir=there)
        os.close(handle)
        shutil.copyfile(file, made)
        os.replace(made, there / file.name)
