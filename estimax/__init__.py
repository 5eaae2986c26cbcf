"""estimax, the Estimator for JAX.

    import estimax as ex

    model = ex.DNNClassifier(hidden_units=[64, 32], feature_columns=columns)
    model.train(input_fn, max_steps=1000)
    print(model.evaluate(eval_input_fn))

Packages and names are imported when they are first used, so that a process that checks
a config or serves a bundle loads no training code. `__init__.pyi` lists them.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from estimax.core.lazy_names import (
    is_module,
    lazy_getattr,
    modules_of_names,
    public_names,
)

__version__ = "0.1.0.dev0"

_MODULES = modules_of_names(__file__)  # the dotted path of each public name
__all__ = sorted(_MODULES)


# Internal packages with the name of a module of TensorFlow. Python makes a package an
# attribute when it is first imported; these stay hidden, so that `ex.estimator` says
# what to write whatever was imported before.
_HIDDEN = frozenset({"config", "estimator"})


class _Public(ModuleType):
    """The module of estimax, without the packages of `_HIDDEN`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HIDDEN:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Public


def _raise_missing(name: str) -> NoReturn:
    from estimax.core import migration

    # `from estimax import staging` asks for the attribute first, and imports the
    # package if there is none. Nothing may be imported here to find advice.
    if (Path(__file__).parent / name).is_dir():
        migration.missing_package(name)
    migration.missing("estimax", name, __all__, elsewhere=_packages_with(name))


def _packages_with(name: str) -> list[str]:
    """Return `ex.<package>.<name>` for each public package that has the name."""
    packages = (package for package, path in _MODULES.items() if is_module(path))
    found = []
    for package in packages:
        folder = Path(__file__).parents[1].joinpath(*_MODULES[package].split("."))
        if name in public_names(folder):
            found.append(f"ex.{package}.{name}")
    return found


__getattr__ = lazy_getattr(globals(), _MODULES, _raise_missing)  # packages, their names


def __dir__() -> list[str]:
    return __all__
