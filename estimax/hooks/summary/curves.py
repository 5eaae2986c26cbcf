"""Small pictures for TensorBoard: curves in the unit square, and matrices.

    writer.image("roc", draw_curve(false_positive_rate, true_positive_rate), step)

They are drawn with NumPy in a few milliseconds, because every evaluation writes them. A
plotting library takes a hundred times as long; reports use one.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Picture = NDArray[np.uint8]  # [H, W, 3]

_SIZE = 280  # pixels of a side
_MARGIN = 8
_FINE = 2  # drawn at twice the size and averaged, for smooth edges
_WHITE, _FRAME, _GRID = (255, 255, 255), (130, 130, 130), (225, 225, 225)
_BLUE = (31, 97, 180)


def draw_curve(x: ArrayLike, y: ArrayLike, *, marks: bool = False) -> Picture:
    """Return a picture of a line in the unit square, with its diagonal and a grid.

    Args:
      x: Horizontal positions within [0, 1], in the order of the line.
      y: Vertical positions within [0, 1], upwards.
      marks: Whether to draw a dot at every point.

    >>> draw_curve([0, 0.2, 1], [0, 0.9, 1]).shape
    (280, 280, 3)
    """
    canvas = _grid().copy()
    across, up = np.asarray(x, np.float64), np.asarray(y, np.float64)
    kept = np.isfinite(across) & np.isfinite(up)
    across, up = across[kept], up[kept]
    _line(canvas, across, up, 2, _BLUE)
    if marks:
        _stamp(canvas, across, up, 6, _BLUE)
    return _average_blocks(canvas)


def draw_matrix(counts: ArrayLike) -> Picture:
    """Return a picture of a matrix [K, K], each row scaled to its sum: dark is all.

    >>> draw_matrix([[5, 1], [0, 9]]).shape
    (280, 280, 3)
    """
    table = np.asarray(counts, np.float64)
    totals = table.sum(axis=1, keepdims=True)
    shares = np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)
    colors = np.array(_WHITE) + shares[..., None] * (np.array(_BLUE) - np.array(_WHITE))
    places = np.arange(_SIZE) * len(table) // _SIZE
    picture: Picture = colors.astype(np.uint8)[places][:, places]
    if len(table) <= 32:  # lines between more cells would hide them
        edges = np.flatnonzero(np.diff(places))
        picture[edges, :] = picture[:, edges] = _GRID
    return picture


@functools.cache
def _grid() -> Picture:
    """Return the unit square with lines at every tenth, and its diagonal."""
    canvas = np.full((_SIZE * _FINE, _SIZE * _FINE, 3), _WHITE, np.uint8)
    ends = np.array([0.0, 1.0])
    for at in (*np.linspace(0.1, 0.9, 9), 0.0, 1.0):
        edge = _FRAME if at in (0.0, 1.0) else _GRID
        _line(canvas, ends, np.full(2, at), 1, edge)
        _line(canvas, np.full(2, at), ends, 1, edge)
    _line(canvas, ends, ends, 1, _FRAME)
    return canvas


def _line(
    canvas: Picture, x: NDArray[Any], y: NDArray[Any], radius: int, color: Any
) -> None:
    """Draw the line through the points, as dots less than a pixel apart."""
    if len(x) < 2:
        return
    lengths = np.hypot(np.diff(x), np.diff(y)) * _SIZE * _FINE
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    places = np.linspace(0.0, along[-1], int(along[-1]) + 2)
    dots = np.interp(places, along, x), np.interp(places, along, y)
    _stamp(canvas, *dots, radius, color)


def _stamp(
    canvas: Picture, x: NDArray[Any], y: NDArray[Any], radius: int, color: Any
) -> None:
    inner = (_SIZE - 2 * _MARGIN) * _FINE - 1
    columns = np.round(_MARGIN * _FINE + x * inner).astype(int)
    rows = np.round(_MARGIN * _FINE + (1.0 - y) * inner).astype(int)
    reach = np.arange(1 - radius, radius)
    for down in reach:
        for right in reach:
            if down * down + right * right < radius * radius:
                canvas[rows + down, columns + right] = color


def _average_blocks(canvas: Picture) -> Picture:
    blocks = canvas.reshape(_SIZE, _FINE, _SIZE, _FINE, 3)
    total = blocks.sum(axis=(1, 3), dtype=np.uint16)
    averaged: Picture = (total // _FINE**2).astype(np.uint8)
    return averaged
