"""What happens to a number on its way into the model: filled, bent, scaled.

    normalizer = Scaling(fill=38.0, log1p=False, mean=38.6, std=13.6)
    normalizer(np.array([50.0, np.nan]))

Handed to `numeric_column` as its `normalizer_fn`. It is traced by JAX into an exported
function, and is data where the host needs it (buckets inside a cross): so a bundle
scales as training did. A normalizer_fn of one's own can do only the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Scaling:
    """(log1p(x) - mean) / std, with `fill` in place of a missing x.

    >>> Scaling(fill=3.0, mean=1.0, std=2.0)(np.array([5.0, np.nan])).tolist()
    [2.0, 1.0]
    """

    fill: float | None = None
    log1p: bool = False
    mean: float = 0.0
    std: float = 1.0

    def __call__(self, x: Any) -> Any:
        """Scale a NumPy or JAX array of any shape."""
        on_host = isinstance(x, np.ndarray | np.generic | float | int)
        if on_host:
            xp: Any = np
        else:
            import jax.numpy as xp
        if self.fill is not None and xp.issubdtype(xp.asarray(x).dtype, xp.floating):
            x = xp.where(xp.isnan(x), xp.asarray(self.fill, x.dtype), x)
        if self.log1p:
            x = xp.log1p(x)
        if self.mean == 0.0 and self.std == 1.0:
            return x
        # Arithmetic with Python's floats keeps the array's own precision; large Python
        # integers would not fit a device's.
        return (x - float(self.mean)) / float(self.std)
