"""The language of expressions: what it reads, and where a text is wrong."""

import pytest

from estimax.core.errors import FeatureError
from estimax.core.formulas import parse


def test_names_are_in_the_order_of_their_first_use():
    assert parse("b / a + `x y` - b").names == ("b", "a", "x y")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("logg(price)", "unknown function 'logg' at position 1; did you mean 'log'?"),
        ("a + nope(b)", "unknown function 'nope' at position 5; expected one of: abs"),
        ("price +", "expected a number, a name or '(', found the end at position 8."),
        ("a / (b", "expected ')', found the end at position 7."),
        ("a = 3", "unexpected '=' at position 3; write == to compare."),
        ("a ^ 2", "unexpected '^' at position 3; write ** for a power."),
        ("a & b", "unexpected '&' at position 3; write and."),
        ("city == 'x'", 'unexpected "\'" at position 9; write numbers; text has no'),
        ("a.b", "unexpected '.' at position 2; write a name with other characters"),
        ("x[0]", "unexpected '[' at position 2."),
        ("__import__(a)", "unknown function '__import__' at position 1"),
        ("lambda: a", "unexpected ':' at position 7"),
        ("1 + 2", "it names no feature"),
        ("min(a)", "min takes 2 or more arguments, got 1 at position 1."),
        ("2 * round(a, 1, 2)", "round takes 1 or 2 arguments, got 3 at position 5."),
        ("log()", "log takes 1 argument, got 0"),
        ("a b", "expected an operator, found 'b' at position 3."),
        ("a if b", "expected 'else', found the end"),
        ("", "expected a number, a name or '(', found the end at position 1."),
        ("(" * 500 + "a" + ")" * 500, "too many levels of brackets and operators"),
        ("+".join("a" * 500), "too many levels of brackets and operators"),
        ("-" * 500 + "a", "too many levels of brackets and operators"),
        ("not " * 500 + "a", "too many levels of brackets and operators"),
        ("a **" * 500 + "a", "too many levels of brackets and operators"),
        ("a if a else " * 500 + "a", "too many levels of brackets and operators"),
        ("a" * 20_000, "may have 10,000 characters, got 20,000"),
    ],
)
def test_a_mistake_is_named_with_its_position(text, words):
    with pytest.raises(FeatureError) as error:
        parse(text)
    assert words in str(error.value)
    assert len(str(error.value)) < 400


def test_many_levels_that_fit_are_read():
    assert parse("(" * 90 + "a" + ")" * 90).names == ("a",)
