"""estimax, the Estimator for JAX.

    import estimax as ex

    model = ex.DNNClassifier(hidden_units=[64, 32], feature_columns=columns)
    model.train(input_fn, max_steps=1000)
    print(model.evaluate(eval_input_fn))

Packages and names are imported when they are first used, so that a process that checks
a config or serves a bundle loads no training code. `__init__.pyi` lists them.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

__version__ = "0.1.0.dev0"

# The module of each public name, from the imports in `__init__.pyi`.
_MODULES = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
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


def __getattr__(name: str) -> Any:  # a package or one of its names
    if name not in _MODULES:
        _raise_missing(name)
    if _MODULES[name] == "estimax":
        return import_module(f"estimax.{name}")
    return getattr(import_module(_MODULES[name]), name)


def _raise_missing(name: str) -> NoReturn:
    from estimax.core import tf_names

    # `from estimax import staging` asks for the attribute first, and imports the
    # package if there is none. Nothing may be imported here to find advice.
    if (Path(__file__).parent / name).is_dir():
        tf_names.missing_package(name)
    tf_names.missing("estimax", name, __all__, elsewhere=_packages_with(name))


def _packages_with(name: str) -> list[str]:
    """Return `ex.<package>.<name>` for each public package that has the name."""
    packages = (package for package, module in _MODULES.items() if module == "estimax")
    found = []
    for package in packages:
        path = Path(__file__).parent / package / "__init__.py"
        if path.exists() and f'    "{name}",\n' in path.read_text():
            found.append(f"ex.{package}.{name}")
    return found


def __dir__() -> list[str]:
    return __all__
