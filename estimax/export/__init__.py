"""Bundles: models exported as data, which load without the code that trained them.

Read `signature.py` for what goes in, `writer.py` for the folder, and `bundle.py` for
loading and prediction.
"""

from estimax.export.bundle import Bundle, load
from estimax.export.exporters import (
    BestExporter,
    Exporter,
    FinalExporter,
    LatestExporter,
    loss_smaller,
    metric_compare,
)
from estimax.export.receivers import (
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_raw_serving_input_receiver_fn,
)
from estimax.export.signature import (
    CLASSIFY,
    PREDICT,
    REGRESS,
    Servable,
    Signature,
    TensorInfo,
)
from estimax.export.writer import write_bundle

__all__ = [
    "CLASSIFY",
    "PREDICT",
    "REGRESS",
    "BestExporter",
    "Bundle",
    "Exporter",
    "FinalExporter",
    "LatestExporter",
    "Servable",
    "ServingInputReceiver",
    "Signature",
    "TensorInfo",
    "TensorServingInputReceiver",
    "build_raw_serving_input_receiver_fn",
    "load",
    "loss_smaller",
    "metric_compare",
    "write_bundle",
]
