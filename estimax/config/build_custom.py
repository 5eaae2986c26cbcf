"""Code of the user: import `model.class` and its like, and check `model.params`.

    model: {class: "package.module:MyEstimator", params: {depth: 3}}

This module does not import jax; the module that `model.class` names may.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from estimax.config.expressions import CallExpression
from estimax.config.load import LoadedRun
from estimax.config.nodes import Problems, format_value, join
from estimax.config.schema.model import CustomModelConfig
from estimax.config.schema.section import CodeName, fields_of
from estimax.core.errors import did_you_mean

# By type and by name, because annotations are strings in some modules.
_CHECKED: dict[Any, type] = {
    k: t for t in (int, float, str, bool) for k in (t, t.__name__)
}


def custom_call(
    loaded: LoadedRun, columns: Mapping[str, Any], config: Any, warm_start: Any = None
) -> CallExpression:
    """Return the call of a custom estimator, with its params and the config.

    `feature_columns` and `warm_start_from` are passed if the class has such arguments.
    """
    model = loaded.run.model
    assert isinstance(model, CustomModelConfig)
    make = resolve(loaded)
    arguments: dict[str, Any] = {**model.params, "config": config}
    if "feature_columns" in _parameters(make):
        arguments.setdefault("feature_columns", dict(columns))
    if warm_start is not None:
        if "warm_start_from" not in _parameters(make):
            problems = Problems(str(loaded.path))
            text = f"{model.class_} takes no warm_start_from"
            problems.add(loaded.origin("warm_start"), "warm_start", text)
            problems.raise_if_any()
        arguments["warm_start_from"] = warm_start
    return CallExpression(model.class_, arguments, name="model")


def resolve(loaded: LoadedRun) -> Callable[..., Any]:
    """Import the class of a custom model and check `params` against its signature.

    The import runs the code of the class's module; `load` does not import it.

    Raises:
      RunFileError: The class cannot be imported, or `params` do not fit it.
    """
    model = loaded.run.model
    assert isinstance(model, CustomModelConfig)
    problems = Problems(str(loaded.path))
    found = _import(loaded, model.class_, problems)
    problems.raise_if_any()
    _check_params(loaded, model, found, problems)
    problems.raise_if_any()
    make: Callable[..., Any] = found
    return make


def check_code(loaded: LoadedRun) -> None:
    """Import everything that a run names as `package.module:name`.

    Raises:
      RunFileError: Something cannot be imported, or `params` do not fit it.
    """
    if isinstance(loaded.run.model, CustomModelConfig):
        resolve(loaded)
    problems = Problems(str(loaded.path))
    for path, name in code_names(loaded.run):
        _import(loaded, name, problems, path)
    problems.raise_if_any()


def code_names(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the addresses of code that sections name, besides `model.class`."""
    if isinstance(value, CodeName):
        yield path, str(value)
    elif dataclasses.is_dataclass(value):
        kind: Any = type(value)
        for field in fields_of(kind).values():
            found = getattr(value, field.name)
            yield from code_names(found, join(path, field.key))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from code_names(item, join(path, key))
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from code_names(item, join(path, str(i)))


def _import(
    loaded: LoadedRun, name: str, problems: Problems, path: str = "model.class"
) -> Any:
    module_name, _, attribute = name.partition(":")
    origin = loaded.origin(path)
    here = str(Path.cwd())
    # Import from the working directory as well, as `python -m` does.
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module_name)
    # SystemExit is caught as well: otherwise a module that calls sys.exit() would end
    # `estimax check` as if the file were valid.
    except (Exception, SystemExit) as error:
        text = f"cannot import {module_name!r}: {_reason(error)} (looked from {here})"
        problems.add(origin, path, text)
        return None
    for part in attribute.split("."):
        if not hasattr(value, part):
            hint = did_you_mean(part, [n for n in dir(value) if not n.startswith("_")])
            text = f"{module_name} has no {attribute!r}{hint}"
            problems.add(origin, path, text)
            return None
        value = getattr(value, part)
    if not callable(value):
        problems.add(origin, path, f"{name} cannot be called")
    return value


def _reason(error: BaseException) -> str:
    """Return what an import raised, and on which line."""
    if isinstance(error, ModuleNotFoundError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = (
        "" if isinstance(error, SyntaxError) else f" ({last.filename}:{last.lineno})"
    )
    return f"{type(error).__name__}: {error}{where}"


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(make).parameters


def _check_params(
    loaded: LoadedRun,
    model: CustomModelConfig,
    make: Callable[..., Any],
    problems: Problems,
) -> None:
    try:
        known = _parameters(make)
    except (TypeError, ValueError):
        text = f"{model.class_} has no signature; name a class or function of Python"
        problems.add(loaded.origin("model.class"), "model.class", text)
        return
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for name, value in model.params.items():
        path = f"model.params.{name}"
        origin = loaded.origins.get(path, loaded.origin("model.params"))
        if name not in known:
            if not takes_any:
                hint = did_you_mean(name, known)
                text = f"{model.class_} has no such argument{hint}"
                problems.add(origin, path, text)
            continue
        wanted = _CHECKED.get(known[name].annotation)
        if wanted is not None and not _fits(value, wanted):
            found = f"{type(value).__name__} {format_value(value)}"
            text = f"expected {wanted.__name__}, got {found}"
            problems.add(origin, path, text)
    given = {*model.params, "config", "feature_columns", "self"}
    for name, parameter in known.items():
        optional = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if name not in given and parameter.default is parameter.empty and not optional:
            text = f"{model.class_} needs the argument {name!r}"
            problems.add(loaded.origin("model.class"), "model.params", text)
    if "config" not in known and not takes_any:
        text = f"{model.class_} must take `config`, which says where the model lives"
        problems.add(loaded.origin("model.class"), "model.class", text)


def _fits(value: object, wanted: type) -> bool:
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, wanted) or (wanted is float and isinstance(value, int))
