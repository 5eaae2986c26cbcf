"""Sandbox: a copy of a function whose call can change nothing and learn only its row.

    sandbox = Sandbox(parse)
    sandbox.block = block               # what is not known to be harmless refuses there
    sandbox.function(block.value(lines))
    sandbox.change()                    # None, or what the call has assigned

`map` calls the copy for blocks of rows. The result of a block can differ from the
results of its rows only if the function learns something else than its row: a counter,
random numbers, the time, a file. So the copy reaches nothing but constants, NumPy, the
parsers of estimax, harmless builtins, and copies of functions, lists and dicts. All
else is replaced by an object that refuses when it is used, and the rows are then mapped
one by one.

Nothing here depends on how an interpreter compiles functions. The names that a code
object lists only say which globals to copy: a name that is missing from the list is a
`NameError` in the copy, and the rows are mapped one by one. The source text says if a
function can catch a refusal, and then it is not called in a sandbox at all.
"""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import linecache
import operator
import re
import sys
import types
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, repeat
from typing import Any, NoReturn

import numpy as np

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.examples.parsing import parse_example, parse_single_example
from estimax.input.sources.csv_reader import decode_csv
from estimax.input.streams.block_values import BlockCall, RefusedError
from estimax.input.streams.columns import Ragged

_BUILTINS = """
abs all any bool bytes complex dict divmod enumerate filter float frozenset getattr
hasattr int isinstance issubclass len list map max min pow range reversed round set
slice sorted str sum tuple zip
"""
_HARMLESS = {name: getattr(builtins, name) for name in _BUILTINS.split()}
# Exact types: a subclass may have methods of the user.
_CONSTANTS = frozenset(
    (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)
)
# Immutable objects of the standard library, by exact type as well.
_VALUES = frozenset(
    (
        *(datetime.date, datetime.timedelta, datetime.timezone, zoneinfo.ZoneInfo),
        *(decimal.Decimal, fractions.Fraction, re.Pattern, uuid.UUID),
    )
)
_TIMES = frozenset((datetime.datetime, datetime.time))
_ZONES = frozenset((type(None), datetime.timezone, zoneinfo.ZoneInfo))
# Methods of dates that read the clock.
_CLOCKS = frozenset(("now", "today", "utcnow"))
_TRUSTED = (
    *(value for value in _HARMLESS.values() if isinstance(value, type)),
    *(collections.OrderedDict, collections.namedtuple, Strings, Sparse, Ragged),
    *(decode_csv, parse_example, parse_single_example),
)
_TRUSTED_IDS = frozenset(map(id, _TRUSTED))
_NUMPY = (np, np.linalg, np.fft, np.char)
# Functions of NumPy that read files or the clock, or change settings or files.
_EFFECTS = """
DataSource datetime64 fromfile fromregex genfromtxt info load loadtxt memmap
printoptions save savetxt savez savez_compressed set_printoptions setbufsize seterr
seterrcall show_config show_runtime test
"""
_NOT_PURE = frozenset(_EFFECTS.split())
_RECORD_METHODS = frozenset(
    ("__getnewargs__", "__new__", "__replace__", "__repr__", "_asdict", "_replace")
)
# Items of the lists and dicts that are copied: they are compared around every block.
_MOST_ITEMS = 10_000
_MOST_BYTES = 1 << 20  # of an array that is copied
_MOST_COPIES = 1000  # a sandbox to which calls have added more is made anew
_MISSING = object()


class Sandbox:
    """Copies of a function and of all that it refers to, for one call at a time.

    Args:
      fn: The function.
      copies_arrays: Whether arrays of up to 1 MB are copied and compared after the
        call. Others are read-only views, which cost nothing.

    Attributes:
      function: The copy of the function.
      block: The call that is refused when something is used that is not harmless.
      is_doubtful: Whether something was met that will probably end in a refusal.
    """

    def __init__(self, fn: Callable[..., Any], *, copies_arrays: bool = False) -> None:
        self.block: BlockCall | None = None
        self.is_doubtful = False
        self._copies_arrays = copies_arrays
        # id of an original: (original, copy). Holding the original keeps its id taken.
        self._copies: dict[int, tuple[Any, Any]] = {}
        self._originals: dict[int, Any] = {}  # id of a copy: its original
        self._modules: dict[int, _Globals] = {}  # id of the globals of a module: copy
        self._cells: dict[int, tuple[Any, types.CellType]] = {}
        self._items = 0
        # Both are compared around every block, which takes as little as 30 µs in all.
        self._outside = _Watch()  # the originals
        self._inside = _Watch()  # the copies
        self._arrays: list[tuple[Any, bytes, str]] = []
        self._variables: list[tuple[types.CellType, Any, str]] = []
        self.function = self.copy(fn)
        self._copies_at_first = len(self._copies)

    def refuse(self, what: str) -> NoReturn:
        """Refuse the current call; `what` completes "the function …"."""
        assert self.block is not None, "a copy is used outside of its call"
        self.block.refuse(what)

    def is_current(self) -> bool:
        """Return whether the originals are still what the copies were made of."""
        try:
            is_same = self._outside.change() is None
        except ValueError:  # a variable of an enclosing function was deleted
            return False
        return is_same and len(self._copies) - self._copies_at_first <= _MOST_COPIES

    def change(self) -> str | None:
        """Return what calls have assigned or changed; None if there is nothing."""
        for cell, copy, name in self._variables:
            if _is_empty(cell) or cell.cell_contents is not copy:
                return f"assigns to {name}, a variable outside"
        for module in self._modules.values():
            if module.is_changed():
                return "assigns to a global variable"
        for array, before, name in self._arrays:
            if array.tobytes() != before:
                return f"changes {name}"
        return self._inside.change()

    def original(self, value: Any) -> Any:
        """Return what a value of the sandbox is a copy of, or the value itself."""
        return self._originals.get(id(value), value)

    def copy(self, value: Any, name: str = "") -> Any:
        """Return a value that is safe to use in a block; `name` is for messages."""
        if type(value) in _CONSTANTS:
            return value
        known = self._copies.get(id(value))
        if known is not None:
            return known[1]
        if _is_trusted(value):
            return self._remember(value, value)
        return self._remember(value, self._copy(value, name or _name_of(value)))

    def _remember(self, value: Any, made: Any) -> Any:
        self._copies[id(value)] = (value, made)
        self._originals[id(made)] = value
        return made

    def _copy(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind in (dict, collections.OrderedDict, list, set):
            if kind is dict and _is_large_table(value):
                # A view shows what the program assigns later, and cannot be changed.
                return types.MappingProxyType(value)
            self._items += len(value)
            if self._items <= _MOST_ITEMS and (kind is list or _has_plain_keys(value)):
                return self._container(value, name)
        elif kind in (tuple, frozenset) or _is_record(kind):
            if kind in (tuple, frozenset) and _is_large_table(value):
                return value
            self._items += len(value)
            is_plain = kind is not frozenset or _has_plain_keys(value)
            if self._items <= _MOST_ITEMS and is_plain:
                parts = [self.copy(part) for part in value]
                return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        elif kind is np.ndarray and not value.dtype.hasobject:
            return self._array(value, name)
        elif kind is types.FunctionType:
            return self._function(value)
        elif kind is types.MethodType and hasattr(value.__self__, "__dict__"):
            if not isinstance(value.__self__, type | types.ModuleType):
                owner = value.__self__
                view = _ObjectView(self, f"uses a {type(owner).__name__} object", owner)
                return types.MethodType(self.copy(value.__func__), view)
        elif kind is functools.partial:
            options = {key: self.copy(part) for key, part in value.keywords.items()}
            args = [self.copy(part) for part in value.args]
            return functools.partial(self.copy(value.func), *args, **options)
        elif kind is types.ModuleType:
            return self._module(value)
        elif isinstance(value, type) and issubclass(value, BaseException):
            return _error_of(value.__qualname__, value.__module__)
        self.is_doubtful = True
        return _Refusing(self, f"uses {name}")

    def _module(self, module: types.ModuleType) -> Any:
        root, _, rest = module.__name__.partition(".")
        if root not in ("numpy", "estimax"):
            self.is_doubtful = True
        if root == "numpy" and rest.startswith("random"):
            return _Refusing(self, "uses random numbers")
        return _ModuleView(self, f"uses {module.__name__}", module)

    def _container(self, value: Any, name: str) -> Any:
        """Copy a list, set or dict."""
        if not value:  # is there to be filled, most probably
            self.is_doubtful = True
        made = type(value)()
        self._remember(value, made)  # before its items, which may refer to it
        self._outside.add(value)  # a dict by its keys
        if isinstance(value, dict):
            self._outside.add(value.values())
            made.update((key, self.copy(part, name)) for key, part in value.items())
            self._inside.add(made.values(), f"changes {name}")
        else:
            parts = [self.copy(part, name) for part in value]
            made.extend(parts) if isinstance(made, list) else made.update(parts)
        # A set has the same order as long as nobody changes it.
        self._inside.add(made, f"changes {name}")
        return made

    def _array(self, value: Any, name: str) -> Any:
        if not self._copies_arrays or value.nbytes > _MOST_BYTES:
            view = value.view()
            view.flags.writeable = False
            return view
        made = value.copy()
        self._arrays.append((made, value.tobytes(), name))
        return made

    def _function(self, fn: types.FunctionType) -> Any:
        """Return a function of the same code that has other globals, cells, defaults.

        What the code assigns lands in these copies, where `change` finds it.
        """
        code = fn.__code__
        linecache.lazycache(code.co_filename, fn.__globals__)  # a module in a zip file
        if _may_catch_refusals(code):
            self.is_doubtful = True
            return _Refusing(self, "may handle all exceptions")
        names = set(_names_in(code))
        if any(name not in fn.__globals__ for name in names & _CLOCKS):
            self.is_doubtful = True
            return _Refusing(self, "uses the time")
        module = self._globals(fn.__globals__)
        outer = tuple(zip(code.co_freevars, fn.__closure__ or (), strict=True))
        cells = tuple(self._cell(cell) for _, cell in outer)
        made = types.FunctionType(code, module.names, fn.__name__, None, cells)
        self._remember(fn, made)  # before what it refers to, which may refer to it
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self._outside.add_variable(getattr, fn, part)
        for name in names - module.seen:
            self._add_global(module, name)
        for (name, cell), copy in zip(outer, cells, strict=True):
            self._fill(name, cell, copy)
        made.__defaults__ = self.copy(fn.__defaults__, fn.__name__)
        made.__kwdefaults__ = self.copy(fn.__kwdefaults__, fn.__name__)
        if vars(fn):
            vars(made).update(self.copy(vars(fn), fn.__name__))
            self._inside.add(vars(made).values(), f"changes {fn.__name__}")
        else:
            self._outside.add(vars(fn))
        self._inside.add(vars(made), f"changes {fn.__name__}")
        return made

    def _globals(self, outside: dict[str, Any]) -> _Globals:
        """Return the globals for copies of functions of one module."""
        if id(outside) not in self._modules:
            build_class = builtins.__build_class__
            inner = {"__build_class__": build_class, "__import__": self._import}
            self._modules[id(outside)] = _Globals(outside, inner)
        return self._modules[id(outside)]

    def _add_global(self, module: _Globals, name: str) -> None:
        """Copy the global variable or builtin of a name, if there is one."""
        module.seen.add(name)
        self._outside.add_variable(dict.get, module.outside, name)
        if name in module.outside:
            module.add(name, self.copy(module.outside[name], name))
        elif hasattr(builtins, name):
            module.builtins[name] = self._builtin(name)

    def _builtin(self, name: str) -> Any:
        value = getattr(builtins, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            return _error_of(value.__qualname__, value.__module__)
        if name in _HARMLESS:
            return value
        self.is_doubtful = True
        return _Refusing(self, f"uses {name}")

    def _cell(self, cell: types.CellType) -> types.CellType:
        """Return the cell that stands for a variable of an enclosing function."""
        return self._cells.setdefault(id(cell), (cell, types.CellType()))[1]

    def _fill(self, name: str, cell: types.CellType, made: types.CellType) -> None:
        """Copy the value of a variable of an enclosing function."""
        if not _is_empty(made) or _is_empty(cell):
            return  # filled for another function, or a variable without a value yet
        copy = made.cell_contents = self.copy(cell.cell_contents, name)
        self._outside.add_variable(getattr, cell, "cell_contents")
        self._variables.append((made, copy, name))

    def _import(self, name: str, *args: Any, **options: Any) -> Any:
        """Import a module in a copy; only what is loaded already is harmless."""
        level = args[3] if len(args) > 3 else options.get("level", 0)
        if level or name not in sys.modules:
            self.refuse(f"imports {name}")
        return self.copy(__import__(name, *args, **options))


class _Globals:
    """The global variables of the copies of functions of one module."""

    def __init__(self, outside: dict[str, Any], inner: dict[str, Any]) -> None:
        self.outside = outside
        self.builtins = inner
        self.seen = {"__name__", "__builtins__"}
        name = outside.get("__name__", "")
        self.names: dict[str, Any] = {"__name__": name, "__builtins__": inner}
        self._before = dict(self.names)

    def add(self, name: str, value: Any) -> None:
        """Define a global variable."""
        self.names[name] = self._before[name] = value

    def is_changed(self) -> bool:
        """Return whether a function has assigned to a global variable."""
        now, before = self.names, self._before
        if now.keys() != before.keys():
            return True
        return not all(map(operator.is_, now.values(), before.values()))


class _Watch:
    """Collections that must keep their items, and variables that keep their values.

    All are compared by a few calls of C code. Items are compared as objects: 1, 1.0 and
    True are equal, but not the same, and arrays have no single answer.
    """

    def __init__(self) -> None:
        self._collections: list[Collection[Any]] = []
        self._sizes: list[int] = []
        self._items: list[Any] = []  # of all collections
        self._messages: list[str] = []
        # Variables: function(object, name, _MISSING), with `dict.get` or `getattr`.
        self._functions: list[Callable[..., Any]] = []
        self._objects: list[Any] = []
        self._names: list[str] = []
        self._values: list[Any] = []

    def add(self, collection: Collection[Any], message: str = "changed") -> None:
        """Watch a collection from now on; `message` is what `change` returns."""
        self._collections.append(collection)
        self._sizes.append(len(collection))
        self._items.extend(collection)
        self._messages.append(message)

    def add_variable(self, function: Callable[..., Any], where: Any, name: str) -> None:
        """Watch the value that `dict.get` or `getattr` returns for a name."""
        self._functions.append(function)
        self._objects.append(where)
        self._names.append(name)
        self._values.append(function(where, name, _MISSING))

    def change(self) -> str | None:
        """Return the message of the first change; None if there is none."""
        now = self._collections
        if list(map(len, now)) != self._sizes or not all(
            map(operator.is_, chain.from_iterable(now), self._items)
        ):
            return self._find_change()
        return None if all(map(operator.is_, self._read(), self._values)) else "changed"

    def _read(self) -> Iterable[Any]:
        """Return the present values of the variables."""
        names = (self._objects, self._names)
        return map(operator.call, self._functions, *names, repeat(_MISSING))

    def _find_change(self) -> str:
        start = 0
        for i, collection in enumerate(self._collections):
            items = self._items[start : start + self._sizes[i]]
            start += len(items)
            if len(collection) != len(items) or not all(
                map(operator.is_, collection, items)
            ):
                return self._messages[i]
        return "changed"  # by another thread, which has changed it back


class _StandIn:
    """What a copy gets in place of an object; every operator on it refuses.

    Its own attributes have names that no class of a user has: `self._name` in a method
    of a user must be found in the object of the user.
    """

    __slots__ = ("_estimax_object", "_estimax_sandbox", "_estimax_use")
    _estimax_object: Any
    _estimax_sandbox: Sandbox
    _estimax_use: str  # completes "the function …"

    def __init__(self, sandbox: Sandbox, use: str, value: Any = None) -> None:
        object.__setattr__(self, "_estimax_sandbox", sandbox)
        object.__setattr__(self, "_estimax_use", use)
        object.__setattr__(self, "_estimax_object", value)


class _Refusing(_StandIn):
    """Stands for an object that is not known to be harmless; every use refuses."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        self._estimax_sandbox.refuse(self._estimax_use)

    @property
    def __class__(self) -> NoReturn:  # `isinstance` asks for it
        self._estimax_sandbox.refuse(self._estimax_use)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        self._estimax_sandbox.refuse(self._estimax_use)


class _ModuleView(_StandIn):
    """The attributes of a module, of which each is copied when it is used."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        # Read again with every use, because the program may assign to it.
        module = self._estimax_object
        value = getattr(module, name)
        return self._estimax_sandbox.copy(value, f"{module.__name__}.{name}")


class _ObjectView(_StandIn):
    """The attributes of the object whose method is mapped; it cannot be changed."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        value, sandbox = self._estimax_object, self._estimax_sandbox
        own = vars(value)
        if name in own:
            return sandbox.copy(own[name], f"self.{name}")
        found = inspect.getattr_static(type(value), name, _MISSING)
        if isinstance(found, types.FunctionType):
            return types.MethodType(sandbox.copy(found), self)
        if isinstance(found, staticmethod):
            return sandbox.copy(found.__func__)
        if isinstance(found, property):
            return sandbox.copy(found.fget)(self)
        if found is _MISSING:
            raise AttributeError(name)
        return sandbox.copy(found, f"self.{name}")


_OPERATORS = """
abs add and bool bytes call ceil complex contains delattr delitem divmod enter eq exit
float floor floordiv format ge getitem gt hash iadd iand ifloordiv ilshift imatmul imod
imul index instancecheck int invert ior ipow irshift isub iter itruediv ixor le len
lshift lt matmul mod mro_entries mul ne neg next or pos pow radd rand rdivmod reduce
reduce_ex repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow rrshift
rshift rsub rtruediv rxor setattr setitem str sub subclasscheck truediv trunc xor
"""


def _refuse_operator(self: _StandIn, *args: Any, **options: Any) -> NoReturn:
    self._estimax_sandbox.refuse(self._estimax_use)


for _name in _OPERATORS.split():
    setattr(_StandIn, f"__{_name}__", _refuse_operator)


@functools.cache
def is_isolating() -> bool:
    """Return whether copies of functions are isolated in this interpreter.

    The language says so; a program that replaces how functions are made could break
    it. Three functions that must be stopped show it at the first use.
    """
    kept = 0

    def assign_variable() -> None:
        nonlocal kept
        kept += 1

    def assign_global() -> None:
        global _assigned
        _assigned = True

    def import_module() -> None:
        import time

        time.time()

    for function in (assign_variable, assign_global, import_module):
        sandbox, block = Sandbox(function), BlockCall(1)
        sandbox.block = block
        with contextlib.suppress(RefusedError):  # `block` keeps the reason
            sandbox.function()
        if block.refusal is None and sandbox.change() is None:
            return False
    return kept == 0 and not _assigned


_assigned = False


def _is_trusted(value: Any) -> bool:
    """Return whether a value is immutable, or a function that depends on arguments."""
    if isinstance(value, np.generic):
        return not isinstance(value, np.void | np.object_)
    if id(value) in _TRUSTED_IDS or isinstance(value, np.dtype | Strings | Sparse):
        return True
    if type(value) in _VALUES or _is_plain_member(value):
        return True
    if type(value) in _TIMES:
        return type(value.tzinfo) in _ZONES
    owner = value if isinstance(value, type) else type(value)
    module = str(getattr(owner, "__module__", ""))
    if module.partition(".")[0] == "estimax":
        params = getattr(owner, "__dataclass_params__", None)
        return bool(params and params.frozen)  # such as FixedLenFeature
    if callable(value) and type(value) is not types.FunctionType:
        if owner is value and _is_record(owner):
            return True
        return _is_of_numpy(value)
    return type(value) is types.FunctionType and _is_of_numpy(value)


def _is_large_table(value: Any) -> bool:
    """Return whether a value has too many items to copy, but only constants."""
    if len(value) <= _MOST_ITEMS:
        return False
    parts = value.values() if isinstance(value, dict) else ()
    return set(map(type, chain(value, parts))) <= _CONSTANTS


def _has_plain_keys(keys: Iterable[Any]) -> bool:
    """Return whether no code of the user runs when keys are hashed and compared."""
    return all(_is_plain(key) for key in keys)


def _is_plain(key: Any) -> bool:
    kind = type(key)
    if kind in _CONSTANTS:
        return True
    if kind in (tuple, frozenset) or _is_record(kind):
        return _has_plain_keys(key)
    return _is_trusted(key)


def _is_plain_member(value: Any) -> bool:
    """Return whether a value is a constant of an enumeration without methods."""
    kind = type(value)
    if not issubclass(kind, enum.Enum) or type(value.value) not in _CONSTANTS:
        return False
    # `IntEnum` and such copy functions of the module `enum` into each class.
    return all(
        base.__module__ in ("enum", "builtins")
        or not any(map(_is_of_user, vars(base).values()))
        for base in kind.__mro__
    )


def _is_of_user(value: Any) -> bool:
    """Return whether a value in a class is a function that the user has written."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return value.__module__ != "enum"
    return isinstance(value, property)


def _is_of_numpy(value: Any) -> bool:
    """Return whether a value is a public function or class of NumPy that is pure."""
    name = getattr(value, "__name__", "")
    if not isinstance(name, str) or name in _NOT_PURE:
        return False
    return any(vars(module).get(name) is value for module in _NUMPY)


def _is_record(kind: type) -> bool:
    """Return whether a class is a namedtuple without methods of the user."""
    if kind.__bases__ != (tuple,) or not hasattr(kind, "_fields"):
        return False
    own = {name: value for name, value in vars(kind).items() if name != "_make"}
    descriptors = (types.FunctionType, classmethod, staticmethod, property)
    methods = {k for k, v in own.items() if isinstance(v, descriptors) or callable(v)}
    return methods <= _RECORD_METHODS


@functools.lru_cache(maxsize=256)
def _error_of(name: str, module: str) -> type:
    """Return a class that stands for an exception, which nothing else raises.

    `except ValueError` of a copy therefore never matches. A bad row fails its whole
    block, and a type may fail a block that no row would fail: the handler would run for
    all rows. The exception leaves the function instead.
    """
    return type(name, (Exception,), {"__module__": module})


@functools.lru_cache(maxsize=4096)
def _may_catch_refusals(code: types.CodeType) -> bool:
    """Return whether a function could go on after a refusal, and perhaps never end.

    `except ValueError` of a copy never matches. What is left are `except:` and such: in
    a loop that tries again until there is no error, a refusal would be raised forever.
    A function without its source text may do it.
    """
    if code.co_name == "<lambda>":  # an expression
        return False
    # `inspect.getsource` would search all modules, which takes 30 ms.
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    try:
        text = "".join(inspect.getblock(lines))
        # A method or an inner function is indented.
        tree = ast.parse(f"if 1:\n{text}" if text[:1].isspace() else text)
    except (SyntaxError, ValueError, RecursionError, IndexError):
        return True
    found = list(ast.walk(tree))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in found if isinstance(node, functions)]
    is_its_text = names[:1] == [code.co_name]  # files change after they are imported
    return not is_its_text or "__exit__" in names or any(map(_catches_all, found))


def _catches_all(node: ast.AST) -> bool:
    """Return whether a statement may end an exception of any type."""
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or any(
            "BaseException" in (getattr(part, "id", ""), getattr(part, "attr", ""))
            for part in ast.walk(node.type)
        )
    leaves = (ast.Return, ast.Break, ast.Continue)
    return any(
        isinstance(part, leaves)
        for statement in getattr(node, "finalbody", ())
        for part in ast.walk(statement)
    )


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function and the functions in it may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 # it raises for a variable without a value
    except ValueError:
        return True
    return False


def _name_of(value: Any) -> str:
    named = getattr(value, "__qualname__", None)
    return str(named) if named else f"a {type(value).__name__} object"
