"""What other models score on the rows of a run: a linear model, and LightGBM.

    found = references(run, statistics)
    found["linear"]["average_loss"]

Both are trained on the train source with defaults and judged on the test source, or
that of `eval`. LightGBM is left out if it is not installed. `estimax train` starts this
module as a program in the background (`python -m estimax.config.references MODEL_DIR`),
so that training never waits for it or fails with it; the result is a small file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax.config.columns import (
    column_of,
    data_columns,
    kind_of,
    label_columns,
    words_of_label,
)
from estimax.config.schema.features import COMPUTED, DateConfig, NumericConfig
from estimax.config.schema.run import Run
from estimax.config.statistics import transform_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = "references.json"
_TASKS = ("binary", "multi_class", "regression")
_MOST_TRAINED = 200_000  # rows
_MOST_LINEAR = 50_000
_MOST_JUDGED = 100_000
_MOST_WORDS = 254  # of a column for LightGBM; the others are missing
_LINEAR_WORDS = 50
_ROUNDS = 100  # LightGBM's default
_Found = dict[str, dict[str, float]]


def can_compare(run: Run) -> bool:
    """Return whether the run has a task that other models can be trained for."""
    task = getattr(getattr(run.model, "head", None), "type", None)
    features = [f for f in data_columns(run).values() if not f.many and f.shape is None]
    return (
        task in _TASKS
        and run.data.weight is None
        and run.data.label is not None
        and len(features) == len(data_columns(run))
        and (run.test is not None or run.eval is not None)
    )


def judged_source(run: Run) -> str:
    """Return the source whose rows the references are judged on."""
    if run.test is not None:
        return run.test.source
    assert run.eval is not None, "can_compare has looked"
    return run.eval.source


def read_references(run: Run) -> _Found:
    """Return what was computed for a run; empty if nothing was, or the data changed."""
    path = Path(run.run.model_dir) / "config" / FILE
    try:
        saved = json.loads(path.read_bytes())
        return dict(saved["found"]) if saved["key"] == _key(run) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def of_source(run: Run, name: str) -> _Found:
    """Return what was computed for the rows of a source, if the run compares."""
    if not run.run.compare or not can_compare(run) or judged_source(run) != name:
        return {}
    return read_references(run)


def start(run: Run) -> subprocess.Popen[bytes] | None:
    """Begin to compute the references in a process of low priority.

    Returns:
      The process; None if there is nothing to compute, or it cannot be started.
    """
    if not can_compare(run) or read_references(run):
        return None
    command = [sys.executable, "-m", "estimax.config.references", run.run.model_dir]
    one = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "TF_CONFIG": ""}
    environment = {**os.environ, **one}
    environment.pop("TF_CONFIG")
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return None


def finish(process: subprocess.Popen[bytes] | None, secs: float) -> bool:
    """Wait for the process, and end it after `secs`. Return whether it has ended."""
    if process is None:
        return True
    try:
        process.wait(secs)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def references(run: Run, cuts: Mapping[str, tuple[Any, Any]]) -> _Found:
    """Train the other models; return the metrics of each by name.

    Args:
      run: The run; `can_compare` is true for it.
      cuts: The limits of the parts of sources that are split by time.
    """
    import numpy as np

    label, head = next(iter(label_columns(run).items()))
    words = words_of_label(run, head)
    coder = _Coder(run, label)
    train = _sample(run, run.train.source, cuts, _MOST_TRAINED)
    judged = _sample(run, judged_source(run), cuts, _MOST_JUDGED)
    y, wanted = (_labels(rows[label], words) for rows in (train, judged))
    table = coder.fit(train)
    known = np.isfinite(y)
    table, y = table.take(known), y[known]
    other = coder.code(judged).take(np.isfinite(wanted))
    wanted = wanted[np.isfinite(wanted)]
    classes = getattr(head, "classes", 2) if head.type != "regression" else 0
    found = {"linear": _score(_linear(table, y, other, classes), wanted, classes)}
    if importlib.util.find_spec("lightgbm") is not None:
        guessed = _lightgbm(table, y, other, classes)
        found["lightgbm"] = _score(guessed, wanted, classes)
    return found


@dataclass(frozen=True)
class _Table:
    """Numbers [n, a], NaN if missing, and codes of words [n, b], -1 if missing."""

    numbers: NDArray[Any]
    codes: NDArray[Any]

    def take(self, rows: Any) -> _Table:
        return _Table(self.numbers[rows], self.codes[rows])


@dataclass
class _Coder:
    """Turns columns into numbers and codes, as the features of a run read them."""

    run: Run
    label: str
    _words: dict[str, dict[Any, int]] = field(default_factory=dict)

    def fit(self, rows: Mapping[str, Any]) -> _Table:
        """Learn the words of the columns, and code the rows."""
        from collections import Counter

        for column, feature in self._features().items():
            if not isinstance(feature, (NumericConfig, DateConfig, *COMPUTED)):
                counts = Counter(_plain(rows[column]))
                common = [word for word, _ in counts.most_common(_MOST_WORDS + 1)]
                common = [word for word in common if word not in _MISSING]
                self._words[column] = {w: i for i, w in enumerate(common)}
        return self.code(rows)

    def code(self, rows: Mapping[str, Any]) -> _Table:
        """Code rows with the words that were learned."""
        import numpy as np

        count = len(next(iter(rows.values())))
        numbers, codes = [np.zeros((count, 0))], [np.zeros((count, 0), np.int64)]
        for column, feature in self._features().items():
            if isinstance(feature, COMPUTED):
                numbers.append(np.asarray(transform_of(feature)(rows), np.float64))
            elif isinstance(feature, NumericConfig | DateConfig):
                numbers.append(_number_columns(rows[column], feature))
            else:
                known = self._words[column]
                found = [known.get(word, -1) for word in _plain(rows[column])]
                codes.append(np.array(found, np.int64)[:, None])
        return _Table(np.concatenate(numbers, 1), np.concatenate(codes, 1))

    def _features(self) -> dict[str, Any]:
        """Return one feature of each column; one that reads words goes first.

        A computed number has the name of its feature, after a blank.
        """
        found: dict[str, Any] = {}
        for name, feature in self.run.features.items():
            if isinstance(feature, COMPUTED):
                found[f" {name}"] = feature
            if kind_of(feature) is None:
                continue
            column = column_of(name, feature)
            known = found.get(column)
            if known is None or isinstance(known, NumericConfig):
                found[column] = feature
        return found


_MISSING = ("", -1)


def _plain(column: Any) -> list[Any]:
    values = [v.strip().decode(errors="replace") if isinstance(v, bytes) else v
              for v in column.tolist()]  # fmt: skip
    return values


def _number_columns(column: Any, feature: Any) -> NDArray[Any]:
    """Return the numbers of a column, [n, width]; NaN where one is missing."""
    import numpy as np

    from estimax.feature_columns.transforms import DateParts, TextNumbers

    if isinstance(feature, DateConfig):
        given = (feature.parts, feature.cyclic, feature.since, feature.format)
        parts = DateParts("d", *given, feature.time_zone)
        return np.asarray(parts({"d": column}), np.float64)
    if feature.text is not None:
        column = TextNumbers("n", feature.text)({"n": column})
    found = np.asarray(column, np.float64).reshape(len(column), -1)[:, :1]
    return np.where(np.isfinite(found), found, np.nan)


def _labels(column: Any, words: Any) -> NDArray[Any]:
    import numpy as np

    if words is None:
        return np.asarray(column, np.float64).reshape(len(column))
    place = {word.strip(): i for i, word in enumerate(words)}
    return np.array([place.get(word, np.nan) for word in _plain(column)], np.float64)


def _sample(
    run: Run, source: str, cuts: Mapping[str, tuple[Any, Any]], most: int
) -> dict[str, Any]:
    """Return up to `most` rows of a source, evenly chosen, by column."""
    import numpy as np

    from estimax.config.build_input import scan
    from estimax.core import strings

    columns = data_columns(run)
    parts: list[dict[str, Any]] = []
    stride, read, kept = 1, 0, 0
    for batch in scan(run, source, columns, cuts, with_missing_ids=True):
        rows = len(next(iter(batch.values())))
        chosen = np.arange(-read % stride, rows, stride)
        read += rows
        parts.append({name: values[chosen] for name, values in batch.items()})
        kept += len(chosen)
        if kept > 2 * most:
            parts = [
                {k: v[np.arange(0, len(v), 2)] for k, v in p.items()} for p in parts
            ]
            stride *= 2
            kept = sum(len(next(iter(part.values()))) for part in parts)

    def joined(name: str) -> Any:
        values = [part[name] for part in parts]
        if isinstance(values[0], strings.Strings):
            return strings.concatenate(values)
        return np.concatenate(values)

    return {name: joined(name) for name in columns}


def _linear(table: _Table, y: Any, other: _Table, classes: int) -> NDArray[Any]:
    """Return what logistic or ridge regression predicts for other rows."""
    import numpy as np
    from scipy import optimize, special

    step = max(1, len(y) // _MOST_LINEAR)
    table, y = table.take(slice(None, None, step)), y[::step]
    x, x_other = _design(table, table), _design(table, other)
    penalty = 1.0 / len(y)
    if not classes:
        mean = y.mean()
        gram = x.T @ x / len(y) + penalty * np.eye(x.shape[1])
        return np.asarray(
            mean + x_other @ np.linalg.solve(gram, x.T @ (y - mean) / len(y))
        )
    width = 1 if classes == 2 else classes
    target = (y[:, None] == np.arange(classes)).astype(float)

    def loss(flat: Any) -> tuple[float, Any]:
        weights = flat.reshape(x.shape[1] + 1, width)
        logits = x @ weights[1:] + weights[0]
        if width == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], 1)
        log_p = special.log_softmax(logits, axis=1)
        error = (np.exp(log_p) - target) / len(y)
        error = error[:, 1:] if width == 1 else error
        slope = np.concatenate([error.sum(0, keepdims=True), x.T @ error])
        slope[1:] += penalty * weights[1:]
        value = -(target * log_p).sum() / len(y)
        return value + penalty * np.square(weights[1:]).sum() / 2, slope.reshape(-1)

    begin = np.zeros((x.shape[1] + 1) * width)
    found = optimize.minimize(
        loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 200}
    )
    weights = found.x.reshape(-1, width)
    logits = x_other @ weights[1:] + weights[0]
    if width == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], 1)
    return np.asarray(special.softmax(logits, axis=1))


def _design(of: _Table, table: _Table) -> NDArray[Any]:
    """Return scaled numbers with flags for missing ones, and one-hot words."""
    import numpy as np

    parts = []
    for i in range(of.numbers.shape[1]):
        own, values = of.numbers[:, i], table.numbers[:, i]
        known = own[np.isfinite(own)]
        mean = known.mean() if known.size else 0.0
        std = (known.std() if known.size else 0.0) or 1.0
        missing = ~np.isfinite(values)
        parts.append(np.clip((np.where(missing, mean, values) - mean) / std, -10, 10))
        if not np.isfinite(own).all():
            parts.append(missing.astype(float))
    for i in range(of.codes.shape[1]):
        count = min(_LINEAR_WORDS, int(of.codes[:, i].max(initial=-1)) + 1)
        parts += list(
            (table.codes[:, i][None, :] == np.arange(count)[:, None]).astype(float)
        )
    return np.stack(parts, 1) if parts else np.zeros((len(table.numbers), 0))


def _lightgbm(table: _Table, y: Any, other: _Table, classes: int) -> NDArray[Any]:
    """Return what LightGBM predicts with its defaults."""
    import lightgbm
    import numpy as np

    def matrix(one: _Table) -> NDArray[Any]:
        codes = np.where(one.codes < 0, np.nan, one.codes.astype(np.float64))
        return np.concatenate([one.numbers, codes], 1)

    objective = {0: "regression", 2: "binary"}.get(classes, "multiclass")
    options: dict[str, Any] = {
        "objective": objective,
        "verbosity": -1,
        "num_threads": 1,
    }
    if objective == "multiclass":
        options["num_class"] = classes
    first = table.numbers.shape[1]
    words = list(range(first, first + table.codes.shape[1]))
    data = lightgbm.Dataset(matrix(table), y, categorical_feature=words)
    found = lightgbm.train(options, data, _ROUNDS).predict(matrix(other))
    found = np.asarray(found)
    return np.stack([1 - found, found], 1) if objective == "binary" else found


def _score(predicted: Any, y: Any, classes: int) -> dict[str, float]:
    """Return the metrics of predictions, with the names that heads use."""
    import numpy as np

    if not classes:
        loss = float(np.square(predicted - y).mean())
        found = {"average_loss": loss, "rmse": loss**0.5}
        found["mae"] = float(np.abs(predicted - y).mean())
        if y.var() > 0:
            found["r2"] = 1 - loss / float(y.var())
        return found
    labels = y.astype(np.int64)
    chosen = np.clip(predicted[np.arange(len(labels)), labels], 1e-7, 1)
    found = {
        "average_loss": float(-np.log(chosen).mean()),
        "accuracy": float((predicted.argmax(1) == labels).mean()),
    }
    if classes == 2 and 0 < labels.sum() < len(labels):
        found["auc"] = _auc(predicted[:, 1], labels)
    return found


def _auc(scores: Any, labels: Any) -> float:
    """Return the area under the ROC curve, by ranks; equal scores share theirs."""
    import numpy as np

    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positive = labels.sum()
    above = ranks[labels == 1].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (len(labels) - positive)))


def _key(run: Run) -> str:
    """Return what the references depend on: the files, the columns and the parts."""
    from estimax.config.tables import find_files

    asked: list[Any] = [run.data.label, sorted(data_columns(run))]
    for name in (run.train.source, judged_source(run)):
        source = run.data.sources[name]
        sizes = [(f, os.path.getsize(f)) for f in find_files(source, name)]
        asked.append([name, str(source.part), sizes])
    return json.dumps(asked)


def main(model_dir: str) -> None:
    """Compute the references of a run, and save them in its model directory."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    from estimax.config.load import load
    from estimax.config.statistics import statistics_for
    from estimax.storage import atomic

    folder = Path(model_dir) / "config"
    run = load(folder / "resolved.yaml", model_dir=model_dir).run
    cuts = statistics_for(run, folder / "statistics.json", keep=True).cuts
    found = references(run, cuts)
    atomic.write_json(folder / FILE, {"key": _key(run), "found": found})


if __name__ == "__main__":
    main(sys.argv[1])
