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
from estimax.canned.linear import LinearClassifier, LinearEstimator, LinearRegressor
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
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "MMoEEstimator",
    "RNNClassifier",
    "RNNEstimator",
]
