"""estimax, the Estimator for JAX.

    import estimax as ex

    model = ex.DNNClassifier(hidden_units=[64, 32], feature_columns=columns)
    model.train(input_fn, max_steps=1000)
    print(model.evaluate(eval_input_fn))

Packages and names are imported when they are first used, so that a process that checks
a config or serves a bundle loads no training code. `__init__.pyi` lists them.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0.dev0"

# The module of each public name, from the imports in `__init__.pyi`.
_MODULES = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:  # a package or one of its names
    if name not in _MODULES:
        from estimax.core import tf_names

        found = _packages_with(name)
        advice = {name: f"write {' or '.join(found)}"} if found else {}
        tf_names.missing("estimax", name, {**advice, **tf_names.TOP}, __all__)
    if _MODULES[name] == "estimax":
        return import_module(f"estimax.{name}")
    return getattr(import_module(_MODULES[name]), name)


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
