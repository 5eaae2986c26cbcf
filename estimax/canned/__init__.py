"""Ready models: columns, layers and a head handed to Estimator."""

from estimax.canned.average import AverageEstimator
from estimax.canned.baseline import (
    BaselineClassifier,
    BaselineEstimator,
    BaselineRegressor,
)
from estimax.canned.click_models import DCNClassifier, DeepFMClassifier, DINClassifier
from estimax.canned.dnn import DNNClassifier, DNNEstimator, DNNRegressor
from estimax.canned.dnn_linear_combined import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
)
from estimax.canned.kmeans import KMeans
from estimax.canned.layers import dnn_logit_fn_builder, linear_logit_fn_builder
from estimax.canned.linear import LinearClassifier, LinearEstimator, LinearRegressor
from estimax.canned.multi_task import ESMMClassifier, MMoEEstimator
from estimax.canned.per_head import PerHeadEstimator
from estimax.canned.rnn import RNNClassifier, RNNEstimator
from estimax.canned.tabular import (
    TabularClassifier,
    TabularEstimator,
    TabularRegressor,
)
from estimax.canned.trees import (
    BoostedTreesClassifier,
    BoostedTreesEstimator,
    BoostedTreesRegressor,
    RandomForestClassifier,
    RandomForestEstimator,
    RandomForestRegressor,
)

__all__ = [
    "AverageEstimator",
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BoostedTreesClassifier",
    "BoostedTreesEstimator",
    "BoostedTreesRegressor",
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
    "PerHeadEstimator",
    "RNNClassifier",
    "RNNEstimator",
    "RandomForestClassifier",
    "RandomForestEstimator",
    "RandomForestRegressor",
    "TabularClassifier",
    "TabularEstimator",
    "TabularRegressor",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
]
