"""Trees: boosted ones and random forests, trained by LightGBM, evaluated by XLA.

Read `estimator.py` first; `arrays.py` and `scores.py` are what a bundle holds and runs.
"""

from estimax.canned.trees.boosted import (
    BoostedTreesClassifier,
    BoostedTreesEstimator,
    BoostedTreesRegressor,
)
from estimax.canned.trees.forests import (
    RandomForestClassifier,
    RandomForestEstimator,
    RandomForestRegressor,
)

__all__ = [
    "BoostedTreesClassifier",
    "BoostedTreesEstimator",
    "BoostedTreesRegressor",
    "RandomForestClassifier",
    "RandomForestEstimator",
    "RandomForestRegressor",
]
