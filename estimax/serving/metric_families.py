"""Metrics as values, which processes send each other and add up.

    merged = merge([families_of_first, families_of_second])
    families_from_json(json.loads(json.dumps(families_to_json(merged))))

A family is what Prometheus calls one: a name, a type, and samples with labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

_MERGED: dict[str, Callable[[Iterable[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
}


class Sample(NamedTuple):
    """One number of a family."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Family:
    """The samples of one metric.

    Args:
      name: Its name, without the suffix "_total" of a counter.
      about: What it counts.
      kind: counter, gauge or histogram.
      samples: Its numbers.
      merge: How the same sample of several processes becomes one.
    """

    name: str
    about: str
    kind: str
    samples: Sequence[Sample] = field(default_factory=list)
    merge: Literal["sum", "max", "min"] = "sum"

    @property
    def is_cumulative(self) -> bool:
        """Whether the samples only grow, so that an ended process still counts."""
        return self.kind in ("counter", "histogram")


def merge(given: Iterable[Iterable[Family]]) -> list[Family]:
    """Merge the families of several processes, as if one process had counted.

    >>> one = Family("rows", "Rows.", "counter", [Sample("rows_total", {}, 2.0)])
    >>> merge([[one], [one]])[0].samples
    [Sample(name='rows_total', labels={}, value=4.0)]
    """
    kinds: dict[str, Family] = {}
    values: dict[str, dict[Any, list[Sample]]] = {}
    for families in given:
        for family in families:
            # All processes run one program, so the first description holds for all.
            kinds.setdefault(family.name, family)
            found = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                found.setdefault(key, []).append(sample)
    return [
        replace(
            family,
            samples=[
                Sample(
                    same[0].name,
                    same[0].labels,
                    _MERGED[family.merge](sample.value for sample in same),
                )
                for same in values[name].values()
            ],
        )
        for name, family in kinds.items()
    ]


def lasting(ended: Iterable[Family], live: Iterable[Iterable[Family]]) -> list[Family]:
    """Return what an ended process still adds to the metrics of those that live.

    Counters must not fall when a process ends. Those of a version of a model are
    dropped when no process knows the version any more.
    """
    # What a living process still reports; the series of other versions end.
    versions = {
        (sample.labels.get("model_name"), sample.labels["version"])
        for families in live
        for family in families
        for sample in family.samples
        if "version" in sample.labels
    }
    return [
        replace(
            family,
            samples=[
                sample
                for sample in family.samples
                if not sample.labels.get("version")
                or (sample.labels.get("model_name"), sample.labels["version"])
                in versions
            ],
        )
        for family in ended
        if family.is_cumulative
    ]


def by_worker(families: Iterable[Family], index: int) -> list[Family]:
    """Return families whose figures of the process name the worker."""
    return [
        replace(
            family,
            samples=[
                Sample(s.name, {**s.labels, "worker": str(index)}, s.value)
                for s in family.samples
            ],
        )
        if family.name.startswith("process_")
        else family
        for family in families
    ]


def families_to_json(families: Iterable[Family]) -> list[Any]:
    """Return families as JSON values."""
    return [
        [
            *(f.name, f.about, f.kind),
            [[s.name, dict(s.labels), s.value] for s in f.samples],
            f.merge,
        ]
        for f in families
    ]


def families_from_json(values: Iterable[Any]) -> list[Family]:
    """Return the families of `families_to_json`."""
    return [
        Family(name, about, kind, [Sample(*sample) for sample in samples], how)
        for name, about, kind, samples, how in values
    ]
