"""Defaults of a run file that depend on the model.

    run = with_defaults(run)
    run.optimizers.dnn          # AdagradConfig(learning_rate=0.05)

The canned classes of Python keep tf.estimator's defaults, whose learning rates are too
small for most models. A run file has defaults of its own. They become part of the
resolved run, so `estimax show` prints them and a resumed run keeps them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from estimax.config.nodes import ValueOrigin
from estimax.config.schema.data import AnySource, PartConfig
from estimax.config.schema.model import (
    BaselineModelConfig,
    CustomModelConfig,
    DnnPart,
    ModelFnConfig,
    PerHeadModelConfig,
)
from estimax.config.schema.optimizers import (
    AdagradConfig,
    AdamConfig,
    FtrlConfig,
    PartOptimizers,
)
from estimax.config.schema.run import Run

LINEAR = FtrlConfig(learning_rate=0.05)
DEEP = AdagradConfig(learning_rate=0.05)
# Lazy, because the tables of click models are large.
CLICK = AdamConfig(learning_rate=0.001, lazy=True)


def with_defaults(run: Run) -> Run:
    """Return the run with an optimizer for each part of its model."""
    if isinstance(run.model, CustomModelConfig | ModelFnConfig):
        return run
    given = run.optimizers
    if isinstance(run.model, PerHeadModelConfig):
        models = {
            name: _for_parts(model, given.models.get(name, PartOptimizers()), given)
            for name, model in run.model.models.items()
        }
        chosen = dataclasses.replace(given, models=models)
    else:
        chosen = _for_parts(run.model, given, given)
    return dataclasses.replace(run, optimizers=chosen)


_Optimizers = TypeVar("_Optimizers", bound=PartOptimizers)


def _for_parts(model: Any, own: _Optimizers, of_all: PartOptimizers) -> _Optimizers:
    """Return optimizers with one for each part of a model: its own, or that of all."""
    chosen: dict[str, Any] = {}
    for part, default in (("linear", LINEAR), ("dnn", DEEP), ("rnn", DEEP)):
        found = getattr(model, part, None)
        if found is not None and getattr(own, part) is None:
            is_click = part == "dnn" and not isinstance(found, DnnPart)
            common = getattr(of_all, part)
            chosen[part] = common or (CLICK if is_click else default)
    if isinstance(model, BaselineModelConfig) and own.baseline is None:
        chosen["baseline"] = of_all.baseline
    return dataclasses.replace(own, **chosen)


def with_parts(run: Run, origins: dict[str, ValueOrigin]) -> Run:
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
