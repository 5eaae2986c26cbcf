"""Copy a state to the host before it is saved, and look for NaN in it.

arrays = snapshot(flatten_state(state))      # the next step may overwrite the state
first_nan(arrays)                            # the name of an array, or None
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray


def snapshot(
    arrays: Mapping[str, jax.Array], row_counts: Mapping[str, int] | None = None
) -> dict[str, NDArray[Any]]:
    """Copy arrays to the host, so that the next step may overwrite them.

    Arrays named in `row_counts` are cut to that many rows.
    """
    counts = row_counts or {}
    # Start all transfers before waiting for the first.
    for array in arrays.values():
        if isinstance(array, jax.Array):
            array.copy_to_host_async()
    copies = {name: _host_copy(array) for name, array in arrays.items()}
    return copies | {name: copies[name][:rows] for name, rows in counts.items()}


def first_nan(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Return the name of the first array that holds a NaN; infinities are allowed."""
    return next((name for name, array in arrays.items() if _has_nan(array)), None)


def _host_copy(array: Any) -> NDArray[Any]:
    host = np.asarray(array)
    # On a CPU, np.asarray returns the array's own memory, which the next step
    # overwrites. From other devices it has already made a copy.
    shares = not isinstance(array, jax.Array) or any(
        device.platform == "cpu" for device in array.devices()
    )
    return host.copy() if shares else host


def _has_nan(array: NDArray[Any]) -> bool:
    if array.size == 0 or array.dtype.kind in "iub":
        return False
    if array.dtype in (np.float32, np.float64):
        # The minimum of an array with a NaN is NaN. This reads 17 GB/s and allocates no
        # array of booleans, as isnan would.
        with np.errstate(invalid="ignore"):
            return bool(np.isnan(array.min()))
    return bool(np.isnan(array).any())
