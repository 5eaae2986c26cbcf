"""What a scalar of a run file means: YAML 1.2's core schema, within 64 bits.

    read_scalar("1e-3", tag=None, is_plain=True)      # 0.001
    read_scalar("NO", tag=None, is_plain=True)        # 'NO'
    read_scalar("2013", tag=None, is_plain=False)     # '2013': it was quoted

Only `true` and `false` are booleans and dates are text. Tags other than those of the
core schema (`!!str`, `!!int`, `!!float`, `!!bool`, `!!null`, `!!map`, `!!seq`) are
refused: a run file holds data, and no tag may construct an object from it.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)

SCALAR_PATTERNS = {"null": _NULL, "bool": _BOOL, "int": _INT, "float": _FLOAT}
_PREFIX = "tag:yaml.org,2002:"
_INT_RANGE = range(-(2**63), 2**63)
# No file path, column or word may hold these: C functions end a text at NUL, and a lone
# surrogate (half of a character) cannot be written as UTF-8.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


class ScalarError(ValueError):
    """A scalar that a run file may not hold; the message is for its author."""


def read_scalar(text: str, *, tag: str | None, is_plain: bool) -> Scalar:
    """Return the value of a scalar; raise `ScalarError` for one that is refused.

    >>> read_scalar("5", tag="tag:yaml.org,2002:str", is_plain=True)
    '5'
    """
    if (unusable := _UNUSABLE.search(text)) is not None:
        character = f"U+{ord(unusable[0]):04X}"
        raise ScalarError(f"a text may not hold the character {character}; remove it")
    if tag is None:
        return plain_scalar(text) if is_plain else text
    kind = "str" if tag == "!" else tag.removeprefix(_PREFIX)
    check_tag(tag, {"str", *SCALAR_PATTERNS})
    if kind == "str":
        return text
    # YAML allows `!!float 3` and the like: an int is also written as a float is.
    pattern = SCALAR_PATTERNS[kind]
    if not (pattern.fullmatch(text) or (kind == "float" and _INT.fullmatch(text))):
        raise ScalarError(f"expected {kind} after the tag !!{kind}, got {text[:60]!r}")
    value = plain_scalar(text)
    return float(value) if kind == "float" and isinstance(value, int) else value


def check_tag(tag: str | None, allowed: set[str]) -> None:
    """Raise `ScalarError` for a tag that is not one of the `allowed` core tags.

    >>> check_tag("tag:yaml.org,2002:map", {"map"})
    >>> check_tag("tag:yaml.org,2002:python/tuple", {"seq"})
    Traceback (most recent call last):
    estimax.config.scalars.ScalarError: the tag !!python/tuple is not supported: \
a run file holds plain YAML (text, numbers, lists, mappings); remove the tag
    """
    if tag is None or tag == "!" or tag.removeprefix(_PREFIX) in allowed:
        return
    name = f"!!{tag.removeprefix(_PREFIX)}" if tag.startswith(_PREFIX) else tag
    raise ScalarError(
        f"the tag {name[:60]} is not supported: a run file holds plain YAML "
        "(text, numbers, lists, mappings); remove the tag"
    )


def plain_scalar(text: str) -> Scalar:
    """Return what an unquoted scalar means in YAML 1.2.

    >>> plain_scalar("1e-3"), plain_scalar("NO"), plain_scalar("true")
    (0.001, 'NO', True)
    """
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return _whole_number(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    return text


def _whole_number(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    digits = text[2:] if base != 10 else text.lstrip("+-")
    significant = digits.lstrip("0") or "0"
    # Python refuses to convert more than 4300 digits; 64 bits have at most 22.
    if len(significant) <= 22:
        number = int(significant, base) * (-1 if text.startswith("-") else 1)
        if number in _INT_RANGE:
            return number
    raise ScalarError(
        f"expected a whole number of at most 64 bits, got one of {len(digits):,} "
        "digits; quote it if it is meant as text"
    )


def _float(text: str) -> float:
    number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if math.isinf(number) and "inf" not in text.lower():
        raise ScalarError(
            f"expected a number of at most 1.8e308, got {text[:60]}; "
            "infinity is written .inf"
        )
    return number
