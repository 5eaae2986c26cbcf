"""What `estimax train` writes for TensorBoard besides what training itself writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from estimax import config
from estimax.cli.console import note
from estimax.cli.report import in_order
from estimax.config.dump import dump, leaves, to_plain

if TYPE_CHECKING:  # loads jax
    from estimax.config.build import Built

# Sections whose values are hyper-parameters of the model.
_TUNED = ("seed", "model", "optimizers", "train", "warm_start")


_DATA_ROWS = 5_000  # of which a summary is written


def write_config(loaded: config.LoadedRun, built: Built) -> None:
    """Write the run file and a summary of its data as text, and its hyper-parameters.

    Only a run that starts writes them; a resumed run has them. Training does not need
    them, so it goes on without them if they cannot be written.
    """
    try:
        _write_config(loaded, built)
    except Exception as error:
        note(f"the run is not described to TensorBoard: {error}", "yellow")


def _write_config(loaded: config.LoadedRun, built: Built) -> None:
    from estimax import checkpoints
    from estimax.hooks.summary import SummaryWriter
    from estimax.inspection.importance import read_rows
    from estimax.inspection.report import columns

    run = loaded.run
    folder = run.run.model_dir
    if not run.run.save_summary_steps or checkpoints.latest(folder) is not None:
        return
    data = read_rows(
        built.estimator, in_order(built, run.train.source), _DATA_ROWS, where="train"
    )
    with SummaryWriter(folder) as writer:
        writer.text("config", f"```yaml\n{dump(run)}```", 0)
        writer.text("data", columns.as_markdown(data.features), 0)
        writer.hparams(hyper_parameters(run))


def hyper_parameters(run: config.Run) -> dict[str, Any]:
    """Return the settings that describe the model and its training, by address."""
    return {
        address: value if isinstance(value, bool | int | float | str) else str(value)
        for address, value in leaves(to_plain(run))
        if value not in (None, [], {}) and _is_tuned(address)
    }


def _is_tuned(address: str) -> bool:
    if address.startswith("data.sources."):
        return address.endswith((".batch_size", ".epochs", ".buffer_rows"))
    return any(address == part or address.startswith(f"{part}.") for part in _TUNED)
