"""An expression is evaluated and printed as the same Python."""

import math

import pytest

from estimax.config.expressions import CallExpression, Function, Reference, evaluate
from estimax.config.script import Script
from estimax.core.errors import ConfigError


def printed(*values):
    script = Script()
    texts = [script.text(value) for value in values]
    return texts, script


def test_an_expression_in_two_places_is_evaluated_once():
    made = CallExpression("builtins.list", {}, ([1],))
    first, second = evaluate([made, made])
    assert first is second


def test_a_function_evaluates_its_body_at_each_call():
    function = evaluate(Function("rows", CallExpression("builtins.list", {}, ([1],))))
    assert function.__name__ == "rows"
    assert function() == [1]
    assert function() is not function()


def test_a_method_is_called_on_its_object():
    upper = CallExpression("upper", of=CallExpression("builtins.str", {}, ("abc",)))
    assert evaluate(upper) == "ABC"
    assert printed(upper)[0] == ['str("abc").upper()']


def test_a_name_that_does_not_exist_is_an_error():
    with pytest.raises(ConfigError, match=r"math\.sqroot: cannot be imported"):
        evaluate(Reference("math.sqroot"))


def test_what_is_printed_can_be_read_again():
    value = {"a": [1, 2.5, None, 'it\'s "ok"\n'], "b": (1,), "c": (), "d": math.inf}
    (text,), _ = printed(value)
    assert eval(text) == value


def test_variables_have_distinct_valid_names():
    calls = [CallExpression("builtins.str", {}, (i,), name="a-b") for i in range(2)]
    calls.append(CallExpression("builtins.str", {}, (2,), name="class"))
    texts, script = printed(*calls, calls[0])
    assert texts == ["a_b", "a_b_2", "_class", "a_b"]
    assert script.lines[0] == "a_b = str(0)"


def test_names_of_estimax_and_of_users_are_imported():
    paths = ("estimax.optimizers.Adam", "estimax.canned.KMeans", "my.models:net")
    texts, script = printed(*map(Reference, paths))
    assert texts == ["ex.optimizers.Adam", "ex.KMeans", "my.models.net"]
    assert script.imports == {"import my.models"}
