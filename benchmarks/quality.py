"""How good are the tabular models without tuning, beside LightGBM and a linear model?

    pip install lightgbm scikit-learn pandas pyarrow
    python benchmarks/quality.py                          # all tables, 3 seeds
    python benchmarks/quality.py --tables adult,diamonds --seeds 1
    python benchmarks/quality.py --show                   # what was measured
    python benchmarks/quality.py --check                  # against what is expected

`estimax init --model both` and `estimax train` are run on files, with nothing changed.
Each result is kept in `results/quality.jsonl` as soon as it is measured, one line for
each table, model and seed. A run that was cut off continues: what is there is not
measured again, unless --fresh is given.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from machine import REPOSITORY, commit
from quality_models import REFERENCES, score, train_defaults
from quality_tables import TABLES

EXPECTED = Path(__file__).parent / "expected_quality.json"
RESULTS = Path(__file__).parent / "results" / "quality.jsonl"
MODELS = ("trees", "network", "both")
# Of a tolerance: deviations over seeds, and the least share of the value.
_DEVIATIONS, _LEAST = 3.0, 0.01
_ONE_SEED = 0.03  # the share, where one seed says nothing about the deviation
Line = dict[str, Any]
Key = tuple[str, str, int]


class Kept:
    """The results so far: lines of a file, the last of each key counts."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: dict[Key, Line] = {}
        if path is not None and path.exists():
            for text in path.read_text().splitlines():
                self._take(json.loads(text))

    def _take(self, line: Line) -> None:
        self.lines[line["table"], line["model"], line["seed"]] = line

    def add(self, line: Line) -> None:
        """Keep a result, at once."""
        self._take(line)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def of(self, table: str, model: str) -> list[Line]:
        """Return the results of a model on a table, by seed."""
        found = {k: v for k, v in self.lines.items() if k[:2] == (table, model)}
        return [found[key] for key in sorted(found)]

    def tables(self) -> list[str]:
        """Return the tables with results of all models, the smallest first."""
        rows = {k[0]: v["rows"] for k, v in self.lines.items() if k[1] == MODELS[-1]}
        return sorted(rows, key=lambda name: (rows[name], name))


def measure(
    name: str, seeds: int, kept: Kept, changes: tuple[str, ...], *, fresh: bool
) -> None:
    """Measure what is missing of a table, and keep it."""
    wanted = [(model, 0) for model in REFERENCES]
    wanted += [(model, seed) for seed in range(seeds) for model in MODELS]
    missing = [key for key in wanted if fresh or (name, *key) not in kept.lines]
    if not missing:
        return
    given = TABLES[name]()
    facts = {
        "table": name,
        "rows": len(given.train),
        "columns": given.train.shape[1],
        "classes": given.classes,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "commit": commit(REPOSITORY),
    }

    def keep(model: str, seed: int, answer: Any, **more: Any) -> None:
        scores = score(answer, given.test_label, given.classes)
        line = {**facts, "model": model, "seed": seed, "scores": scores, **more}
        kept.add(line)
        shown = ", ".join(f"{k} {v:.5g}" for k, v in scores.items())
        print(f"{name} {model} {seed}: {shown}", flush=True)

    for model, predict in REFERENCES.items():
        if (model, 0) in missing:
            keep(model, 0, predict(given, 0))
    others = {m: line["scores"] for m in REFERENCES for line in kept.of(name, m)}
    for seed in sorted({seed for model, seed in missing if model in MODELS}):
        with tempfile.TemporaryDirectory() as folder:
            found = train_defaults(given, seed, Path(folder), others, changes)
        for model in MODELS:
            more: Line = {}
            if model == "both":
                more = {"cpu_seconds": round(found.cpu_seconds, 1)}
                more |= {"verdict": found.remarks, "curve": found.curve}
            keep(model, seed, found.answers[model], **more)


def metric_of(line: Line) -> str:
    """Return the metric by which models are compared; less is better."""
    return "log_loss" if line["classes"] else "rmse"


def summary(lines: list[Line]) -> tuple[dict[str, float], float]:
    """Return the mean of each score over seeds, and the deviation of the metric."""
    means = {
        key: statistics.mean(line["scores"][key] for line in lines)
        for key in lines[0]["scores"]
    }
    values = [line["scores"][metric_of(lines[0])] for line in lines]
    return means, statistics.stdev(values) if len(values) > 1 else math.nan


def markdown(kept: Kept) -> str:
    """Return one table of all results; the best of a row is bold."""
    names = [*REFERENCES, *MODELS]
    lines = [
        f"| table | rows | columns | seeds | metric | {' | '.join(names)} | CPU |",
        f"|---|---:|---:|---:|---|{'---:|' * len(names)}---:|",
    ]
    for table in kept.tables():
        one = kept.of(table, MODELS[-1])
        metric = metric_of(one[0])
        found = {name: summary(kept.of(table, name)) for name in names}
        best = min(means[metric] for means, _ in found.values())
        cells = []
        for name, (means, deviation) in found.items():
            text = f"{means[metric]:.4g}"
            if means[metric] == best:
                text = f"**{text}**"
            if deviation > 0:
                text += f" ± {deviation:.2g}"
            if "auc" in means and name != "constant":
                text += f" ({means['auc']:.3f})"
            cells.append(text)
        word = "log loss (AUC)" if one[0]["classes"] == 2 else metric.replace("_", " ")
        seconds = statistics.mean(line["cpu_seconds"] for line in one)
        head = [table, f"{one[0]['rows']:,}", str(one[0]["columns"]), str(len(one))]
        lines.append(
            "| " + " | ".join([*head, word, *cells, f"{seconds:.0f} s"]) + " |"
        )
    return "\n".join(lines)


def expectation(kept: Kept) -> dict[str, dict[str, dict[str, float]]]:
    """Return the value and the tolerance of each table and model.

    A later run has one seed, so the tolerance is three deviations over seeds, at least
    a hundredth of the value.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for table in kept.tables():
        for model in MODELS:
            lines = kept.of(table, model)
            means, deviation = summary(lines)
            value = means[metric_of(lines[0])]
            least = (_LEAST if len(lines) > 1 else _ONE_SEED) * value
            wide = max(least, 0.0 if math.isnan(deviation) else _DEVIATIONS * deviation)
            one = {"value": float(f"{value:.4g}"), "tolerance": float(f"{wide:.2g}")}
            found.setdefault(table, {})[model] = one
    return found


def check(kept: Kept) -> list[str]:
    """Return what is worse than `expected_quality.json` says."""
    expected = json.loads(EXPECTED.read_text())
    wrong = []
    for table in kept.tables():
        for model, limits in expected[table].items():
            lines = kept.of(table, model)
            metric = metric_of(lines[0])
            found = summary(lines)[0][metric]
            limit = limits["value"] + limits["tolerance"]
            if not found <= limit:
                text = f"{found:.5g}, expected at most {limit:.5g}"
                wrong.append(f"{table}: {metric} of {model} is {text}")
    return wrong


def main() -> None:
    """Measure the tables that are asked for, keep and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(TABLES), help="names, by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS, help="a file of lines")
    parser.add_argument("--fresh", action="store_true", help="measure all again")
    parser.add_argument("--set", action="append", default=[], help="try a change")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--expect", action="store_true", help="write what is expected")
    parser.add_argument(
        "--check",
        action="store_true",
        help="measure, and compare with what is expected",
    )
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    names = arguments.tables.split(",")
    if unknown := set(names) - set(TABLES):
        parser.error(
            f"unknown tables {', '.join(unknown)}; there are {', '.join(TABLES)}"
        )
    if arguments.check:
        known = json.loads(EXPECTED.read_text())
        names = [name for name in names if name in known]
    kept = Kept(None if arguments.check else arguments.results)
    if not arguments.show and not arguments.expect:
        for name in names:
            changes = tuple(arguments.set)
            measure(name, arguments.seeds, kept, changes, fresh=arguments.fresh)
    if arguments.check:
        wrong = check(kept)
        sys.exit("\n".join(wrong) if wrong else 0)
    if arguments.expect:
        before = json.loads(EXPECTED.read_text())
        EXPECTED.write_text(json.dumps(before | expectation(kept), indent=1) + "\n")
    print(markdown(kept))


if __name__ == "__main__":
    main()
