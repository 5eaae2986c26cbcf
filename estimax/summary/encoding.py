"""Values of every kind as the messages of an event file, of tensorboardX's types.

tensorboardX has functions for this too; for histograms they take ten times as long, and
a default training writes several every hundred steps.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
    left, right = (
        (lowest, highest) if lowest < highest else (lowest - 0.5, lowest + 0.5)
    )
    places = (finite - left) * (_BUCKETS / (right - left))
    counts = np.bincount(
        np.minimum(places.astype(np.int64), _BUCKETS - 1), minlength=_BUCKETS
    )
    histogram = HistogramProto(
        min=lowest,
        max=highest,
        num=finite.size,
        sum=float(finite.sum()),
        sum_squares=float(finite @ finite),
        # An empty bucket in front says where the first one begins.
        bucket_limit=np.linspace(left, right, _BUCKETS + 1).tolist(),
        bucket=[0.0, *counts.tolist()],
    )
    return [Summary.Value(tag=tag, histo=histogram)]


def _text(tag: str, value: str) -> list[Message]:
    from tensorboardX import summary

    return list(summary.text(tag, value).value)
