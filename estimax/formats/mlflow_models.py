"""Bundles as models of MLflow, whose flavor is `python_function`.

    write_mlflow_model("export/1700000000", "model")
    mlflow.pyfunc.load_model("model").predict(frame)      # a data frame

The folder holds the bundle as it is, and the name of the module that loads it
(`estimax.export.mlflow_model`): no code, and nothing pickled.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from estimax.core.errors import MissingFileError

_LOADER = "estimax.export.mlflow_model"
# Named, because MLflow would otherwise load the model to find what it imports.
_REQUIREMENTS = ["estimax", "pandas"]


def check_installed(who: str, package: str, extra: str) -> None:
    """Raise ImportError with advice if a package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f"{who} needs {package}, which is not installed: pip install "
            f'"estimax[{extra}]"'
        )


def write_mlflow_model(
    bundle: str | os.PathLike[str], path: str | os.PathLike[str]
) -> str:
    """Write a bundle as a model of MLflow.

    Use it to serve, register or evaluate a bundle with MLflow's tools; `MLflowHook`
    calls it for the bundle of a run. It needs `pip install "estimax[mlflow]"`.

    Args:
      bundle: The folder of a bundle: one version, with its manifest.
      path: The folder to write, which must not exist. Log it with
        `MlflowClient.log_artifacts`.

    Returns:
      `path`. `mlflow.pyfunc.load_model(path).predict(frame)` returns a data frame with
      the outputs of `Bundle.default_signature`.

    Raises:
      ImportError: MLflow is not installed.
      MissingFileError: There is no bundle in the folder.

    Example:
      >>> write_mlflow_model("no/bundle", "model")  # doctest: +IGNORE_EXCEPTION_DETAIL
      Traceback (most recent call last):
      MissingFileError: no/bundle: expected the folder of a bundle
    """
    folder = Path(bundle)
    if not (folder / "manifest.json").is_file():
        raise MissingFileError(
            f"{folder}: expected the folder of a bundle, with manifest.json."
        )
    check_installed("write_mlflow_model", "mlflow", "mlflow")
    import mlflow.pyfunc

    mlflow.pyfunc.save_model(
        path=os.fspath(path),
        loader_module=_LOADER,
        data_path=str(folder),
        pip_requirements=_REQUIREMENTS,
    )
    return os.fspath(path)
