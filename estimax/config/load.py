"""Load a run file: read, include, override, interpolate, decode and check.

    loaded = load("run.yaml", overrides=["train.max_steps=500"])
    loaded.run.train.max_steps          # 500
    loaded.origin("train.max_steps")    # --set train.max_steps=500

A file without a model is completed from its data. Nothing here imports jax, so an
invalid file is reported in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from estimax.config.checks import check_run, nearest
from estimax.config.complete import complete_tree, name_tree
from estimax.config.decode import Decoder
from estimax.config.edits import apply_override, interpolate, set_model_dir
from estimax.config.nodes import DEFAULT, Budget, Problems, ValueOrigin
from estimax.config.parse import FileReader
from estimax.config.schema.data import AnySource, PartConfig
from estimax.config.schema.model import (
    BaselineModelConfig,
    CustomModelConfig,
    DnnPart,
    ModelFnConfig,
    SeveralModelsConfig,
    TabularPart,
)
from estimax.config.schema.optimizers import (
    AdagradConfig,
    AdamConfig,
    FtrlConfig,
    PartOptimizers,
)
from estimax.config.schema.run import Run
from estimax.config.schema.section import fields_of
from estimax.config.tables import missing_files
from estimax.core.errors import ConfigError, MissingFileError


@dataclass(frozen=True)
class LoadedRun:
    """A run that passed every check, with the origin of each value."""

    run: Run
    path: Path
    source: str  # the text of the file
    overrides: tuple[str, ...]
    origins: Mapping[str, ValueOrigin]
    # What was chosen from the data, for a file without a model; see `complete`.
    inferred: Mapping[str, Any] | None = None

    def origin(self, path: str) -> ValueOrigin:
        """Return where the value at an address such as `train.max_steps` comes from."""
        return self.origins.get(path, DEFAULT)

    def origin_of(self, leaf: str) -> str:
        """Return where the value at a leaf of the resolved run comes from, as text."""
        # A single item written instead of a list has an address without an index.
        for path in (leaf, leaf.replace(".0.", ".", 1)):
            if path in self.origins:
                return str(self.origins[path])
        return str(self.origin(leaf))


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    model_dir: str | None = None,
    environment: Mapping[str, str] | None = None,
    with_missing_files: bool = False,
) -> LoadedRun:
    """Read and check a run file, without importing anything that it names.

    Args:
      path: The YAML file.
      overrides: Texts such as `"train.max_steps=500"`, applied in order.
      model_dir: Replaces `run.model_dir`, if given.
      environment: The variables of `${env:X}`; by default those of the process.
      with_missing_files: Whether the problems of an invalid file include files that do
        not exist.

    Returns:
      The run, with the origin of each value.

    Raises:
      RunFileError: The file, its includes or the overrides are invalid. The message
        lists all problems.
      ConfigError: `path` is a folder.
      MissingFileError: There is no such file.
    """
    path = Path(path)
    file = str(path)
    if not os.path.exists(path):
        raise MissingFileError(f"{file}: there is no such run file.")
    if not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "no regular file"
        raise ConfigError(f"{file}: expected a run file (YAML), found {what}.")
    problems = Problems(file)
    budget = Budget()
    reader = FileReader(problems, budget)
    source = reader.text(path, ValueOrigin(file, 1, 1))
    tree = None if source is None else reader.tree(path, source)
    if source is None or tree is None:
        problems.raise_if_any()
        raise AssertionError("a file that cannot be read has a problem")
    # A misspelt key may be the model's, so that nothing is chosen in its place.
    keys = tree.entries.keys()
    is_short = "data" in keys and "model" not in keys and keys <= fields_of(Run).keys()
    tree = name_tree(tree, path) if is_short else tree
    for text in overrides:
        tree = apply_override(tree, text, problems, budget)
    if model_dir is not None:
        tree = set_model_dir(tree, model_dir, problems)
    tree = interpolate(
        tree, problems, os.environ if environment is None else environment
    )
    inferred = None
    if is_short:
        problems.raise_if_any()
        tree, inferred = complete_tree(tree)
    decoder = Decoder(problems)
    run = decoder.section(tree, Run, "")
    check_run(run, decoder.origins, problems)
    if with_missing_files and problems:
        for address, text in missing_files(run, run.data.sources, list_urls=False):
            problems.add(nearest(decoder.origins, address), address, text)
    problems.raise_if_any()
    # Includes, variables and splits have been applied, so the run does not need them.
    run = split_sources(run, decoder.origins)
    run = choose_optimizers(dataclasses.replace(run, include=(), vars={}))
    return LoadedRun(run, path, source, tuple(overrides), decoder.origins, inferred)


LINEAR = FtrlConfig(learning_rate=0.05)
DEEP = AdagradConfig(learning_rate=0.05)
# Lazy, because the tables of click models are large.
CLICK = AdamConfig(learning_rate=0.001, lazy=True)


def choose_optimizers(run: Run) -> Run:
    """Return the run with an optimizer for each part of its model."""
    if isinstance(run.model, CustomModelConfig | ModelFnConfig):
        return run
    given = run.optimizers
    if isinstance(run.model, SeveralModelsConfig):
        models = {
            name: _choose_for_parts(
                model, given.models.get(name, PartOptimizers()), given
            )
            for name, model in run.model.models.items()
        }
        chosen = dataclasses.replace(given, models=models)
    else:
        chosen = _choose_for_parts(run.model, given, given)
    return dataclasses.replace(run, optimizers=chosen)


_Optimizers = TypeVar("_Optimizers", bound=PartOptimizers)


def _choose_for_parts(
    model: Any, own: _Optimizers, of_all: PartOptimizers
) -> _Optimizers:
    """Return optimizers with one for each part of a model: its own, or that of all."""
    chosen: dict[str, Any] = {}
    for part, default in (("linear", LINEAR), ("dnn", DEEP), ("rnn", DEEP)):
        found = getattr(model, part, None)
        if found is not None and getattr(own, part) is None:
            is_click = part == "dnn" and not isinstance(found, DnnPart)
            common = getattr(of_all, part)
            if isinstance(found, TabularPart):  # has an optimizer of its own
                chosen[part] = common
                continue
            chosen[part] = common or (CLICK if is_click else default)
    if isinstance(model, BaselineModelConfig) and own.baseline is None:
        chosen["baseline"] = of_all.baseline
    return dataclasses.replace(own, **chosen)


def split_sources(run: Run, origins: dict[str, ValueOrigin]) -> Run:
    """Return the run in which the parts of each `split` are sources of their own.

    The part that is trained on keeps the settings of its source. The others are for
    evaluation: they are read once, in order. `origins` gets the addresses of the parts.
    """
    sources: dict[str, AnySource] = {}
    for name, source in run.data.sources.items():
        split = source.split
        if split is None:
            sources[name] = source
            continue
        start = 0.0
        total = sum(split.parts.values()) or 1.0
        for index, (part, share) in enumerate(split.parts.items()):
            is_last = index == len(split.parts) - 1
            stop = 1.0 if is_last else round(start + share / total, 12)
            range_ = PartConfig(
                start=start, stop=stop, by=split.by, key=split.key, seed=split.seed
            )
            changes: dict[str, Any] = {"split": None, "part": range_}
            if part != run.train.source:
                changes |= {"shuffle": None, "epochs": 1, "drop_remainder": False}
            sources[part] = dataclasses.replace(source, **changes)
            start = stop
            for path, origin in list(origins.items()):
                below = path.removeprefix(f"data.sources.{name}")
                if path != below and (not below or below[0] == "."):
                    origins.setdefault(f"data.sources.{part}{below}", origin)
    return dataclasses.replace(run, data=dataclasses.replace(run.data, sources=sources))
