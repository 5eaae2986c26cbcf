"""What a trained run left in its model directory: config, data and metrics.

past = read_run(Path("runs/flights"))
past.metrics["eval/auc"]
differing([past, other])             # addresses whose values differ
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimax.config.dump import leaves
from estimax.config.load import load
from estimax.config.saved import saved_run
from estimax.config.tables import find_files
from estimax.core.errors import EstimaxError, MissingFileError

ABSENT = object()
# What every run has for itself, or what says nothing about the model.
_NOT_COMPARED = ("name", "run.model_dir", "sweep", "metadata", "run.on_existing")


@dataclass(frozen=True)
class PastRun:
    """A trained run, as its model directory describes it."""

    path: Path
    step: int
    config: Mapping[str, Any]  # by address
    data: Mapping[str, Any]  # sizes of files, rows and words that were counted
    metrics: Mapping[str, float]  # of the last evaluation of each name; "eval" is first
    environment: Mapping[str, Any]


def read_run(path: Path) -> PastRun:
    """Return what is known about the run in a model directory.

    Raises:
      MissingFileError: The folder was not made by `estimax train`.
      ConfigError: A file in it is damaged.
    """
    resolved = path / "config" / "resolved.yaml"
    if not resolved.is_file():
        what = "no folder" if not path.is_dir() else "a folder without it"
        raise MissingFileError(
            f"{path}: expected a model directory of `estimax train`, which has "
            f"config/resolved.yaml; found {what}."
        )
    config = dict(leaves(saved_run(resolved)))
    metrics, step = _metrics(path, _first_evaluation(config))
    environment = _json(path / "config" / "environment.json")
    versions = {k: v for k, v in environment.items() if k in ("python", "platform")}
    versions |= environment.get("packages", {})
    return PastRun(path, step, config, _data(path), metrics, versions)


def expand_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the model directories; the folder of a sweep stands for its trials."""
    found: list[Path] = []
    for path in paths:
        if (path / "sweep.json").is_file():
            trials = sorted(path.glob("trials/*/config/resolved.yaml"))
            found += [trial.parents[1] for trial in trials]
        else:
            found.append(path)
    return found


def differing(maps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all mappings.

    >>> differing([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    ['b']
    """
    keys = dict.fromkeys(key for values in maps for key in values)
    return [
        key
        for key in keys
        if any(values.get(key, ABSENT) != maps[0].get(key, ABSENT) for values in maps)
    ]


def values_to_compare(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config that are worth comparing."""
    return {
        key: value
        for key, value in config.items()
        if not any(key == skip or key.startswith(f"{skip}.") for skip in _NOT_COMPARED)
    }


def _first_evaluation(config: Mapping[str, Any]) -> str:
    """Return the folder of the evaluation of the section `eval` itself.

    It has a name if there are several. In `metrics` it is always "eval", so that runs
    with one evaluation and with several can be compared.
    """
    several = any(key.startswith(("eval.also.", "eval.slices.")) for key in config)
    name = config.get("eval.name") or (config.get("eval.source") if several else None)
    return f"eval_{name}" if name else "eval"


def _metrics(path: Path, first: str) -> tuple[dict[str, float], int]:
    """Return the metrics of the last evaluations, and the last step."""
    from estimax import checkpoints
    from estimax.hooks.summary import read_scalars

    found: dict[str, float] = {}
    latest = checkpoints.latest(path)
    step = 0 if latest is None else checkpoints.step_of(latest)
    for folder in sorted(path.glob("eval*/")):
        title = "eval" if folder.name == first else folder.name
        for name, history in read_scalars(folder).items():
            if history:
                found[f"{title}/{name}"] = history[-1][1]
    return found, step


def _data(path: Path) -> dict[str, Any]:
    """Return sizes of the data: what the run counted, and its files as they are now."""
    found: dict[str, Any] = {}
    statistics = _json(path / "config" / "statistics.json").get("statistics", {})
    for name, words in statistics.get("vocabularies", {}).items():
        found[f"words of {name}"] = len(words)
    for name, moments in statistics.get("raw", {}).items():
        found[f"values of {name}"] = moments.get("count")
        found[f"mean of {name}"] = moments.get("mean")
    try:
        run = load(path / "config" / "resolved.yaml").run
    except EstimaxError:
        return found
    for name, source in run.data.sources.items():
        try:
            files = find_files(source, name)
        except EstimaxError:
            found[f"{name}: files"] = "not there any more"
            continue
        found[f"{name}: files"] = len(files)
        found[f"{name}: bytes"] = sum(os.path.getsize(file) for file in files)
    return found


def _json(path: Path) -> dict[str, Any]:
    """Return a JSON object that a run has saved; empty if there is none."""
    try:
        saved = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return saved if isinstance(saved, dict) else {}
