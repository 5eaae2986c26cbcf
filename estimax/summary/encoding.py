"""Values of every kind as the messages of an event file, of tensorboardX's types.

tensorboardX has functions for this too; for histograms they take ten times as long, and
a default training writes several every hundred steps.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax.summary.images import encoded_images

_BUCKETS = 30  # as many as TensorBoard draws
_ILLEGAL = re.compile(r"[^-/\w.]")

Message = Any  # tensorboardX's Summary.Value, which has no type


def encode(kind: str, name: str, value: Any) -> list[Message]:
    """A value's messages; a histogram of nothing finite has none."""
    tag = _ILLEGAL.sub("_", name).lstrip("/")
    match kind:
        case "scalar":
            return _scalar(tag, value)
        case "histogram":
            return _histogram(tag, value)
        case "image":
            return encoded_images(tag, np.asarray(value))
        case "text":
            return _text(tag, str(value))
    raise ValueError(f"{name!r} was logged as {kind!r}, which is not known.")


def _scalar(tag: str, value: ArrayLike) -> list[Message]:
    from tensorboardX.proto.summary_pb2 import Summary

    return [Summary.Value(tag=tag, simple_value=float(np.asarray(value).item()))]


def _histogram(tag: str, values: ArrayLike) -> list[Message]:
    from tensorboardX.proto.summary_pb2 import HistogramProto, Summary

    flat = np.asarray(values).astype(np.float64).reshape(-1)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return []
    lowest, highest = float(finite.min()), float(finite.max())
    limits, counts = _buckets(finite, lowest, highest)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.array([finite.sum(), finite @ finite])
    # A sum beyond float64 is written as the largest number there is.
    total, squares = np.nan_to_num(sums).tolist()
    histogram = HistogramProto(
        min=lowest,
        max=highest,
        num=finite.size,
        sum=total,
        sum_squares=squares,
        # An empty bucket in front says where the first one begins.
        bucket_limit=limits.tolist(),
        bucket=[0.0, *counts.tolist()],
    )
    return [Summary.Value(tag=tag, histo=histogram)]


def _buckets(
    finite: NDArray[np.float64], lowest: float, highest: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the limits [n + 1] of n buckets of equal width, and the counts [n].

    Values are scaled by a power of two, which changes no digit, to at most 1: the width
    of a bucket neither overflows nor becomes zero, whatever the values are.
    """
    left, right = lowest, highest
    if left == right:
        # At 1e30 neighbouring numbers are further apart than 0.5.
        half = max(0.5, abs(left) * 1e-6)
        largest = float(np.finfo(np.float64).max)
        left, right = max(left - half, -largest), min(right + half, largest)
    exponent = math.frexp(max(abs(left), abs(right)))[1]
    start, end = math.ldexp(left, -exponent), math.ldexp(right, -exponent)
    places = (np.ldexp(finite, -exponent) - start) * (_BUCKETS / (end - start))
    last = _BUCKETS - 1
    counts = np.bincount(np.clip(places.astype(np.int64), 0, last), minlength=_BUCKETS)
    return np.ldexp(np.linspace(start, end, _BUCKETS + 1), exponent), counts


def _text(tag: str, value: str) -> list[Message]:
    from tensorboardX import summary

    return list(summary.text(tag, value).value)
