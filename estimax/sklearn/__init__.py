"""Estimators for scikit-learn: a table in, a model out, without columns or input code.

    model = ex.sklearn.Classifier()
    model.fit(frame, labels).predict(frame)

`models.py` has the classes, `training.py` the run that `fit` trains, `tables.py` the
conversion of arrays and data frames. Names are imported when they are first used, so
that `import estimax` works without scikit-learn. `__init__.pyi` lists them.
"""

from typing import NoReturn

from estimax.core import migration
from estimax.core.lazy_names import lazy_getattr, modules_of_names

__all__ = ["Classifier", "Regressor"]


def _raise_missing(name: str) -> NoReturn:
    migration.missing("estimax.sklearn", name, __all__)


_MODULES = modules_of_names(__file__)
_import_first = lazy_getattr(globals(), _MODULES, _raise_missing)


def __getattr__(name: str) -> object:
    try:
        return _import_first(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError(
            f"ex.sklearn.{name} needs scikit-learn, which is not installed: pip "
            'install "estimax[sklearn]"'
        ) from None
