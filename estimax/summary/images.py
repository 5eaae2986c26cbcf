"""Arrays as PNG images in a summary, without a library for images."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# PNG's name for a pixel of so many channels: grey, colour, colour with transparency.
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}


def encoded_images(tag: str, images: NDArray[Any]) -> list[Any]:
    """Messages of images [B, H, W, C], or one [H, W, C], under TensorFlow's tags."""
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
    """Scale an image of numbers to 0…255: zero is black, or grey if some are negative.

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
    # Divided first: 255 / largest would overflow for the smallest numbers.
    parts = numbers / largest if largest > 0 else numbers
    levels = parts * 127.0 + 127.0 if lowest < 0 else parts * 255.0
    shown: NDArray[np.uint8] = np.where(finite, levels, 0.0).astype(np.uint8)
    return shown


def png(image: NDArray[np.uint8]) -> bytes:
    """Encode bytes [H, W, C]."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    # Each row begins with the number of its filter: 0, none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    )
