"""Names that a package imports when they are first used.

    _MODULES = modules_of_names(__file__)     # from the imports in `__init__.pyi`
    __getattr__ = lazy_getattr(globals(), _MODULES, raise_missing)

A stub file lists the names, so that type checkers and editors know them as well.
"""

import ast
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn


def lazy_getattr(
    namespace: dict[str, Any],
    modules: Mapping[str, str],
    raise_missing: Callable[[str], NoReturn],
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports names at their first use.

    Args:
      namespace: The globals of the package, which keep what was imported.
      modules: The dotted path of each name.
      raise_missing: Called with a name that is not among them.
    """

    def import_first(name: str) -> Any:
        if name not in modules:
            raise_missing(name)
        return namespace.setdefault(name, import_name(modules[name]))

    return import_first


def modules_of_names(init_file: str) -> dict[str, str]:
    """Return name -> dotted path, for what the stub beside an `__init__.py` imports."""
    stub = Path(init_file).with_suffix(".pyi").read_text()
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def public_names(folder: Path) -> set[str]:
    """Return the names that a package or module lists in its stub or in `__all__`.

    It is not imported.
    """
    init = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if init.with_suffix(".pyi").exists():
        return set(modules_of_names(str(init)))
    found: set[str] = set()
    for node in ast.parse(init.read_text() if init.exists() else "").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found.update(ast.literal_eval(node.value))
    return found


def import_name(path: str) -> Any:
    """Return the module, or the object in a module, that has a dotted path."""
    parent, _, name = path.rpartition(".")
    module = import_module(parent)
    # A package may export a function under the name of the file that defines it
    # (`optimizers.minimize`), so look in the package before looking for a file.
    if name in vars(module):
        return vars(module)[name]
    return import_module(path) if is_module(path) else getattr(module, name)


def is_module(path: str) -> bool:
    """Return whether a dotted path within estimax is a module or a package."""
    file = Path(__file__).parents[2].joinpath(*path.split("."))
    return file.is_dir() or file.with_suffix(".py").is_file()


def is_alias(path: Path) -> bool:
    """Return whether a file is only the public path of a module of another package."""
    return path.read_text().startswith('"""The public path of `estimax.')
