"""Encode values of every kind as the messages of an event file.

    encode("scalar", "loss", 0.25)        # [Summary.Value]

The message types are those of tensorboardX. Its own functions for this take ten times
as long for histograms, of which a default training writes several every 100 steps.
"""

from __future__ import annotations

import io
import math
import re
import struct
import wave
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_BUCKETS = 30  # TensorBoard draws 30
_DRAWN_THRESHOLDS = 101  # enough to draw a curve; AUC counts at 200
_LARGEST = float(np.finfo(np.float64).max)
_LARGEST_SAMPLE = 32767  # of sound with 16 bits
# Below 2**500 and above 2**-500, widths of buckets stay within the range of float64.
_LARGE_EXPONENT = 500
_ILLEGAL = re.compile(r"[^-/\w.]")

Message = Any  # tensorboardX's Summary.Value, which has no type


def encode(kind: str, name: str, value: Any) -> list[Message]:
    """Return the messages of a value; none for a histogram without finite values.

    The kind of sound includes its rate, as in "audio/16000". The value of "pr_curve" is
    [4, T]: true positives, false positives, true and false negatives at T thresholds.
    """
    tag = tag_of(name)
    kind, _, option = kind.partition("/")
    match kind:
        case "scalar" | "norm":
            return _scalar(tag, value)
        case "histogram":
            return _histogram(tag, value)
        case "image":
            return encode_images(tag, np.asarray(value))
        case "audio":
            return encode_sounds(tag, np.asarray(value), int(option))
        case "pr_curve":
            return encode_pr_curve(tag, np.asarray(value))
        case "text":
            return _text(tag, str(value))
    raise ValueError(
        f"summary {name!r}: unknown kind {kind!r}; expected scalar, histogram, image, "
        "audio, pr_curve or text."
    )


def tag_of(name: str) -> str:
    """Return the tag of a name: characters that TensorFlow forbids become "_".

    >>> tag_of("/loss (mean)")
    'loss__mean_'
    """
    return _ILLEGAL.sub("_", name).lstrip("/")


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
        total, squares = float(finite.sum()), float(finite @ finite)
    histogram = HistogramProto(
        min=lowest,
        max=highest,
        num=finite.size,
        sum=_in_range(total),
        sum_squares=_in_range(squares),
        # An empty bucket in front, because limits are right edges: it says where the
        # first bucket begins.
        bucket_limit=limits.tolist(),
        bucket=[0.0, *counts.tolist()],
    )
    return [Summary.Value(tag=tag, histo=histogram)]


def _in_range(total: float) -> float:
    """Return a sum that overflowed as the largest float64, or as 0 if it is NaN.

    `np.nan_to_num` does the same, but takes 50 us for one number.
    """
    return 0.0 if math.isnan(total) else max(-_LARGEST, min(total, _LARGEST))


def _buckets(
    finite: NDArray[np.float64], lowest: float, highest: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the limits [n + 1] of n buckets of equal width, and the counts [n].

    Very large and very small values are scaled to at most 1 by a power of two, which is
    exact. The width of a bucket then neither overflows nor becomes zero.
    """
    left, right = lowest, highest
    if left == right:
        # Not always 0.5: near 1e30 neighbouring floats are further apart than that.
        half = max(0.5, abs(left) * 1e-6)
        left, right = max(left - half, -_LARGEST), min(right + half, _LARGEST)
    exponent = math.frexp(max(abs(left), abs(right)))[1]
    if abs(exponent) < _LARGE_EXPONENT:
        return _equal_buckets(finite, left, right)
    limits, counts = _equal_buckets(
        np.ldexp(finite, -exponent),
        math.ldexp(left, -exponent),
        math.ldexp(right, -exponent),
    )
    return np.ldexp(limits, exponent), counts


def _equal_buckets(
    values: NDArray[np.float64], left: float, right: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    places = ((values - left) * (_BUCKETS / (right - left))).astype(np.int64)
    counts = np.bincount(np.minimum(places, _BUCKETS - 1), minlength=_BUCKETS)
    return np.linspace(left, right, _BUCKETS + 1), counts


def _text(tag: str, value: str) -> list[Message]:
    from tensorboardX import summary

    return list(summary.text(tag, value).value)


# PNG's color type by the number of channels: grey, RGB, RGBA.
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}


def encode_images(tag: str, images: NDArray[Any]) -> list[Any]:
    """Return messages of images [B, H, W, C] or [H, W, C], with TensorFlow's tags."""
    from tensorboardX.proto.summary_pb2 import Summary

    batch = images[None] if images.ndim == 3 else images
    if batch.ndim != 4 or batch.shape[-1] not in _COLOR_TYPES:
        raise ValueError(
            f"image {tag!r}: expected [B, H, W, C] with 1, 3 or 4 channels, got shape "
            f"{images.shape}."
        )
    values = []
    for index, image in enumerate(batch):
        height, width, channels = image.shape
        shown = Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=png(as_bytes(image)),
        )
        full = f"{tag}/image" if len(batch) == 1 else f"{tag}/image/{index}"
        values.append(Summary.Value(tag=full, image=shown))
    return values


def as_bytes(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale an image to 0…255: zero is black, or grey if there are negative numbers.

    Values that are not finite become 0, and uint8 is returned unchanged.

    >>> as_bytes(np.array([0.0, 1.0, 2.0])).tolist()
    [0, 127, 255]
    >>> as_bytes(np.array([-1.0, 0.0, 0.5])).tolist()
    [0, 127, 190]
    """
    if image.dtype == np.uint8:
        return image
    numbers = np.asarray(image, np.float64)
    finite = np.isfinite(numbers)
    numbers = np.where(finite, numbers, 0.0)
    lowest, highest = numbers.min(initial=0.0), numbers.max(initial=0.0)
    largest = max(-lowest, highest)
    # Divide first: 255 / largest overflows if `largest` is close to zero.
    parts = numbers / largest if largest > 0 else numbers
    levels = parts * 127.0 + 127.0 if lowest < 0 else parts * 255.0
    shown: NDArray[np.uint8] = np.where(finite, levels, 0.0).astype(np.uint8)
    return shown


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an image [H, W, C] as a PNG file."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    # Every row begins with the number of its filter; 0 is no filter.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG file: length, kind, content, checksum."""
    checksum = zlib.crc32(kind + content)
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    )


def encode_sounds(tag: str, sounds: NDArray[Any], rate: int) -> list[Any]:
    """Return messages of sounds [B, T, C] or [B, T], with TensorFlow's tags."""
    from tensorboardX.proto.summary_pb2 import Summary

    batch = sounds[..., None] if sounds.ndim == 2 else sounds
    if batch.ndim != 3 or not batch.size:
        raise ValueError(
            f"audio {tag!r}: expected [B, T] or [B, T, C], got shape {sounds.shape}."
        )
    values = []
    for index, sound in enumerate(batch):
        audio = Summary.Audio(
            sample_rate=rate,
            num_channels=sound.shape[1],
            length_frames=sound.shape[0],
            encoded_audio_string=wav(sound, rate),
            content_type="audio/wav",
        )
        full = f"{tag}/audio" if len(batch) == 1 else f"{tag}/audio/{index}"
        values.append(Summary.Value(tag=full, audio=audio))
    return values


def wav(sound: NDArray[Any], rate: int) -> bytes:
    """Return samples [T, C] within [-1, 1] as a WAV file; others are clipped.

    >>> wav(np.zeros((8, 1)), 8000)[:4]
    b'RIFF'
    """
    # NaN becomes silence, because it has no integer.
    finite = np.nan_to_num(sound.astype(np.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    samples = np.round(np.clip(finite, -1.0, 1.0) * _LARGEST_SAMPLE).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(sound.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return file.getvalue()


def encode_pr_curve(tag: str, counts: NDArray[Any]) -> list[Any]:
    """Return the message of a precision-recall curve.

    Args:
      tag: The tag in TensorBoard.
      counts: Weights [4, T] of true positives, false positives, true negatives and
        false negatives, at T ascending and evenly spaced thresholds from 0 to 1.
    """
    from tensorboardX.proto.plugin_pr_curve_pb2 import PrCurvePluginData
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    if counts.ndim != 2 or counts.shape[0] != 4:
        raise ValueError(
            f"pr_curve {tag!r}: expected counts [4, T], got {counts.shape}."
        )
    kept = counts.astype(np.float64)
    if kept.shape[1] > _DRAWN_THRESHOLDS:
        last = kept.shape[1] - 1
        places = np.linspace(0, last, _DRAWN_THRESHOLDS).round().astype(int)
        kept = kept[:, places]
    tp, fp, _, fn = kept
    # A threshold that no score passes has no precision; 1 continues the curve.
    precision = np.divide(tp, tp + fp, out=np.ones_like(tp), where=tp + fp > 0)
    recall = np.divide(tp, tp + fn, out=np.zeros_like(tp), where=tp + fn > 0)
    rows = np.stack([*kept, precision, recall])
    tensor = TensorProto(
        dtype="DT_FLOAT",
        float_val=rows.reshape(-1).tolist(),
        tensor_shape=TensorShapeProto(
            dim=[TensorShapeProto.Dim(size=size) for size in rows.shape]
        ),
    )
    content = PrCurvePluginData(version=0, num_thresholds=rows.shape[1])
    metadata = _metadata("pr_curves", content)
    return [Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]


def encode_hparams(values: Mapping[str, Any]) -> list[Any]:
    """Return the messages that describe a run by its hyper-parameters.

    Numbers, booleans and text keep their type; other values are written as text. The
    plugin finds the metrics of the run by itself.
    """
    from tensorboardX.proto.plugin_hparams_pb2 import (
        HParamsPluginData,
        SessionStartInfo,
    )
    from tensorboardX.proto.summary_pb2 import Summary

    start = SessionStartInfo()
    for name, value in values.items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            start.hparams[name].number_value = value
        elif value is not None:
            start.hparams[name].string_value = str(value)
    content = HParamsPluginData(version=0, session_start_info=start)
    metadata = _metadata("hparams", content)
    return [Summary.Value(tag="_hparams_/session_start_info", metadata=metadata)]


def _metadata(plugin: str, content: Any) -> Any:
    from tensorboardX.proto.summary_pb2 import SummaryMetadata

    data = SummaryMetadata.PluginData(
        plugin_name=plugin, content=content.SerializeToString()
    )
    return SummaryMetadata(plugin_data=data)
