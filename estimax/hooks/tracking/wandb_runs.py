"""`WandbHook`: parameters, metrics, files and the bundle of a run, in W&B."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from estimax.hooks.tracking.tracker import TrackerHook


class WandbHook(TrackerHook):
    """Log a run to Weights & Biases: parameters, metrics, the report and the bundle.

    In a run file it is `train: {hooks: [{type: wandb, project: income}]}`, and
    `estimax train` logs the resolved run file as the config of the run. In Python, use
    it as a `with` block around `train_and_evaluate`, so that the last evaluation and
    the bundle are logged as well. It needs `pip install "estimax[wandb]"`.

    W&B is called in a thread. If a call fails, one warning is logged, and the training
    goes on without the tracker. A run that is resumed goes on in the same run of W&B.

    Args:
      model_dir: The folder of the model, where evaluations, report and bundles are.
        The files of W&B are written to its folder `wandb`.
      project: The name of the project.
      run_name: The name of the run; None lets W&B choose.
      entity: The user or team; None is the default of the account.
      mode: "online", "offline" (files that `wandb sync` sends later) or "disabled".
        None: that of the environment (WANDB_MODE), or "online".
      params: More parameters to log.
      every_n_steps: Steps between two logs of loss and speed.
      log_model: Whether to log the newest bundle as an artifact of the type "model".
      wait_secs: Most seconds to wait for the tracker at the end.

    Raises:
      ConfigError: `every_n_steps` is below 1.
      ImportError: When training begins: W&B is not installed.

    Example:
      >>> WandbHook("runs/income", project="income", every_n_steps=50).next_step(0)
      50
    """

    package, extra, title = "wandb", "wandb", "W&B"

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        project: str = "estimax",
        run_name: str | None = None,
        entity: str | None = None,
        mode: str | None = None,
        params: Mapping[str, Any] | None = None,
        every_n_steps: int = 100,
        log_model: bool = True,
        wait_secs: float = 60.0,
    ) -> None:
        super().__init__(model_dir, params, every_n_steps, wait_secs, log_model)
        self._settings: dict[str, Any] = {
            "project": project,
            "name": run_name,
            "entity": entity,
            "mode": mode,
        }
        self._run: Any = None

    def start(self, params: Mapping[str, str], run_id: str | None) -> str:
        """Begin a run of W&B, or continue one.

        Args:
          params: The parameters by name.
          run_id: The run to continue; None begins one.

        Returns:
          The id of the run.
        """
        import wandb

        self.model_dir.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            **self._settings,
            dir=str(self.model_dir),
            config=dict(params),
            id=run_id,
            resume=None if run_id is None else "allow",
            # Training has a log of its own, and other runs of the process stay as they
            # are.
            settings=wandb.Settings(silent=True, console="off"),
            reinit="create_new",
        )
        # Evaluations come after later steps of training, so each number is plotted over
        # a step of its own.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        return str(self._run.id)

    def send_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log numbers of a step.

        Args:
          step: The step.
          metrics: The numbers by name.
        """
        self._run.log({**metrics, "step": step})

    def send_files(self, files: Mapping[str, Path], bundle: Path | None) -> None:
        """Log files, and the bundle as an artifact.

        Args:
          files: The files by name.
          bundle: The folder of a bundle, if there is one.
        """
        import wandb

        if files:
            artifact = wandb.Artifact(f"run-{self._run.id}", "run")
            for name, path in files.items():
                artifact.add_file(str(path), name=name)
            self._run.log_artifact(artifact)
        if bundle is not None:
            artifact = wandb.Artifact(f"bundle-{self._run.id}", "model")
            artifact.add_dir(str(bundle))
            self._run.log_artifact(artifact)

    def finish(self, status: Literal["finished", "failed"]) -> None:
        """End the run of W&B.

        Args:
          status: Whether it "finished" or "failed".
        """
        self._run.finish(exit_code=0 if status == "finished" else 1)
