"""Load a bundle for MLflow: `mlflow.pyfunc.load_model` calls `_load_pyfunc`.

`estimax.formats.mlflow_models` writes the models that name this module.
"""

from __future__ import annotations

from typing import Any

from estimax.export.bundle_reference import BundleReference


class PyfuncModel:
    """A bundle with the method that MLflow calls.

    Args:
      path: The folder of the bundle.
    """

    def __init__(self, path: str) -> None:
        self._reference, _ = BundleReference.of(path, signature=None, keep=())
        self._reference.load()  # now, and not with the first request

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return the predictions of a data frame as a data frame.

        Args:
          model_input: A data frame of pandas; others are converted to one.
          params: Ignored: a bundle has no parameters.
        """
        import pandas as pd

        frame = model_input
        if not isinstance(frame, pd.DataFrame):
            frame = pd.DataFrame(frame)
        return self._reference.score_frame(frame)


def _load_pyfunc(path: str) -> PyfuncModel:
    """Load a model; MLflow calls it with the path of the bundle."""
    return PyfuncModel(path)
