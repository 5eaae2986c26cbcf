"""The public names of estimax, and the packages they are in.

`estimax/__init__.py` reads this file, so that each name is listed once.
"""

from estimax import calibration as calibration
from estimax import export as export
from estimax import feature_columns as feature_columns
from estimax import heads as heads
from estimax import hooks as hooks
from estimax import input as input
from estimax import inspection as inspection
from estimax import metrics as metrics
from estimax import optimizers as optimizers
from estimax import sklearn as sklearn
from estimax.canned import AverageEstimator as AverageEstimator
from estimax.canned import BaselineClassifier as BaselineClassifier
from estimax.canned import BaselineEstimator as BaselineEstimator
from estimax.canned import BaselineRegressor as BaselineRegressor
from estimax.canned import BoostedTreesClassifier as BoostedTreesClassifier
from estimax.canned import BoostedTreesEstimator as BoostedTreesEstimator
from estimax.canned import BoostedTreesRegressor as BoostedTreesRegressor
from estimax.canned import DCNClassifier as DCNClassifier
from estimax.canned import DeepFMClassifier as DeepFMClassifier
from estimax.canned import DINClassifier as DINClassifier
from estimax.canned import DNNClassifier as DNNClassifier
from estimax.canned import DNNEstimator as DNNEstimator
from estimax.canned import DNNLinearCombinedClassifier as DNNLinearCombinedClassifier
from estimax.canned import DNNLinearCombinedEstimator as DNNLinearCombinedEstimator
from estimax.canned import DNNLinearCombinedRegressor as DNNLinearCombinedRegressor
from estimax.canned import DNNRegressor as DNNRegressor
from estimax.canned import ESMMClassifier as ESMMClassifier
from estimax.canned import KMeans as KMeans
from estimax.canned import LinearClassifier as LinearClassifier
from estimax.canned import LinearEstimator as LinearEstimator
from estimax.canned import LinearRegressor as LinearRegressor
from estimax.canned import MMoEEstimator as MMoEEstimator
from estimax.canned import PerHeadEstimator as PerHeadEstimator
from estimax.canned import RandomForestClassifier as RandomForestClassifier
from estimax.canned import RandomForestEstimator as RandomForestEstimator
from estimax.canned import RandomForestRegressor as RandomForestRegressor
from estimax.canned import RNNClassifier as RNNClassifier
from estimax.canned import RNNEstimator as RNNEstimator
from estimax.canned import TabularClassifier as TabularClassifier
from estimax.canned import TabularEstimator as TabularEstimator
from estimax.canned import TabularRegressor as TabularRegressor
from estimax.canned import dnn_logit_fn_builder as dnn_logit_fn_builder
from estimax.canned import linear_logit_fn_builder as linear_logit_fn_builder
from estimax.checkpoints import VocabInfo as VocabInfo
from estimax.checkpoints import WarmStartSettings as WarmStartSettings
from estimax.core.errors import EstimaxError as EstimaxError
from estimax.core.sparse import Sparse as Sparse
from estimax.core.sparse import sparse_tensor_to_dense as sparse_tensor_to_dense
from estimax.core.spec import ClassificationOutput as ClassificationOutput
from estimax.core.spec import EstimatorSpec as EstimatorSpec
from estimax.core.spec import ModeKeys as ModeKeys
from estimax.core.spec import PredictOutput as PredictOutput
from estimax.core.spec import RegressionOutput as RegressionOutput
from estimax.estimator import Estimator as Estimator
from estimax.estimator import EvalSpec as EvalSpec
from estimax.estimator import RunConfig as RunConfig
from estimax.estimator import TrainSpec as TrainSpec
from estimax.estimator import add_metrics as add_metrics
from estimax.estimator import call_logit_fn as call_logit_fn
from estimax.estimator import forward_features as forward_features
from estimax.estimator import train_and_evaluate as train_and_evaluate
from estimax.export import BestExporter as BestExporter
from estimax.export import Exporter as Exporter
from estimax.export import FinalExporter as FinalExporter
from estimax.export import LatestExporter as LatestExporter
from estimax.export import scoring as scoring
from estimax.feature_columns import (
    classifier_parse_example_spec as classifier_parse_example_spec,
)
from estimax.feature_columns import embedding_lookup as embedding_lookup
from estimax.feature_columns import embedding_lookup_sparse as embedding_lookup_sparse
from estimax.feature_columns import (
    regressor_parse_example_spec as regressor_parse_example_spec,
)
from estimax.feature_columns import transforms as transforms
from estimax.heads import BinaryClassHead as BinaryClassHead
from estimax.heads import Head as Head
from estimax.heads import LogisticRegressionHead as LogisticRegressionHead
from estimax.heads import MultiClassHead as MultiClassHead
from estimax.heads import MultiHead as MultiHead
from estimax.heads import MultiLabelHead as MultiLabelHead
from estimax.heads import PoissonRegressionHead as PoissonRegressionHead
from estimax.heads import RegressionHead as RegressionHead
from estimax.hooks import CheckpointSaverHook as CheckpointSaverHook
from estimax.hooks import CheckpointSaverListener as CheckpointSaverListener
from estimax.hooks import FinalOpsHook as FinalOpsHook
from estimax.hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from estimax.hooks import LoggingTensorHook as LoggingTensorHook
from estimax.hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
from estimax.hooks import NanTensorHook as NanTensorHook
from estimax.hooks import ProfilerHook as ProfilerHook
from estimax.hooks import SecondOrStepTimer as SecondOrStepTimer
from estimax.hooks import SessionRunArgs as SessionRunArgs
from estimax.hooks import SessionRunContext as SessionRunContext
from estimax.hooks import SessionRunHook as SessionRunHook
from estimax.hooks import SessionRunValues as SessionRunValues
from estimax.hooks import StepCounterHook as StepCounterHook
from estimax.hooks import StopAtStepHook as StopAtStepHook
from estimax.hooks import SummarySaverHook as SummarySaverHook
from estimax.hooks import summary as summary
from estimax.hooks.summary import log_value as log_value
from estimax.inspection import report as report
from estimax.optimizers import group as group
from estimax.optimizers import minimize as minimize
from estimax.staging.variables import AUTO_REUSE as AUTO_REUSE
from estimax.staging.variables import GraphKeys as GraphKeys
from estimax.staging.variables import assign as assign
from estimax.staging.variables import get_collection as get_collection
from estimax.staging.variables import get_global_step as get_global_step
from estimax.staging.variables import (
    get_or_create_global_step as get_or_create_global_step,
)
from estimax.staging.variables import get_variable as get_variable
from estimax.staging.variables import get_variable_scope as get_variable_scope
from estimax.staging.variables import regularization_losses as regularization_losses
from estimax.staging.variables import trainable_variables as trainable_variables
from estimax.staging.variables import variable_scope as variable_scope
from estimax.staging.variables import variables_by_name as variables_by_name
from estimax.v1 import crf as crf
from estimax.v1 import experimental as experimental
from estimax.v1 import inputs as inputs
from estimax.v1 import lookup as lookup
from estimax.v1 import losses as losses

__version__: str
__all__: list[str]
