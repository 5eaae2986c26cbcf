"""Ready models: columns, layers and a head handed to Estimator."""

from estimax.canned.baseline import (
    BaselineClassifier,
    BaselineEstimator,
    BaselineRegressor,
)
from estimax.canned.dcn import DCNClassifier
from estimax.canned.deepfm import DeepFMClassifier
from estimax.canned.din import DINClassifier
from estimax.canned.dnn import DNNClassifier, DNNEstimator, DNNRegressor
from estimax.canned.dnn_linear_combined import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
)
from estimax.canned.esmm import ESMMClassifier
from estimax.canned.kmeans import KMeans
from estimax.canned.linear import LinearClassifier, LinearEstimator, LinearRegressor
from estimax.canned.logit_fns import dnn_logit_fn_builder, linear_logit_fn_builder
from estimax.canned.mmoe import MMoEEstimator
from estimax.canned.rnn import RNNClassifier, RNNEstimator

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "DCNClassifier",
    "DINClassifier",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "DeepFMClassifier",
    "ESMMClassifier",
    "KMeans",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "MMoEEstimator",
    "RNNClassifier",
    "RNNEstimator",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
]
