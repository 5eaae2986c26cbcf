"""Whether a function may be called for a block of rows instead of for every row.

    obstacle_of(lambda line: decode_csv(line, DEFAULTS))      # None
    obstacle_of(lambda x: (x, next(numbers)))                 # 'uses next'

A function qualifies if its result can depend on its argument and constants only: it
refers to nothing but NumPy, estimax, harmless builtins, constants, containers of
constants, and functions that qualify themselves; and it assigns to nothing outside of
itself. What is not known to be harmless is an obstacle.
"""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import inspect
import types
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from estimax.core.strings import Strings

_TRUSTED = ("numpy", "estimax")  # packages whose functions depend on arguments only
_BUILTINS = """
abs all any bool bytes complex dict divmod enumerate filter float frozenset getattr
hasattr int isinstance issubclass len list map max min pow range reversed round set
slice sorted str sum tuple type zip
"""
_HARMLESS = {getattr(builtins, name) for name in _BUILTINS.split()} | {
    collections.OrderedDict,
    collections.namedtuple,
}
_CONSTANTS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    np.generic,
    np.dtype,
    range,
    slice,
)
_STORES = {
    "STORE_GLOBAL": "assigns to a global variable",
    "DELETE_GLOBAL": "deletes a global variable",
    "STORE_ATTR": "assigns to an attribute",
    "DELETE_ATTR": "deletes an attribute",
    # A bad row fails its whole block. A handler would then be run for all rows.
    "PUSH_EXC_INFO": "handles exceptions",
}
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
# Methods of lists, dicts, sets, queues and files that change them.
_CHANGING = """
add append appendleft clear discard extend insert pop popitem put remove setdefault sort
update write
"""
_CHANGES = frozenset(_CHANGING.split())
_MOST_FUNCTIONS = 200  # how many functions and values are looked at


def obstacle_of(fn: Callable[..., Any]) -> str | None:
    """Return why a function cannot be called for blocks of rows; None if it can.

    The text completes "the function …".
    """
    return _Inspection().value(fn)


def snapshot(fn: Callable[..., Any]) -> list[Any]:
    """Return the contents of the containers that a function refers to.

    Two snapshots differ if a list, dict, set or array was changed in between.
    """
    inspection = _Inspection()
    inspection.value(fn)
    return [_contents(container) for container in inspection.containers]


class _Inspection:
    """Looks at a function and at everything that it refers to, once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.containers: list[Any] = []

    def value(self, value: Any) -> str | None:
        """Return what is wrong with a value that a function refers to."""
        if isinstance(value, _CONSTANTS) or id(value) in self._seen:
            return None
        self._seen.add(id(value))
        if len(self._seen) > _MOST_FUNCTIONS:
            return "refers to too many objects to look at"
        if isinstance(value, types.ModuleType):
            return self._module(value.__name__)
        if _is_trusted(value):
            return None
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            own = getattr(value.__self__, "__dict__", None)
            if own is None:
                return f"is a method of a {type(value.__self__).__name__}"
            return self.value(value.__func__) or self._all(list(own.values()))
        if isinstance(value, functools.partial):
            return self._all([value.func, *value.args, *value.keywords.values()])
        if isinstance(value, np.ndarray | Strings):
            self.containers.append(value)
            return None
        if isinstance(value, Mapping) and type(value).__module__ != "os":
            self.containers.append(value)
            return self._all(list(value.values()))
        if isinstance(value, list | tuple | set | frozenset):
            self.containers.append(value)
            return self._all(list(value))
        if isinstance(value, type):
            is_record = issubclass(value, tuple) and hasattr(value, "_fields")
            if is_record or value.__module__ == "builtins":
                return None
        return f"refers to {_name_of(value)}"

    def _all(self, values: list[Any]) -> str | None:
        # Few distinct ones count: a vocabulary of a million words is one container.
        distinct = [v for v in values if not isinstance(v, _CONSTANTS)]
        problems = (self.value(value) for value in distinct)
        return next((problem for problem in problems if problem), None)

    def _module(self, name: str) -> str | None:
        root = name.partition(".")[0]
        if root not in _TRUSTED or ".random" in name:
            return f"uses the module {name}"
        return None

    def _function(self, fn: types.FunctionType) -> str | None:
        if fn.__code__.co_flags & _GENERATORS:
            return "is a generator"
        cells: dict[str, Any] = {}
        for name, cell in zip(
            fn.__code__.co_freevars, fn.__closure__ or (), strict=True
        ):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # a variable that was not assigned yet
                return f"refers to {name}, which has no value yet"
        problem = self._all([*cells.values(), *(fn.__defaults__ or ())])
        problem = problem or self._all(list((fn.__kwdefaults__ or {}).values()))
        codes = _codes_of(fn.__code__)
        outside = collections.ChainMap(cells, fn.__globals__)
        found = (self._code(code, outside) for code in codes)
        return problem or next((problem for problem in found if problem), None)

    def _code(self, code: types.CodeType, names: Mapping[str, Any]) -> str | None:
        steps = list(dis.get_instructions(code))
        for i, step in enumerate(steps):
            problem = _STORES.get(step.opname) or _change_at(steps, i, names)
            if step.opname == "STORE_DEREF" and step.argval in code.co_freevars:
                problem = f"assigns to {step.argval}, a variable outside"
            elif step.opname in _GLOBALS:
                problem = problem or self._global(steps, i, names)
            elif step.opname == "IMPORT_NAME":
                problem = self._module(str(step.argval))
            elif step.opname in _ATTRIBUTES and step.argval == "random":
                problem = "uses random numbers"
            if problem:
                return problem
        return None

    def _global(
        self, steps: list[dis.Instruction], i: int, names: Mapping[str, Any]
    ) -> str | None:
        name = str(steps[i].argval)
        if name in names:
            value = names[name]
            # Of another module, only what is used of it matters: `settings.COLUMNS`.
            for step in steps[i + 1 :]:
                is_module = isinstance(value, types.ModuleType)
                if not is_module or step.opname not in _ATTRIBUTES:
                    break
                value = getattr(value, str(step.argval), None)
            return self.value(value)
        known = getattr(builtins, name, None)
        is_error = isinstance(known, type) and issubclass(known, Exception)
        is_harmless = is_error or known in _HARMLESS
        return None if is_harmless else f"uses {name}"


def _change_at(
    steps: list[dis.Instruction], i: int, outside: Mapping[str, Any]
) -> str | None:
    """Return what an instruction changes outside of a function, if that can be seen.

    Changes that cannot be seen here are noticed by `snapshot`, after the first call.
    """

    def is_outside(step: dis.Instruction) -> bool:
        is_load = step.opname in (*_GLOBALS, "LOAD_DEREF")
        value = outside.get(str(step.argval)) if is_load else None
        return value is not None and not isinstance(value, types.ModuleType | type)

    is_method = steps[i].opname in _ATTRIBUTES and steps[i].argval in _CHANGES
    if i and is_method and is_outside(steps[i - 1]):
        return f"changes {steps[i - 1].argval}"
    if i > 2 and steps[i].opname == "STORE_SUBSCR":
        # `x[key] += …` swaps the operands; otherwise they are value, container, key.
        if steps[i - 1].opname == "SWAP":
            return "changes an item in place"
        if is_outside(steps[i - 2]):
            return f"changes {steps[i - 2].argval}"
    return None


def _codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of the functions that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_of(constant)


def _is_trusted(value: Any) -> bool:
    """Return whether a value is a function, class or constant of a known package."""
    if isinstance(value, type) and value in _HARMLESS:
        return True
    made_by = getattr(value, "__module__", None) or type(value).__module__
    if str(made_by).partition(".")[0] not in _TRUSTED or ".random" in str(made_by):
        return False
    if isinstance(value, types.FunctionType):
        # A closure may hold a function of the user.
        return value.__closure__ is None and value.__code__.co_filename[:1] != "<"
    is_code = isinstance(value, type | np.ufunc | types.BuiltinFunctionType)
    params = getattr(type(value), "__dataclass_params__", None)
    # np.where and its like are objects of a class of their own.
    is_dispatcher = type(value).__name__ == "_ArrayFunctionDispatcher"
    return is_code or is_dispatcher or bool(params and params.frozen)


def _name_of(value: Any) -> str:
    named = getattr(value, "__qualname__", None)
    return str(named) if named else f"a {type(value).__name__} object"


def _contents(container: Any) -> Any:
    if isinstance(container, np.ndarray | Strings):
        data = container.data if isinstance(container, Strings) else container
        if data.dtype == object:
            return [id(value) for value in data.reshape(-1)]
        return zlib.crc32(np.ascontiguousarray(data).tobytes())
    if isinstance(container, Mapping):
        return [(key, id(value)) for key, value in container.items()]
    return [id(value) for value in container]
