"""Checkpoints: training states on disk, and warm starts from them.

Read `format.py` for the files, `saver.py` for writing during training, `listing.py` for
finding the latest one, `distributed.py` for clusters, `warm_start.py` for starting a
new model from an old one.
"""

from estimax.checkpoints.distributed import arrays_in, local_rows
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
from estimax.checkpoints.listing import (
    all_checkpoints,
    forget_finished,
    is_checkpoint_name,
    latest,
    mark_finished,
    path_of,
    read_finished,
    restore_latest,
    step_of,
)
from estimax.checkpoints.saver import Saver
from estimax.checkpoints.snapshot import first_nan, snapshot
from estimax.checkpoints.sources import open_source, tensorflow_checkpoint
from estimax.checkpoints.state_names import (
    flatten_state,
    row_counts,
    unflatten_state,
    unflatten_variables,
    with_averages,
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
    "first_nan",
    "flatten_state",
    "forget_finished",
    "is_checkpoint_name",
    "latest",
    "local_rows",
    "mark_finished",
    "names",
    "open_source",
    "path_of",
    "read",
    "read_array",
    "read_finished",
    "read_manifest",
    "restore_latest",
    "row_counts",
    "snapshot",
    "step_of",
    "tensorflow_checkpoint",
    "unflatten_state",
    "unflatten_variables",
    "warm_start",
    "with_averages",
    "write",
]
