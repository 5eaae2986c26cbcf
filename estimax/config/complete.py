"""Complete a run file that has no `model`: choose what it leaves out from its data.

    schema: estimax/run/v1
    data:
      label: late
      sources: {train: {files: train.csv}, test: {files: test.csv}}

Loading this file reads the first train file, as `estimax init` does, and adds the
features, the model, batch sizes, steps and the evaluation. Whatever the file or `--set`
gives is kept. The choice is saved in `model_dir/config/inferred.json` and used again
when the run is resumed, evaluated or exported, even if the data has changed since.
"""

from __future__ import annotations

import glob
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from estimax.config.feature_checks import DENSE, ENCODED
from estimax.config.infer import (
    BEST_METRIC,
    Inferred,
    infer,
    model_of,
    optimizers_of,
)
from estimax.config.infer_features import InferredFeature
from estimax.config.nodes import (
    ConfigNode,
    ListNode,
    MapEntry,
    MapNode,
    ScalarNode,
    ValueOrigin,
    merge,
    plain,
)
from estimax.config.profile import format_of, profile
from estimax.core.errors import ConfigError, MissingFileError

_log = logging.getLogger("estimax")
INFERRED_FILE = "inferred.json"
_VALIDATION_NAMES = ("validation", "valid", "eval", "dev")
_TEST_NAMES = ("test", "holdout")
Plain = dict[str, Any]  # a mapping of a run file


def name_tree(tree: MapNode, path: Path) -> MapNode:
    """Return the tree with the file's name as `name`, if it has none."""
    origin = ValueOrigin(f"the name of {path.name}")
    return merge(node_of({"name": path.stem}, origin), tree)


def complete_tree(tree: MapNode) -> tuple[MapNode, Plain | None]:
    """Return the tree with all that it leaves out, and what was added.

    A tree whose data section is not valid is returned as it is; decoding reports it.

    Raises:
      MissingFileError: There is no train file.
      EstimaxError: The train file cannot be read, or the label cannot be learned.
    """
    given: Plain = plain(tree)
    found = _train_source(given)
    if found is None:
        return tree, None
    name, source, file = found
    run = given.get("run")
    run = run if isinstance(run, dict) else {}
    model_dir = run.get("model_dir", f"runs/{given.get('name')}")
    added = _read_saved_choice(str(model_dir))
    origin = ValueOrigin(f"inferred from {file}")
    if added is None:
        added = _choose_sections(given, name, source, file)
        added.setdefault("run", {})["model_dir"] = model_dir
    return merge(node_of(added, origin), tree), added


def node_of(value: object, origin: ValueOrigin) -> Any:  # a node of the value's kind
    """Return dicts, lists and scalars as nodes of one origin."""
    if isinstance(value, Mapping):
        entries = {k: MapEntry(origin, node_of(v, origin)) for k, v in value.items()}
        return MapNode(entries, origin)
    if isinstance(value, list | tuple):
        items: tuple[ConfigNode, ...] = tuple(node_of(v, origin) for v in value)
        return ListNode(items, origin)
    assert value is None or isinstance(value, str | int | float | bool)
    return ScalarNode(value, origin)


def _train_source(given: Plain) -> tuple[str, Plain, str] | None:
    """Return name, section and first file of the train source; None if invalid."""
    data = given.get("data")
    train = given.get("train")
    name = train.get("source", "train") if isinstance(train, dict) else "train"
    if not isinstance(data, dict) or not isinstance(data.get("label"), str):
        return None
    sources = data.get("sources")
    if not isinstance(sources, dict):
        return None
    for key, source in sources.items():
        if name in _parts(source):
            name = key  # the source that is split into this part and others
    if not isinstance(sources.get(name), dict):
        return None
    files = sources[name].get("files")
    files = files if isinstance(files, list) else [files]
    if not files or not all(isinstance(file, str) for file in files):
        return None
    matches = sorted(glob.glob(files[0])) if glob.has_magic(files[0]) else files[:1]
    if not matches or not os.path.isfile(matches[0]):
        raise MissingFileError(
            f"data.sources.{name}.files: no file matches {files[0]!r} (looked from "
            f"{Path.cwd()}). The run has no model, so it is chosen from this file."
        )
    return name, sources[name], matches[0]


def _parts(source: object) -> Plain:
    """Return the shares of the parts into which a source is split, by name."""
    split = source.get("split") if isinstance(source, dict) else None
    parts = split.get("parts") if isinstance(split, dict) else None
    return parts if isinstance(parts, dict) else {}


def _read_saved_choice(model_dir: str) -> Plain | None:
    """Return the choice of a run that has been trained; None if there is none."""
    path = Path(model_dir) / "config" / INFERRED_FILE
    trained = [p for p in Path(model_dir).glob("model.ckpt-*") if p.name[-2:] != "-0"]
    if not trained or not path.is_file():
        return None
    try:
        saved = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected what estimax chose for this run, found a damaged file "
            f"({error}). Restore it, or train in another --model-dir."
        ) from None
    return saved if isinstance(saved, dict) else None


def _choose_sections(given: Plain, name: str, source: Plain, file: str) -> Plain:
    """Return what a run leaves out, chosen from a file of its train source."""
    data = given["data"]
    options = source.get("csv")
    options = options if isinstance(options, dict) else {}
    table = profile(
        file,
        delimiter=options.get("delimiter"),
        names=options.get("columns"),
        has_header=options.get("header", True),
    )
    parts = _parts(source)
    share = parts.get("train", 1.0) if parts else 1.0
    inferred = infer(table, data["label"], train_share=share, weight=data.get("weight"))
    given_features = given.get("features")
    added = inferred.sections()
    if isinstance(given_features, dict) and given_features:
        own = tuple(_own_feature(n, f) for n, f in given_features.items())
        added["features"] = {}
        added["model"] = model_of(own, inferred.task.head, inferred.train_rows)
        added["optimizers"] = optimizers_of(added["model"], inferred.train_rows)
    else:
        for column, reason in inferred.skipped:
            if column in inferred.leaks:
                _log.warning("%s: left out: %r %s", file, column, reason)
    _add_sources(added, inferred, data["sources"], name)
    _drop_given(added, given, source, name)
    others = {n for n in {**data["sources"], **parts} if n != name}
    validations = [n for n in _VALIDATION_NAMES if n in others]
    tests = [n for n in _TEST_NAMES if n in others]
    if evaluated := (validations or tests)[:1]:
        added["eval"] = {"source": evaluated[0]}
        added["export"] = [{"type": "best", "metric": BEST_METRIC}]
    if validations and tests:
        added["test"] = {"source": tests[0]}
    return {"schema": "estimax/run/v1", "seed": 42, **added}


_NUMBERS = {feature.type for feature in (*DENSE, *ENCODED)}


def _own_feature(name: str, section: object) -> InferredFeature:
    """Return a feature of the run file with the parts of a model that suit it."""
    kind = section.get("type") if isinstance(section, dict) else None
    if kind in _NUMBERS:
        return InferredFeature(name, {}, "", "numeric")
    is_combined = kind in ("bucketized", "crossed")
    return InferredFeature(
        name, {}, "", None if is_combined else "embedding", True, 100
    )


def _add_sources(
    added: Plain, inferred: Inferred, sources: Mapping[str, Any], train: str
) -> None:
    made = {}
    for name, source in sources.items():
        options = inferred.source(for_training=name == train)
        files = source.get("files") if isinstance(source, dict) else None
        first = files[0] if isinstance(files, list) and files else files
        if isinstance(first, str):
            options["format"] = format_of(first)
        made[name] = options
    added["data"]["sources"] = made


def _drop_given(added: Plain, given: Plain, source: Plain, train: str) -> None:
    """Remove what would contradict the run file if it was merged with it."""
    optimizers = given.get("optimizers")
    for part in optimizers if isinstance(optimizers, dict) else ():
        # The keys of two optimizers must not be mixed.
        added["optimizers"].pop(part, None)
    section = given.get("train")
    steps = section.get("max_steps") if isinstance(section, dict) else None
    if steps is not None:
        added["data"]["sources"][train]["epochs"] = None
    elif "epochs" in source or "batch_size" in source:
        added.pop("train")
