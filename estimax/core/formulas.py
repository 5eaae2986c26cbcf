"""Parses the text of an `expression_column`: a small language, never Python's `eval`.

    formula = parse("log1p(price / area) if area > 0 else nan")
    formula.names        # ("area", "price")

Precedence and operators are those of Python. A formula has numbers, names of features,
operators and the functions of `FUNCTIONS`, and no text, attribute, index or assignment.
This module imports no NumPy, so that a run file is checked quickly;
`feature_columns.transforms.formulas` computes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from estimax.core.errors import FeatureError, did_you_mean

# The least and the largest number of arguments of each function; None: any number.
FUNCTIONS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("abs", "ceil", "cos", "exp", "expm1", "floor", "isnan"), (1, 1)),
    **dict.fromkeys(("log", "log10", "log1p", "log2", "sign", "sin"), (1, 1)),
    **dict.fromkeys(("sqrt", "tan", "tanh"), (1, 1)),
    "round": (1, 2),
    "clip": (3, 3),
    "where": (3, 3),
    **dict.fromkeys(("coalesce", "max", "min"), (2, None)),
}
CONSTANTS = {"nan": math.nan, "pi": math.pi}
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_BINARY = {  # operator: how tightly it binds
    "or": 1,
    "and": 2,
    **dict.fromkeys(COMPARISONS, 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "//", "%"), 6),
    "**": 8,
}
_NOT, _COMPARED, _SIGN, _POWER = 3, 4, 7, 8
_WORDS = ("and", "or", "not", "if", "else")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|`(?P<quoted>[^`]+)`|(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%<>(),])|(?P<end>$))"
)
_MEANT = {
    **{"=": "== to compare", "^": "** for a power", "&": "and", "|": "or"},
    **{"!": "not", "?": "A if CONDITION else B", "'": "numbers; text has no value"},
    **{'"': "numbers; text has no value", "`": "a name between two backquotes"},
    ".": "a name with other characters between backquotes, `like.this`",
}
_LONGEST = 10_000  # characters
_DEEPEST = 200  # levels; Python's stack has 1,000
_SHOWN = 100  # characters of an expression in a message


@dataclass(frozen=True)
class Node:
    """A part of a formula.

    Args:
      kind: "number", "name", "call" of a function or operator, or "if".
      value: The number; or the name of the feature, function or operator.
      parts: The arguments; of "if" the condition and both results.
      depth: The number of levels below.
    """

    kind: str
    value: str | float
    parts: tuple[Node, ...] = ()
    depth: int = 0


@dataclass(frozen=True)
class Formula:
    """A formula that was parsed.

    Args:
      root: The whole formula.
      names: The features that it reads, in the order of their first use.
    """

    root: Node
    names: tuple[str, ...]


@functools.lru_cache(1024)
def parse(text: str) -> Formula:
    """Return the formula that a text means.

    Raises:
      FeatureError: The text is no formula, has an unknown function, or reads nothing.

    Example:
      >>> parse("log1p(price / `floor area`)").names
      ('price', 'floor area')
    """
    if len(text) > _LONGEST:
        raise FeatureError(
            f"an expression may have {_LONGEST:,} characters, got {len(text):,}."
        )
    return _Parser(text).parse()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int  # from 1


class _Parser:
    """A parser by precedence: it reads an operand, then operators that bind to it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0
        self._open = 0
        self._names: dict[str, None] = {}

    def parse(self) -> Formula:
        root = self._read()
        if self._token.kind != "end":
            raise self._unexpected("an operator")
        if not self._names:
            raise self._error("it names no feature, so it is the same in every row")
        return Formula(root, tuple(self._names))

    def _split(self) -> Iterator[_Token]:
        at = 0
        while True:
            found = _TOKEN.match(self._text, at)
            if found is None:
                start = len(self._text) - len(self._text[at:].lstrip())
                sign = self._text[start]
                hint = f"; write {_MEANT[sign]}" if sign in _MEANT else ""
                raise self._error(f"unexpected {sign!r}", start + 1, hint)
            kind = found.lastgroup
            assert kind is not None
            word = found[kind]
            if kind == "name" and word in _WORDS:
                kind = "operator"
            yield _Token(kind, word, found.start(found.lastgroup or 0) + 1)
            if kind == "end":
                return
            at = found.end()

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, text: str) -> bool:
        """Go on if the next token is this operator; return whether it was."""
        is_it = self._token.kind == "operator" and self._token.text == text
        self._next += is_it
        return is_it

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(repr(text))

    def _read(self) -> Node:
        """Read a formula, or a part of one between brackets or commas."""
        self._open += 1
        if self._open > _DEEPEST:
            raise self._too_deep()
        found = self._binary(1)
        if self._take("if"):
            condition = self._binary(1)
            self._expect("else")
            found = self._node("if", "if", condition, found, self._read())
        self._open -= 1
        return found

    def _binary(self, least: int) -> Node:
        """Read operands with the operators that bind at least so tightly."""
        self._open += 1
        if self._open > _DEEPEST:
            raise self._too_deep()
        left = self._operand()
        while True:
            token = self._token
            tightness = _BINARY.get(token.text, 0) if token.kind == "operator" else 0
            if tightness < least or not tightness:
                self._open -= 1
                return left
            self._next += 1
            if tightness == _COMPARED:
                left = self._compared(left, token.text)
                continue
            # A power groups from the right: 2 ** 3 ** 2 is 2 ** 9. What is right of
            # it may have a sign.
            above = _SIGN if tightness == _POWER else tightness + 1
            left = self._node("call", token.text, left, self._binary(above))

    def _compared(self, left: Node, operator: str) -> Node:
        """Read `< b`, and further comparisons: a < b < c is a < b and b < c."""
        right = self._binary(_COMPARED + 1)
        found = self._node("call", operator, left, right)
        while self._token.kind == "operator" and self._token.text in COMPARISONS:
            operator, left = self._token.text, right
            self._next += 1
            right = self._binary(_COMPARED + 1)
            also = self._node("call", operator, left, right)
            found = self._node("call", "and", found, also)
        return found

    def _operand(self) -> Node:
        token = self._token
        if token.kind == "end":
            raise self._unexpected("a number, a name or '('")
        self._next += 1
        if token.kind == "number":
            return Node("number", float(token.text))
        if token.kind == "quoted":
            return self._name(token.text)
        if token.kind == "name":
            if self._take("("):
                return self._call(token)
            if token.text in CONSTANTS:
                return Node("number", CONSTANTS[token.text])
            return self._name(token.text)
        if token.text == "(":
            found = self._read()
            self._expect(")")
            return found
        if token.text == "not":
            return self._node("call", "not", self._binary(_NOT))
        if token.text == "-":
            return self._node("call", "negative", self._binary(_SIGN))
        if token.text == "+":
            return self._binary(_SIGN)
        self._next -= 1
        raise self._unexpected("a number, a name or '('")

    def _name(self, name: str) -> Node:
        self._names[name] = None
        return Node("name", name)

    def _call(self, name: _Token) -> Node:
        if name.text not in FUNCTIONS:
            hint = did_you_mean(name.text, FUNCTIONS)
            raise self._error(f"unknown function {name.text!r}", name.position, hint)
        given: list[Node] = []
        while not self._take(")"):
            if given:
                self._expect(",")
            given.append(self._read())
        least, most = FUNCTIONS[name.text]
        if len(given) < least or (most is not None and len(given) > most):
            count = f"{least} or more" if most is None else str(least)
            count = f"{least} or {most}" if most not in (None, least) else count
            plural = "" if count == "1" else "s"
            text = f"{name.text} takes {count} argument{plural}, got {len(given)}"
            raise self._error(text, name.position)
        return self._node("call", name.text, *given)

    def _node(self, kind: str, value: str, *parts: Node) -> Node:
        depth = 1 + max(part.depth for part in parts)
        if depth > _DEEPEST:
            raise self._too_deep()
        return Node(kind, value, parts, depth)

    def _too_deep(self) -> FeatureError:
        text = "too many levels of brackets and operators"
        return self._error(text, self._token.position)

    def _unexpected(self, wanted: str) -> FeatureError:
        token = self._token
        found = "the end" if token.kind == "end" else repr(token.text)
        return self._error(f"expected {wanted}, found {found}", token.position)

    def _error(
        self, what: str, position: int | None = None, hint: str = ""
    ) -> FeatureError:
        where = "" if position is None else f" at position {position}"
        end = "" if hint.endswith("?") else "."
        return FeatureError(f"{described(self._text)}: {what}{where}{hint}{end}")


def described(text: str) -> str:
    """Return how a message names an expression; a long one is cut.

    >>> described("a / b")
    "expression 'a / b'"
    """
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"expression {shown!r}"


def check(text: str, problem: Callable[[str], None]) -> tuple[str, ...]:
    """Return the names of a formula; report a problem, and return none, if it is none.

    `problem` gets the text of the message without the expression itself.
    """
    try:
        return parse(text).names
    except FeatureError as error:
        problem(str(error).removeprefix(f"{described(text)}: "))
        return ()
