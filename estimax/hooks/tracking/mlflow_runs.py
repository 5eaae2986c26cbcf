"""`MLflowHook`: parameters, metrics, files and the bundle of a run, in MLflow."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from estimax.formats.mlflow_models import write_mlflow_model
from estimax.hooks.tracking.tracker import TrackerHook

_PARAMS_AT_ONCE = 100  # MLflow's limit
_LONGEST_PARAM = 500  # characters; older servers refuse more
_STATUS = {"finished": "FINISHED", "failed": "FAILED"}


class MLflowHook(TrackerHook):
    """Log a run to MLflow: parameters, metrics by step, the report and the bundle.

    In a run file it is `train: {hooks: [{type: mlflow, experiment: income}]}`, and
    `estimax train` logs the resolved run file as parameters. In Python, use it as a
    `with` block around `train_and_evaluate`, so that the last evaluation and the bundle
    are logged as well. It needs `pip install "estimax[mlflow]"`.

    MLflow is called in a thread. If a call fails, one warning is logged, and the
    training goes on without the tracker. A run that is resumed goes on in the same run
    of MLflow.

    Args:
      model_dir: The folder of the model, where evaluations, report and bundles are.
      experiment: The name of the experiment; it is made if there is none.
      run_name: The name of the run; None lets MLflow choose.
      tracking_uri: The server or store, such as "http://localhost:5000" or
        "sqlite:///mlruns.db". None: that of MLflow's settings (MLFLOW_TRACKING_URI).
      params: More parameters to log.
      every_n_steps: Steps between two logs of loss and speed.
      log_model: Whether to log the newest bundle as a model, which
        `mlflow.pyfunc.load_model("runs:/<run id>/model")` loads.
      wait_secs: Most seconds to wait for the tracker at the end.

    Raises:
      ConfigError: `every_n_steps` is below 1.
      ImportError: When training begins: MLflow is not installed.

    Example:
      >>> MLflowHook("runs/income", experiment="income").next_step(0)
      100
    """

    package, extra, title = "mlflow", "mlflow", "MLflow"

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        experiment: str = "estimax",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        params: Mapping[str, Any] | None = None,
        every_n_steps: int = 100,
        log_model: bool = True,
        wait_secs: float = 60.0,
    ) -> None:
        super().__init__(model_dir, params, every_n_steps, wait_secs, log_model)
        self._experiment = experiment
        self._run_name = run_name
        self._tracking_uri = tracking_uri
        self._client: Any = None
        self.run_id: str | None = None
        """The id of the run in MLflow, once it has begun."""

    def start(self, params: Mapping[str, str], run_id: str | None) -> str:
        """Begin a run of MLflow, or continue one.

        Args:
          params: The parameters by name.
          run_id: The run to continue; None begins one.

        Returns:
          The id of the run.
        """
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(tracking_uri=self._tracking_uri)
        if run_id is not None:
            self._client.set_terminated(run_id, "RUNNING")
            self.run_id = run_id
            return run_id  # its parameters cannot be changed
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = (
            self._client.create_experiment(self._experiment)
            if known is None
            else known.experiment_id
        )
        run = self._client.create_run(experiment, run_name=self._run_name)
        self.run_id = started = str(run.info.run_id)
        every = [Param(_name(n), v[:_LONGEST_PARAM]) for n, v in params.items()]
        for i in range(0, len(every), _PARAMS_AT_ONCE):
            self._client.log_batch(started, params=every[i : i + _PARAMS_AT_ONCE])
        return started

    def send_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log numbers of a step.

        Args:
          step: The step.
          metrics: The numbers by name.
        """
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        sent = [Metric(_name(n), value, now, step) for n, value in metrics.items()]
        self._client.log_batch(self.run_id, metrics=sent)

    def send_files(self, files: Mapping[str, Path], bundle: Path | None) -> None:
        """Log files, and the bundle as a model.

        Args:
          files: The files by name.
          bundle: The folder of a bundle, if there is one.
        """
        for name, path in files.items():
            folder = str(Path(name).parent)
            folder_or_none = None if folder == "." else folder
            self._client.log_artifact(self.run_id, str(path), folder_or_none)
        if bundle is None:
            return
        with tempfile.TemporaryDirectory(prefix="estimax-") as base:
            model = write_mlflow_model(bundle, Path(base) / "model")
            self._client.log_artifacts(self.run_id, model, "model")

    def finish(self, status: Literal["finished", "failed"]) -> None:
        """End the run of MLflow.

        Args:
          status: Whether it "finished" or "failed".
        """
        self._client.set_terminated(self.run_id, _STATUS[status])


def _name(text: str) -> str:
    """Return a name with only the characters that MLflow takes.

    >>> _name("eval/précision@5")
    'eval/pr_cision_5'
    """
    return re.sub(r"[^A-Za-z0-9_\-. /]", "_", text)
