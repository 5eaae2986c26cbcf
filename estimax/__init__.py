"""estimax, the Estimator for JAX.

    import estimax as ex

    model = ex.DNNClassifier(hidden_units=[64, 32], feature_columns=columns)
    model.train(input_fn, max_steps=1000)
    print(model.evaluate(eval_input_fn))

Rooms and names are imported when they are first used, so that a process which checks a
config or serves a bundle loads nothing that trains.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_ROOMS = (
    "debug",
    "export",
    "feature_columns",
    "heads",
    "hooks",
    "input",
    "inspection",
    "metrics",
    "optimizers",
    "summary",
    "transforms",
)

# Where each top-level name lives. One line per name, sorted; `__all__` follows it.
_NAMES = {
    "AUTO_REUSE": "estimax.variables",
    "BaselineClassifier": "estimax.canned",
    "BaselineEstimator": "estimax.canned",
    "BaselineRegressor": "estimax.canned",
    "BestExporter": "estimax.export",
    "ClassificationOutput": "estimax.core.spec",
    "DCNClassifier": "estimax.canned",
    "DINClassifier": "estimax.canned",
    "DNNClassifier": "estimax.canned",
    "DNNEstimator": "estimax.canned",
    "DNNLinearCombinedClassifier": "estimax.canned",
    "DNNLinearCombinedEstimator": "estimax.canned",
    "DNNLinearCombinedRegressor": "estimax.canned",
    "DNNRegressor": "estimax.canned",
    "DeepFMClassifier": "estimax.canned",
    "ESMMClassifier": "estimax.canned",
    "Estimator": "estimax.estimator",
    "EstimatorSpec": "estimax.core.spec",
    "EstimaxError": "estimax.core.errors",
    "EvalSpec": "estimax.estimator",
    "FinalExporter": "estimax.export",
    "KMeans": "estimax.canned",
    "LatestExporter": "estimax.export",
    "LinearClassifier": "estimax.canned",
    "LinearEstimator": "estimax.canned",
    "LinearRegressor": "estimax.canned",
    "MMoEEstimator": "estimax.canned",
    "ModeKeys": "estimax.core.spec",
    "PredictOutput": "estimax.core.spec",
    "RNNClassifier": "estimax.canned",
    "RNNEstimator": "estimax.canned",
    "RegressionOutput": "estimax.core.spec",
    "RunConfig": "estimax.estimator",
    "Sparse": "estimax.core.sparse",
    "TrainSpec": "estimax.estimator",
    "VocabInfo": "estimax.checkpoints",
    "WarmStartSettings": "estimax.checkpoints",
    "add_metrics": "estimax.estimator",
    "assign": "estimax.variables",
    "call_logit_fn": "estimax.estimator",
    "classifier_parse_example_spec": "estimax.feature_columns",
    "dnn_logit_fn_builder": "estimax.canned",
    "get_variable": "estimax.variables",
    "get_variable_scope": "estimax.variables",
    "group": "estimax.optimizers",
    "linear_logit_fn_builder": "estimax.canned",
    "log_value": "estimax.summary",
    "minimize": "estimax.optimizers",
    "regressor_parse_example_spec": "estimax.feature_columns",
    "regularization_losses": "estimax.variables",
    "train_and_evaluate": "estimax.estimator",
    "variable_scope": "estimax.variables",
}

__version__ = "0.1.0.dev0"
__all__ = [*_NAMES, *_ROOMS]

if TYPE_CHECKING:
    from estimax import (
        debug,
        export,
        feature_columns,
        heads,
        hooks,
        input,
        inspection,
        metrics,
        optimizers,
        summary,
        transforms,
    )
    from estimax.canned import (
        BaselineClassifier,
        BaselineEstimator,
        BaselineRegressor,
        DCNClassifier,
        DeepFMClassifier,
        DINClassifier,
        DNNClassifier,
        DNNEstimator,
        DNNLinearCombinedClassifier,
        DNNLinearCombinedEstimator,
        DNNLinearCombinedRegressor,
        DNNRegressor,
        ESMMClassifier,
        KMeans,
        LinearClassifier,
        LinearEstimator,
        LinearRegressor,
        MMoEEstimator,
        RNNClassifier,
        RNNEstimator,
        dnn_logit_fn_builder,
        linear_logit_fn_builder,
    )
    from estimax.checkpoints import VocabInfo, WarmStartSettings
    from estimax.core.errors import EstimaxError
    from estimax.core.sparse import Sparse
    from estimax.core.spec import (
        ClassificationOutput,
        EstimatorSpec,
        ModeKeys,
        PredictOutput,
        RegressionOutput,
    )
    from estimax.estimator import (
        Estimator,
        EvalSpec,
        RunConfig,
        TrainSpec,
        add_metrics,
        call_logit_fn,
        train_and_evaluate,
    )
    from estimax.export import BestExporter, FinalExporter, LatestExporter
    from estimax.feature_columns import (
        classifier_parse_example_spec,
        regressor_parse_example_spec,
    )
    from estimax.optimizers import group, minimize
    from estimax.summary import log_value
    from estimax.variables import (
        AUTO_REUSE,
        assign,
        get_variable,
        get_variable_scope,
        regularization_losses,
        variable_scope,
    )


def __getattr__(name: str) -> Any:  # a module or one of its names
    if name in _ROOMS:
        return import_module(f"estimax.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'estimax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
