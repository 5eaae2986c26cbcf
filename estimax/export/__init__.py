"""Bundles: models exported as data, which load without the code that trained them.

Read `signature.py` for what goes in, `writer.py` for the folder, and `bundle.py` for
loading and prediction. Names are imported when they are first used, so that a process
that only starts others for batch scoring does not load jax. `__init__.pyi` lists them.
"""

from estimax.core import migration
from estimax.core.lazy_names import lazy_getattr, modules_of_names

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
    "write_mlflow_model",
    "write_saved_model",
]

_MODULES = modules_of_names(__file__)
__getattr__ = lazy_getattr(
    globals(),
    _MODULES,
    lambda name: migration.missing("estimax.export", name, __all__),
)
