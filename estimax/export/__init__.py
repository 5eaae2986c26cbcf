"""Bundles: models exported as data, which load without the code that trained them.

Read `signature.py` for what goes in, `writer.py` for the folder, and `bundle.py` for
loading and prediction.
"""

from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.core.spec import (
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from estimax.export.bundle import Bundle, load
from estimax.export.exporters import (
    BestExporter,
    Exporter,
    FinalExporter,
    LatestExporter,
    loss_smaller,
    metric_compare,
)
from estimax.export.ray import RayPredictor
from estimax.export.receivers import (
    ServingInputReceiver,
    SupervisedInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
    build_raw_supervised_input_receiver_fn,
)
from estimax.export.saved_model import write_saved_model
from estimax.export.signature import (
    CLASSIFY,
    EVALUATE,
    PREDICT,
    REGRESS,
    Servable,
    Signature,
    TensorInfo,
)
from estimax.export.spark import SparkPredictor, spark_udf
from estimax.export.writer import write_bundle

__all__ = [
    "CLASSIFY",
    "EVALUATE",
    "PREDICT",
    "REGRESS",
    "BestExporter",
    "Bundle",
    "ClassificationOutput",
    "ExportOutput",
    "Exporter",
    "FinalExporter",
    "LatestExporter",
    "PredictOutput",
    "RayPredictor",
    "RegressionOutput",
    "Servable",
    "ServingInputReceiver",
    "Signature",
    "SparkPredictor",
    "SupervisedInputReceiver",
    "TensorInfo",
    "TensorServingInputReceiver",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "build_raw_supervised_input_receiver_fn",
    "load",
    "loss_smaller",
    "metric_compare",
    "spark_udf",
    "write_bundle",
    "write_saved_model",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.export", name, __all__)
