"""The public names of the estimators for scikit-learn, and the module of each."""

from estimax.sklearn.models import Classifier as Classifier
from estimax.sklearn.models import Regressor as Regressor
