"""The public names of bundles and exporters, and the module of each."""

from estimax.core.spec import ClassificationOutput as ClassificationOutput
from estimax.core.spec import ExportOutput as ExportOutput
from estimax.core.spec import PredictOutput as PredictOutput
from estimax.core.spec import RegressionOutput as RegressionOutput
from estimax.export.bundle import Bundle as Bundle
from estimax.export.bundle import load as load
from estimax.export.exporters import BestExporter as BestExporter
from estimax.export.exporters import Exporter as Exporter
from estimax.export.exporters import FinalExporter as FinalExporter
from estimax.export.exporters import LatestExporter as LatestExporter
from estimax.export.exporters import loss_smaller as loss_smaller
from estimax.export.exporters import metric_compare as metric_compare
from estimax.export.ray import RayPredictor as RayPredictor
from estimax.export.receivers import ServingInputReceiver as ServingInputReceiver
from estimax.export.receivers import SupervisedInputReceiver as SupervisedInputReceiver
from estimax.export.receivers import (
    TensorServingInputReceiver as TensorServingInputReceiver,
)
from estimax.export.receivers import (
    build_parsing_serving_input_receiver_fn as build_parsing_serving_input_receiver_fn,
)
from estimax.export.receivers import (
    build_raw_serving_input_receiver_fn as build_raw_serving_input_receiver_fn,
)
from estimax.export.receivers import (
    build_raw_supervised_input_receiver_fn as build_raw_supervised_input_receiver_fn,
)
from estimax.export.saved_model import write_saved_model as write_saved_model
from estimax.export.signature import CLASSIFY as CLASSIFY
from estimax.export.signature import EVALUATE as EVALUATE
from estimax.export.signature import PREDICT as PREDICT
from estimax.export.signature import REGRESS as REGRESS
from estimax.export.signature import Servable as Servable
from estimax.export.signature import Signature as Signature
from estimax.export.signature import TensorInfo as TensorInfo
from estimax.export.spark import SparkPredictor as SparkPredictor
from estimax.export.spark import spark_udf as spark_udf
from estimax.export.writer import write_bundle as write_bundle
from estimax.formats.mlflow_models import write_mlflow_model as write_mlflow_model
