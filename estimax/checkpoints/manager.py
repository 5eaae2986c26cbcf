"""The checkpoints of a model_dir: list them, and read the latest intact one.

    path = manager.latest(model_dir)                  # None when there is none
    checkpoint = manager.restore_latest(model_dir)

Functions list the folder itself. The file `checkpoint` in it holds the same list for
people and other tools; nothing depends on it.

Also here: copying a state to the host, and looking for NaN in it, before it is saved.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints.format import Checkpoint, Manifest
from estimax.core.errors import CheckpointError, MissingFileError
from estimax.parallel.processes import Processes
from estimax.storage.atomic import Pathish

STATE_FILE = "checkpoint"
PREFIX = "model.ckpt-"
# A checkpoint that contains a file of this name is never removed. `Saver` makes it for
# `keep_every_n_hours`; users make it by hand (`touch`) to keep any other checkpoint.
KEEP_MARK = "keep"
_FOLDER = re.compile(re.escape(PREFIX) + r"(\d+)")

log = logging.getLogger("estimax")


def path_of(model_dir: Pathish, step: int) -> Path:
    """Return the folder of the checkpoint of a step, which may not exist."""
    return Path(model_dir) / f"{PREFIX}{step}"


def step_of(path: Pathish) -> int:
    """Return the step in the name of a checkpoint's folder."""
    match = _FOLDER.fullmatch(Path(path).name)
    if match is None:
        raise CheckpointError(
            f"{path} is not named like a checkpoint ({PREFIX}<step>)."
        )
    return int(match[1])


def is_checkpoint_name(name: str) -> bool:
    """Return whether a name is that of a checkpoint's folder.

    >>> is_checkpoint_name("model.ckpt-100")
    True
    """
    return _FOLDER.fullmatch(name) is not None


def all_checkpoints(model_dir: Pathish) -> list[Path]:
    """Return the complete checkpoints, oldest step first; only sizes are checked."""
    return [path for path in _folders(model_dir) if _problem(path) is None]


def latest(model_dir: Pathish) -> Path | None:
    """Return the newest complete checkpoint; None if there is none.

    Only sizes are checked. An incomplete checkpoint is logged and skipped.
    """
    for path in reversed(_folders(model_dir)):
        problem = _problem(path)
        if problem is None:
            return path
        if path.is_dir():  # otherwise the process that trains has just removed it
            _report(path, problem)
    return None


def restore_latest(
    model_dir: Pathish, peers: Processes | None = None
) -> Checkpoint | None:
    """Read the newest intact checkpoint; None if the folder has no checkpoints.

    A damaged checkpoint is logged and skipped; it stays on disk. If all are damaged,
    raise CheckpointError: training must not start from nothing without notice.

    With `peers`, all processes return the same checkpoint. Each verifies a part of its
    files; the arrays are `SavedArray`s, whose rows are read when they are needed.
    """
    problems: list[str] = []
    folders = _folders(model_dir)
    if peers is not None:
        names = peers.broadcast("restore", [path.name for path in folders])
        folders = [Path(model_dir) / name for name in names]
    for path in reversed(folders):
        try:
            if peers is None:
                checkpoint = _read_checked(path)
            else:
                checkpoint = _read_together(path, peers)
        except MissingFileError:
            continue  # the process that trains has removed it since the listing
        except (CheckpointError, OSError) as error:
            problems.append(f"{path}: {error}")
            _report(path, error)
            continue
        if problems:
            log.warning("using the earlier checkpoint %s", path)
        return checkpoint
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise CheckpointError(
            f"no checkpoint in {model_dir} can be read:{listed}\n"
            "To start a new model, move them away or use another model_dir."
        )
    return None


def snapshot(
    arrays: Mapping[str, jax.Array], row_counts: Mapping[str, int] | None = None
) -> dict[str, NDArray[Any]]:
    """Copy arrays to the host, so that the next step may overwrite them.

    Arrays named in `row_counts` are cut to that many rows.
    """
    counts = row_counts or {}
    # Start all transfers before waiting for the first.
    for array in arrays.values():
        if isinstance(array, jax.Array):
            array.copy_to_host_async()
    copies = {name: _host_copy(array) for name, array in arrays.items()}
    return copies | {name: copies[name][:rows] for name, rows in counts.items()}


def first_nan(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Return the name of the first array that holds a NaN; infinities are allowed."""
    return next((name for name, array in arrays.items() if _has_nan(array)), None)


def _folders(model_dir: Pathish) -> list[Path]:
    """Return the folders with the name of a checkpoint, by step."""
    try:
        entries = list(Path(model_dir).iterdir())
    except FileNotFoundError:
        return []
    found = [e for e in entries if _FOLDER.fullmatch(e.name) and e.is_dir()]
    return sorted(found, key=step_of)


def _report(path: Path, problem: object) -> None:
    log.warning("skipping a damaged checkpoint, %s: %s", path, problem)


def _problem(path: Path) -> str | None:
    try:
        formats.check_sizes(path, _read_manifest(path))
    except (CheckpointError, OSError) as error:
        return str(error)
    return None


def _read_checked(path: Path) -> Checkpoint:
    try:
        _read_manifest(path)
        return formats.read(path)
    except (CheckpointError, OSError):
        if not path.is_dir():
            raise MissingFileError(f"{path} was removed.") from None
        raise


def _read_together(path: Path, peers: Processes) -> Checkpoint:
    """Open a checkpoint in all processes; raise in all if one finds damage."""
    problem, manifest = None, None
    try:
        manifest = _read_manifest(path)
        formats.check_sizes(path, manifest)
        mine = sorted(manifest.files)[peers.index :: peers.count]
        formats.verify(path, manifest, mine)
    except (CheckpointError, OSError) as error:
        problem = str(error)
    for found in peers.gather("restore", problem):
        if found is not None:
            raise CheckpointError(found)
    assert manifest is not None, "there was no problem"
    arrays = {n: formats.SavedArray(path, n, e) for n, e in manifest.arrays.items()}
    return Checkpoint(manifest.step, arrays, manifest.extra)


def _read_manifest(path: Path) -> Manifest:
    manifest = formats.read_manifest(path)
    if manifest.step != step_of(path):
        raise CheckpointError(
            f"{path / formats.MANIFEST} is of step {manifest.step}, expected "
            f"{step_of(path)}. Was the folder renamed?"
        )
    if not isinstance(manifest.extra, dict | None):
        raise CheckpointError(
            f"{path / formats.MANIFEST} is damaged: extra: expected an object with the "
            f"position of the input, found {type(manifest.extra).__name__}."
        )
    return manifest


def _host_copy(array: Any) -> NDArray[Any]:
    host = np.asarray(array)
    # On a CPU, np.asarray returns the array's own memory, which the next step
    # overwrites. From other devices it has already made a copy.
    shares = not isinstance(array, jax.Array) or any(
        device.platform == "cpu" for device in array.devices()
    )
    return host.copy() if shares else host


def _has_nan(array: NDArray[Any]) -> bool:
    if array.size == 0 or array.dtype.kind in "iub":
        return False
    if array.dtype in (np.float32, np.float64):
        # The minimum of an array with a NaN is NaN. This reads 17 GB/s and allocates no
        # array of booleans, as isnan would.
        with np.errstate(invalid="ignore"):
            return bool(np.isnan(array.min()))
    return bool(np.isnan(array).any())
