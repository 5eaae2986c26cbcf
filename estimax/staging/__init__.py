"""Which host transforms a model needs: recorded while it is traced, then run.

Read `trace.py` first: `stage` records a transform while the model is traced. A
`HostPlan` (`host_plan.py`) runs the recorded transforms on every batch in the input
thread.
"""

from estimax.staging.model_inputs import ModelInput, ModelInputs, as_model_input
from estimax.staging.trace import (
    OUT_OF_RANGE,
    TRAINED_COLLECTIONS,
    HostCall,
    HostOnly,
    HostTransform,
    LoggedValue,
    Lookup,
    Origin,
    Raw,
    RowReaders,
    StackedRows,
    TableRows,
    Trace,
    can_stage,
    current,
    declare_default,
    forward,
    is_wide,
    named_leaves,
    stage,
    tracing,
)

__all__ = [
    "OUT_OF_RANGE",
    "TRAINED_COLLECTIONS",
    "HostCall",
    "HostOnly",
    "HostTransform",
    "LoggedValue",
    "Lookup",
    "ModelInput",
    "ModelInputs",
    "Origin",
    "Raw",
    "RowReaders",
    "StackedRows",
    "TableRows",
    "Trace",
    "as_model_input",
    "can_stage",
    "current",
    "declare_default",
    "forward",
    "is_wide",
    "named_leaves",
    "stage",
    "tracing",
]
