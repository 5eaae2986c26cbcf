"""Every parameter of the public interface is explained where it is documented."""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import estimax as ex

PACKAGES = [name for name in ex.__all__ if inspect.ismodule(getattr(ex, name))]
MODULES = [
    "estimax",
    *(f"estimax.{name}" for name in PACKAGES),
    "estimax.input.experimental",
    "estimax.metrics.v1",
    "estimax.optimizers.v1",
    "estimax.feature_columns.v1",
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_parameter_is_explained(module):
    missing = [
        f"{name}: {', '.join(names)}"
        for name, value in _public(module)
        if (names := sorted(set(_parameters(value)) - _explained(value)))
    ]
    assert not missing, "\n".join(missing)


def _public(module: str) -> Iterator[tuple[str, Any]]:
    """Yield functions, classes and public methods with their names."""
    found = importlib.import_module(module)
    for name in getattr(found, "__all__", ()):
        value = getattr(found, name)
        if inspect.isclass(value) and not _is_error(value):
            yield name, value
            for method, inner in vars(value).items():
                if not method.startswith("_") and _is_callable(inner):
                    yield f"{name}.{method}", getattr(value, method)
        elif inspect.isfunction(value):
            yield name, value


def _is_error(value: type) -> bool:
    return issubclass(value, BaseException)


def _is_callable(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, classmethod | staticmethod)


def _parameters(value: Any) -> list[str]:
    try:
        names = inspect.signature(value).parameters
    except (TypeError, ValueError):  # an enum, for example
        return []
    if value is ex.ModeKeys or (
        inspect.isclass(value) and hasattr(value, "__members__")
    ):
        return []
    hidden = ("self", "cls", "args", "kwargs")
    return [name for name in names if name not in hidden and name[0] != "_"]


def _explained(value: Any) -> set[str]:
    """Return the names in the sections `Args:` and `Attributes:` of the docstring."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        text += "\n" + (inspect.getdoc(value.__init__) or "")
    names: set[str] = set()
    for section in re.findall(r"^(?:Args|Attributes):\n((?:  .*\n?|\n)+)", text, re.M):
        for line in re.findall(r"^  (\S[^:]*):", section, re.M):
            names |= {name.strip(" *") for name in line.split(",")}
    return names
