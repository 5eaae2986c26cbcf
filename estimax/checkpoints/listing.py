"""What a model_dir contains: its checkpoints, and the mark of the end of training.

    path = listing.latest(model_dir)                  # None when there is none
    checkpoint = listing.restore_latest(model_dir)
    listing.read_finished(model_dir)                  # Finished(step, reason), or None

Functions list the folder itself. The file `checkpoint` in it holds the same list for
people and other tools; nothing depends on it.

An evaluator in another process waits for new checkpoints. The mark, a file with step
and reason, tells it that no more will follow. The next run removes the mark when it
begins.
"""

from __future__ import annotations

import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from estimax.checkpoints import format as formats
from estimax.checkpoints.format import Checkpoint, Manifest
from estimax.core.errors import CheckpointError, MissingFileError
from estimax.parallel.processes import Processes
from estimax.storage import atomic, json_text
from estimax.storage.atomic import Pathish

STATE_FILE = "checkpoint"
PREFIX = "model.ckpt-"
# A checkpoint that contains a file of this name is never removed. `Saver` makes it for
# `keep_every_n_hours`; users make it by hand (`touch`) to keep any other checkpoint.
KEEP_MARK = "keep"
FINISHED_FILE = "training_finished.json"
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
        # If the folder is gone, the process that trains has removed it since the
        # listing, as it does with old checkpoints. That is no damage.
        if path.is_dir():
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
    # The list of the chief is used by all: a network drive may show an older list to
    # another process, and each would restore a different step.
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


def _folders(model_dir: Pathish) -> list[Path]:
    """Return the folders with the name of a checkpoint, by step."""
    try:
        entries = list(Path(model_dir).iterdir())
    except FileNotFoundError:
        return []
    # Temporary folders have other names, so a write in progress is never listed.
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
        # Divided, because each process verifying all files would read n times as much.
        mine = sorted(manifest.files)[peers.index :: peers.count]
        formats.verify(path, manifest, mine)
    except (CheckpointError, OSError) as error:
        problem = str(error)
    # Every process gathers, also one with a problem, and all raise for the same one:
    # together they go on to the checkpoint before it.
    for found in peers.gather("restore", problem):
        if found is not None:
            raise CheckpointError(found)
    assert manifest is not None, "there was no problem"
    arrays = {n: formats.SavedArray(path, n, e) for n, e in manifest.arrays.items()}
    return Checkpoint(manifest.step, arrays, manifest.extra)


def _read_manifest(path: Path) -> Manifest:
    manifest = formats.read_manifest(path)
    # The name decides which checkpoint is the latest, the manifest which step it is.
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


@dataclass(frozen=True)
class Finished:
    """The step at which training ended, and the reason."""

    step: int
    reason: str


def mark_finished(model_dir: Pathish, step: int, reason: str) -> None:
    """Write the file that marks the end of training.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mark_finished(folder, 100, "enough")
    ...     read_finished(folder)
    Finished(step=100, reason='enough')
    """
    atomic.write_json(Path(model_dir) / FINISHED_FILE, asdict(Finished(step, reason)))


def read_finished(model_dir: Pathish) -> Finished | None:
    """Return step and reason of the end of training; None if it has not ended."""
    try:
        content = json_text.parse((Path(model_dir) / FINISHED_FILE).read_bytes())
        return Finished(json_text.whole(content, "step"), str(content["reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{Path(model_dir) / FINISHED_FILE}: expected the step and reason of the "
            f"end of training, found other content ({error}). Remove the file."
        ) from error


def forget_finished(model_dir: Pathish) -> None:
    """Remove the mark, because training continues."""
    (Path(model_dir) / FINISHED_FILE).unlink(missing_ok=True)
