"""Sections of a run file that are made from the signature of what they describe.

    AdamConfig = derive("AdamConfig", "optimizers/constructors.py", "Adam",
                        calls="estimax.optimizers.Adam", tag=("type", "adam"))
    AdamConfig(learning_rate=0.1).beta_1       # 0.9, the default of the constructor

Every argument of the function becomes a key, with its type, default and description. An
argument whose type a run file cannot hold is to be listed in `python_only`, with the
reason; otherwise it is in `Describes.unsaid`, and a test fails. So a new argument of a
constructor is in the run file, the JSON Schema and the table of parity by itself, or a
test fails.

Sections that are written by hand say the same in `DESCRIBES`, which `described` sets.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from estimax.config.decode import About, CodeName
from estimax.config.schema.signatures import (
    COMPUTED,
    REQUIRED,
    Argument,
    arguments,
    summary,
)

__all__ = ["CodeName", "Describes", "derive", "described"]

_Section = TypeVar("_Section", bound=type)


@dataclass(frozen=True)
class Describes:
    """What a section describes, and where each argument is said.

    Args:
      calls: The public path of the function or class, e.g. "estimax.optimizers.Adam".
      file: The file that defines it, and its name there.
      name: The name in that file.
      renamed: The keys of arguments that have another name in a run file.
      elsewhere: The address in a run file of arguments that are said elsewhere.
      python_only: Why a run file cannot say an argument.
      unsaid: The annotations of arguments that are in none of these; always empty.
    """

    calls: str
    file: str
    name: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    python_only: Mapping[str, str] = field(default_factory=dict)
    unsaid: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def keys(self) -> Mapping[str, str]:
        """The key of each argument that has one, which may be an address below it."""
        told = {*self.elsewhere, *self.python_only, *self.unsaid}
        names = [name for name in arguments(self.file, self.name) if name not in told]
        return {name: self.renamed.get(name, name) for name in names}


# Types that only Python has, with the reason for the table of parity.
_OBJECTS = {
    "Mesh": "a JAX object",
    "SummaryWriter": "an open writer",
    "clock": "for tests",
    "sleep": "for tests",
}


def described(
    calls: str,
    file: str,
    name: str,
    *,
    keys: Mapping[str, str] | None = None,
    elsewhere: Mapping[str, str] | None = None,
    python_only: Mapping[str, str] | None = None,
) -> Callable[[_Section], _Section]:
    """Return a decorator that notes what a section written by hand describes.

    `keys` has the key of an argument if it has another name, which may be an address
    below the section.
    """

    def decorate(section: Any) -> Any:  # a dataclass, with a new attribute
        found = Describes(
            calls, file, name, keys or {}, elsewhere or {}, python_only or {}
        )
        section.DESCRIBES = (*getattr(section, "DESCRIBES", ()), found)
        return section

    return decorate


def derive(
    title: str,
    file: str,
    name: str,
    *,
    calls: str,
    tag: tuple[str, str] | None = None,
    tag_doc: str = "",
    keys: Mapping[str, str] | None = None,
    elsewhere: Mapping[str, str] | None = None,
    python_only: Mapping[str, str] | None = None,
    kinds: Mapping[str, Any] | None = None,
    limits: Mapping[str, About] | None = None,
    defaults: Mapping[str, Any] | None = None,
    extra: Mapping[str, tuple[Any, Any]] | None = None,
    base: type | None = None,
    doc: str = "",
) -> Any:
    """Return a section with a key for each argument of a function or class.

    Args:
      title: The name of the section.
      file: The file of the function, such as "optimizers/constructors.py".
      name: The function or class.
      calls: Its public path.
      tag: Key and value that choose this section among its variants.
      tag_doc: The description of the tag.
      keys: The key of an argument, if it has another name.
      elsewhere: Arguments that are said elsewhere, with the address.
      python_only: Arguments that a run file cannot say, with the reason.
      kinds: The types of arguments whose annotation is an alias, by argument or by the
        name of the alias.
      limits: Limits of values by argument; a `doc` replaces that of the docstring.
      defaults: Defaults that differ from the function's; `REQUIRED` for none.
      extra: More keys, each with its annotated type and default.
      base: A section written by hand whose keys come first.
      doc: The description of the section; by default the function's.
    """
    told = {**(elsewhere or {}), **(python_only or {})}
    names = {} if keys is None else dict(keys)
    fields: list[Any] = []
    if tag is not None:
        fields.append((tag[0], Annotated[Literal[tag[1]], About(tag_doc)], tag[1]))
    objects, unsaid = dict(python_only or {}), {}
    for argument in arguments(file, name).values():
        if argument.name in told:
            continue
        kind = _kind(argument, kinds or {})
        written = ast.unparse(argument.annotation)
        reasons = [
            _OBJECTS[n] for n in _OBJECTS if n in (argument.name, *_words(written))
        ]
        if kind is None and reasons:
            objects[argument.name] = reasons[0]
        elif kind is None:
            unsaid[argument.name] = written
        else:
            key = names.get(argument.name, argument.name)
            fields.append(_field(argument, key, kind, limits or {}, defaults or {}))
    fields += [(key, kind, value) for key, (kind, value) in (extra or {}).items()]
    section: Any = dataclasses.make_dataclass(
        title,
        [_with_default(*item) for item in fields],
        bases=() if base is None else (base,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": doc or summary(file, name)},
    )
    describes = Describes(calls, file, name, names, elsewhere or {}, objects, unsaid)
    section.DESCRIBES = (*getattr(base, "DESCRIBES", ()), describes)
    section.__module__ = __name__
    return section


def _with_default(key: str, kind: Any, default: Any) -> Any:
    if default is REQUIRED:
        return (key, kind)
    if isinstance(default, dict | list):
        return (key, kind, dataclasses.field(default_factory=lambda: default))
    return (key, kind, dataclasses.field(default=default))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _kind(argument: Argument, kinds: Mapping[str, Any]) -> Any:
    if argument.name in kinds:
        return kinds[argument.name]
    return kind_of(argument.annotation, kinds)


def _field(
    argument: Argument,
    key: str,
    kind: Any,
    limits: Mapping[str, About],
    defaults: Mapping[str, Any],
) -> tuple[str, Any, Any]:
    default = defaults.get(argument.name, argument.default)
    if default is COMPUTED:
        default = None
    if kind is float and isinstance(default, int):
        default = float(default)  # as a file is read, so that both are written alike
    if default is None:
        kind = kind | None
    if isinstance(default, list):
        default = tuple(default)
    about = limits.get(argument.name, About(""))
    if not about.doc:
        doc = argument.doc or f"The argument `{argument.name}`."
        about = dataclasses.replace(about, doc=doc)
    return key, Annotated[kind, about], default


_PLAIN: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool}
_SEQUENCES = ("Sequence", "Iterable", "tuple", "list")


def kind_of(annotation: ast.expr, aliases: Mapping[str, Any]) -> Any:
    """Return the type that a run file has for an annotation; None if it has none.

    >>> kind_of(ast.parse("Sequence[int] | None", mode="eval").body, {})
    tuple[int, ...] | None
    """
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return type(None)
    if isinstance(annotation, ast.BinOp):
        return _union(annotation, aliases)
    if isinstance(annotation, ast.Name):
        return aliases.get(annotation.id, _PLAIN.get(annotation.id))
    if isinstance(annotation, ast.Subscript):
        return _subscript(annotation, aliases)
    return None


def _union(annotation: ast.BinOp, aliases: Mapping[str, Any]) -> Any:
    kinds = [kind_of(part, aliases) for part in (annotation.left, annotation.right)]
    # A member that a run file cannot hold is left out: `str | os.PathLike[str]` is a
    # text, and `int | Sequence[Device]` a number.
    kinds = [kind for kind in kinds if kind is not None]
    if not kinds or kinds == [type(None)]:
        return None
    return functools.reduce(operator.or_, kinds)


def _subscript(annotation: ast.Subscript, aliases: Mapping[str, Any]) -> Any:
    name = ast.unparse(annotation.value)
    inside = annotation.slice
    items = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    if name == "Literal":
        return Literal[tuple(ast.literal_eval(item) for item in items)]
    if name in _SEQUENCES:
        item = kind_of(items[0], aliases)
        return None if item is None else types.GenericAlias(tuple, (item, ...))
    if name in ("Mapping", "dict"):
        item = kind_of(items[1], aliases)
        return None if item is None else types.GenericAlias(Mapping, (str, item))
    return None
