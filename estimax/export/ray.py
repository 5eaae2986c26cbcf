"""Predict the batches of a Ray dataset with a bundle.

    scores = dataset.map_batches(
        RayPredictor,
        fn_constructor_kwargs={"bundle": "export", "keep": ["id"]},
        batch_format="pyarrow",
        concurrency=4,
    )

Every actor loads the bundle from disk, once, and imports no training code. It needs
`pip install 'estimax[ray]'`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from estimax.export.bundle_reference import BundleReference


class RayPredictor:
    """Predicts batches; a callable class for `ray.data.Dataset.map_batches`.

    Pass the class, not an object, and its arguments as `fn_constructor_kwargs`. Each of
    `concurrency` actors then loads the bundle: the folder must be at the same path on
    all machines. Batches of 4,096 rows or more (`batch_size`) are fastest, in the
    format "pyarrow".

    Args:
      bundle: The path of a bundle, or of a folder of versions, of which the newest is
        used. All actors should see the same one: name the version.
      signature: The signature to call. None: `Bundle.default_signature`.
      keep: The columns of a batch to return beside the predictions; `"*"` for all.

    Raises:
      MissingFileError: There is no such folder.
      BundleError: The bundle is damaged, has no such signature, or a column to keep has
        the name of an output.

    Example:
      >>> import tempfile, numpy as np
      >>> from estimax.export import Servable, write_bundle
      >>> from estimax.staging.host_plan import HostPlan
      >>> from estimax.staging.trace import Origin
      >>> age = Origin("features", "age")
      >>> double = lambda w, x: {"serving_default": {"y": x.raw["features/age"] * 2}}
      >>> servable = Servable(double, {}, HostPlan((age,), ()), {age: np.array([31.0])})
      >>> with tempfile.TemporaryDirectory() as base:
      ...     bundle = write_bundle(servable, base, platforms=("cpu",))
      ...     predict = RayPredictor(bundle, keep=["id"])
      ...     predict({"id": np.array([7]), "age": np.array([1.5])})
      {'id': array([7]), 'y': array([3.], dtype=float32)}
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        signature: str | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        self._reference, _ = BundleReference.of(bundle, signature=signature, keep=keep)
        self._reference.load()  # now, and not with the first batch

    def __call__(self, batch: Any) -> Any:
        """Predict the rows of a batch.

        Args:
          batch: A dict of NumPy arrays, a pyarrow Table or a data frame of pandas.

        Returns:
          Kept columns and predictions, in the form of the batch.

        Raises:
          BundleError: The batch lacks a feature or a column to keep, or a row is
            refused.
        """
        if isinstance(batch, Mapping):
            return self._reference.score_columns(batch)
        if hasattr(batch, "iloc"):
            return self._reference.score_frame(batch)
        import pyarrow as pa

        return pa.table(self._reference.score_arrow(batch))
