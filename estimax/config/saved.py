"""Save the run file in `model_dir/config/`, and compare it when training is resumed.

    claim_model_dir(loaded)        # before training: fail, overwrite or resume

    model_dir/config/source.yaml       the run file as written
                     resolved.yaml     every value, defaults included
                     inferred.json     what was chosen from the data, if anything was
                     overrides.txt     the values of --set, one per line
                     origins.json      where every value was set
                     environment.json  versions of packages, command and machine

A resumed run must describe the same model and the same data. Values listed in `SAFE`
may differ; any other difference is an error that shows it.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from estimax.config.complete import INFERRED_FILE
from estimax.config.dump import dump, leaves, to_plain
from estimax.config.edits import interpolate
from estimax.config.load import LoadedRun, load
from estimax.config.nodes import (
    Budget,
    Problems,
    RunFileError,
    ValueOrigin,
    format_value,
    plain,
)
from estimax.config.parse import FileReader
from estimax.config.schema.run import Run
from estimax.core.errors import ConfigError, EstimaxError
from estimax.storage import atomic, locks

# Addresses whose values change neither the model nor the batches that it is trained on.
SAFE = (
    "name",
    "metadata",
    "include",
    "vars",
    "run",
    "data.prefetch",
    "train.max_steps",
    "train.hooks",
    "eval",
    "early_stopping",
    "export",
    "serving",
    "sweep",
)


@dataclass(frozen=True)
class ConfigChange:
    """A value that differs between the saved run and the new one."""

    path: str
    old: object
    new: object

    def __str__(self) -> str:
        return f"{self.path}: {_format_value(self.old)} -> {_format_value(self.new)}"


_ABSENT = object()
_MOST_CHANGES = 50  # shown in a message


def _format_value(value: object) -> str:
    return "(none)" if value is _ABSENT else format_value(value, most=200)


def config_dir(run: Run) -> Path:
    """Return the directory in which the run file is saved."""
    return Path(run.run.model_dir) / "config"


def claim_model_dir(loaded: LoadedRun) -> list[str]:
    """Prepare the model directory for a run and save the run file in it.

    Returns:
      Remarks to print.

    Raises:
      ConfigError: The directory holds a run and `run.on_existing` is "fail", or that
        run describes another model or other data.
      InUseError: Another process is training in the directory.
    """
    run = loaded.run
    model_dir = Path(run.run.model_dir)
    # First of all, so that nothing changes while another process trains here.
    locks.check_free(model_dir)
    remarks: list[str] = []
    if _is_failed_start(model_dir) and _changes(loaded):
        # Nothing was trained that a corrected run file could contradict.
        _clear(model_dir)
        remarks.append(f"{model_dir}: starting anew, the earlier run took no step")
    elif _is_failed_start(model_dir):
        pass  # resume, or try again what failed
    elif model_dir.is_dir() and any(model_dir.iterdir()):
        if run.run.on_existing == "fail":
            raise ConfigError(
                f"{loaded.origin('run.model_dir')}: run.model_dir: {model_dir} holds a "
                "run already; set run.on_existing to resume or overwrite, or use "
                "another --model-dir."
            )
        if run.run.on_existing == "overwrite":
            _clear(model_dir)
            remarks.append(f"{model_dir}: removed the run that was there (overwrite)")
        else:
            remarks += _check_resume(loaded)
    _save(loaded)
    return remarks


def _is_failed_start(model_dir: Path) -> bool:
    """Return whether a directory holds what a run leaves that has taken no step."""
    if not (model_dir / "config" / "resolved.yaml").is_file():
        return False
    found = {path.name for path in model_dir.iterdir()}
    return all(
        name in _BEFORE_THE_FIRST_STEP or name.startswith("events.out.tfevents")
        for name in found
    )


# What is in a model directory before the first step. A checkpoint of step 0 holds the
# initial weights, which a new start makes again.
_BEFORE_THE_FIRST_STEP = (
    "checkpoint",
    "config",
    "example.json",
    "last_train_call.json",
    "model.ckpt-0",
    locks.FILE,
)


def _clear(model_dir: Path) -> None:
    # Only remove a directory that estimax made: a mistyped model_dir may be the user's
    # home directory.
    if not (model_dir / "config" / "resolved.yaml").is_file():
        raise ConfigError(
            f"run.on_existing: overwrite would remove {model_dir}, which holds no "
            "config/resolved.yaml and so was not made by estimax; remove it yourself."
        )
    shutil.rmtree(model_dir)


def _check_resume(loaded: LoadedRun) -> list[str]:
    saved = config_dir(loaded.run) / "resolved.yaml"
    changes = _changes(loaded)
    if not changes:
        return []
    lines = [str(change) for change in changes[:_MOST_CHANGES]]
    if len(changes) > _MOST_CHANGES:
        lines.append(f"and {len(changes) - _MOST_CHANGES:,} more")
    listed = "\n  ".join(lines)
    if loaded.run.run.on_config_change == "warn":
        return [f"resuming with changes since {saved}:\n  {listed}"]
    raise ConfigError(
        f"{loaded.path} does not describe the run in {loaded.run.run.model_dir}:\n"
        f"  {listed}\n"
        "Undo the changes, train in another --model-dir, or accept them with "
        "--set run.on_config_change=warn."
    )


def _changes(loaded: LoadedRun) -> list[ConfigChange]:
    """Return what differs from the run that is saved; nothing if none is."""
    saved = config_dir(loaded.run) / "resolved.yaml"
    if not saved.is_file():
        return []
    return compare(saved_run(saved), to_plain(loaded.run), loaded.run)


def saved_run(path: Path) -> object:
    """Return a saved run, with the defaults of keys that did not exist when it began.

    A run that this version of the schema refuses is returned as it is.
    """
    try:
        return to_plain(load(path).run)
    except EstimaxError:
        return read_plain(path)


def read_plain(path: Path) -> object:
    """Return the contents of a resolved run file as dicts, lists and scalars.

    Raises:
      ConfigError: The file is damaged: not YAML, not a mapping, or too large.
    """
    problems = Problems(str(path))
    reader = FileReader(problems, Budget())
    try:
        text = reader.text(path, ValueOrigin(str(path), 1, 1))
        tree = None if text is None else reader.tree(path, text)
        # The file has no references; this turns the `$${` that `dump` wrote into `${`.
        resolved = None if tree is None else interpolate(tree, problems, {})
        problems.raise_if_any()
    except RunFileError as error:
        raise ConfigError(
            f"{error}\nestimax wrote this file when the run was started, to compare it "
            "with the run file when training is resumed. Restore it, or use another "
            "--model-dir."
        ) from None
    assert resolved is not None, "a file that cannot be read has a problem"
    return plain(resolved)


def compare(old: object, new: object, run: Run) -> list[ConfigChange]:
    """Return the differences between two runs that are not `SAFE`.

    They are in the order of the new run; values that it lacks come last.
    """
    before, after = dict(leaves(old)), dict(leaves(new))
    paths = [*after, *(path for path in before if path not in after)]
    return [
        ConfigChange(path, before.get(path, _ABSENT), after.get(path, _ABSENT))
        for path in paths
        if not _is_safe(path, run)
        and not _is_same(path, before.get(path, _ABSENT), after.get(path, _ABSENT))
    ]


def _is_same(path: str, old: object, new: object) -> bool:
    """Return whether two values mean the same: an empty list is the same as null."""
    is_epsilon = path.startswith("optimizers.") and path.endswith(".epsilon")
    if is_epsilon and (old, new) == (1e-7, None):
        return True  # older versions saved the number that null stands for
    old, new = (None if value in ([], {}) else value for value in (old, new))
    return old == new


def _is_safe(path: str, run: Run) -> bool:
    if path.startswith("data.sources."):
        if path.endswith((".max_bad_rows", ".max_bad_fraction")):
            return True  # they end a run, and do not change its rows
        # Sources that are only evaluated do not change the weights.
        return not path.startswith(f"data.sources.{run.train.source}.")
    return any(path == safe or path.startswith(f"{safe}.") for safe in SAFE)


def _save(loaded: LoadedRun) -> None:
    folder = config_dir(loaded.run)
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(folder / "source.yaml", loaded.source.encode())
    atomic.write_bytes(folder / "resolved.yaml", dump(loaded.run).encode())
    if loaded.inferred is not None:
        atomic.write_json(folder / INFERRED_FILE, dict(loaded.inferred))
    overrides = "".join(f"{text}\n" for text in loaded.overrides)
    atomic.write_bytes(folder / "overrides.txt", overrides.encode())
    atomic.write_json(folder / "environment.json", environment())
    origins = {path: loaded.origin_of(path) for path, _ in leaves(to_plain(loaded.run))}
    atomic.write_json(folder / "origins.json", origins)


_PACKAGES = ("estimax", "jax", "jaxlib", "flax", "optax", "numpy", "pyarrow", "numba")


def environment() -> Mapping[str, object]:
    """Return versions of packages, the command and the machine, for `_save`."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        # Read from metadata, because importing the packages would take seconds.
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
