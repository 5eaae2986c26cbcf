"""Checkpoints: training states on disk, and warm starts from them.

Read `format.py` for the files, `saver.py` for writing during training, `manager.py` for
finding the latest one, `together.py` for clusters, `warm_start.py` for starting a new
model from an old one.
"""

from estimax.checkpoints.distributed import arrays_in, held_rows
from estimax.checkpoints.end_of_training import finished, forget_finished, mark_finished
from estimax.checkpoints.format import (
    ArrayEntry,
    Checkpoint,
    Manifest,
    names,
    read,
    read_array,
    read_manifest,
    write,
)
from estimax.checkpoints.manager import (
    all_checkpoints,
    first_nan,
    is_checkpoint_name,
    latest,
    path_of,
    restore_latest,
    snapshot,
    step_of,
)
from estimax.checkpoints.saver import Saver
from estimax.checkpoints.sources import open_source, tensorflow_checkpoint
from estimax.checkpoints.state_names import (
    averaged,
    flatten_state,
    row_counts,
    unflatten_state,
    unflatten_variables,
)
from estimax.checkpoints.warm_start import (
    VocabInfo,
    WarmStartSettings,
    as_settings,
    warm_start,
)

__all__ = [
    "ArrayEntry",
    "Checkpoint",
    "Manifest",
    "Saver",
    "VocabInfo",
    "WarmStartSettings",
    "all_checkpoints",
    "arrays_in",
    "as_settings",
    "averaged",
    "finished",
    "first_nan",
    "flatten_state",
    "forget_finished",
    "held_rows",
    "is_checkpoint_name",
    "latest",
    "mark_finished",
    "names",
    "open_source",
    "path_of",
    "read",
    "read_array",
    "read_manifest",
    "restore_latest",
    "row_counts",
    "snapshot",
    "step_of",
    "tensorflow_checkpoint",
    "unflatten_state",
    "unflatten_variables",
    "warm_start",
    "write",
]
