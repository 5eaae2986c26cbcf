"""Which host transforms a model asks for, recorded while it is traced, then replayed.

Read `recording.py` first: `stage` records a transform under the model's trace. A `Plan`
(`plan.py`) applies the recorded transforms to every batch in the input thread.
"""

from estimax.staging.recording import (
    Call,
    HostOnly,
    HostTransform,
    LoggedValue,
    Lookup,
    Origin,
    Raw,
    TableRows,
    Trace,
    can_stage,
    current,
    is_wide,
    stage,
    tracing,
)

__all__ = [
    "Call",
    "HostOnly",
    "HostTransform",
    "LoggedValue",
    "Lookup",
    "Origin",
    "Raw",
    "TableRows",
    "Trace",
    "can_stage",
    "current",
    "is_wide",
    "stage",
    "tracing",
]
