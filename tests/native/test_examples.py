"""Parsers of Examples check what they are asked, and do without wrong kernels."""

import importlib
import logging

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import encoding, examples, loading, sequences
from estimax.native.encoding import EncodedColumn, encode_examples
from estimax.native.example_types import FeatureRequest, Flaw, Problem
from estimax.native.examples import ExamplePlan
from estimax.native.reference.protos import entry, field
from estimax.native.sequences import find_lists

RECORDS = Strings.of([field(1, entry(b"n", 3, [n])) for n in (7, 300)])


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        (
            [FeatureRequest("n", "int64"), FeatureRequest("n", "string")],
            "every key once",
        ),
        ([FeatureRequest("n", "float64")], "expected dtype string, float32, int64"),
        ([FeatureRequest("n", "int64", size=-1)], "expected 0 to .* values, found -1"),
        (
            [FeatureRequest("n", "int64", size=2, default=[1])],
            "default of 2 values, found 1",
        ),
        ([FeatureRequest("n", "int64", default=[1])], "default of None values"),
        ([FeatureRequest("n", "int64", multiple=0)], "positive multiple, found 0"),
        ([FeatureRequest("n", "int64", size=1, indices=True)], "has no indices"),
        ([FeatureRequest(b"n", "int64")], "type str, found bytes"),
    ],
)
def test_features_that_no_parser_can_read_are_refused(wanted, match):
    with pytest.raises(InputError, match=match):
        ExamplePlan(wanted)
    with pytest.raises(InputError, match=match):
        find_lists(wanted, RECORDS)


def test_a_problem_says_where_it_is():
    found = ExamplePlan(
        [FeatureRequest("m", "int64"), FeatureRequest("n", "string")]
    ).run(RECORDS)
    assert found == Problem(Flaw.WRONG_KIND, 0, 1, 9, expected=1, found=3)


def test_a_shape_that_is_not_that_of_the_offsets_is_refused():
    lying = Strings(RECORDS.data, RECORDS.offsets, (3,))
    with pytest.raises(InputError, match=r"each of the 2 pairs .* found shape \(3,\)"):
        ExamplePlan([FeatureRequest("n", "int64")]).run(lying)


# Which kernel is made to be wrong, and which of its arguments it then spoils.
WRONG = [
    ("examples", "scan_and_fill", 10),  # integers
    ("examples", "scan", 10),  # integers
    ("examples", "fill", 9),  # integers
    ("sequences", "scan_lists", -1),  # the problem
    ("sequences", "scan_steps", -1),  # the problem
    ("encoding", "encode", 9),  # the bytes
]


@pytest.mark.usefixtures("native_on")
@pytest.mark.parametrize(("module", "name", "spoilt"), WRONG)
def test_kernels_that_disagree_are_left_off(module, name, spoilt, monkeypatch, caplog):
    kernels = importlib.import_module(f"estimax.native.kernels.{module}")
    right = getattr(kernels, name)

    def wrong(*arguments):
        result = right(*arguments)
        arguments[spoilt][...] += 1
        return result

    monkeypatch.setattr(kernels, name, wrong)
    monkeypatch.setattr(loading, "_loaded", {})  # as in a new process
    with caplog.at_level(logging.WARNING, logger="estimax"):
        _check_results()
    (warning,) = caplog.messages
    assert f"native kernels '{module}' are off" in warning
    assert "another result than the reference" in warning


def _check_results():
    for plan in (FeatureRequest("n", "int64", 1), FeatureRequest("n", "int64")):
        raw = ExamplePlan([plan]).run(RECORDS)
        values = raw.fixed(0, ()) if plan.size else raw.variable(0).values
        assert values.tolist() == [7, 300]
    steps = field(1, field(3, field(1, b"\x05"))) + field(
        1, field(3, field(1, b"\x06"))
    )
    record = field(2, field(1, field(1, b"n") + field(2, steps)))
    lists = find_lists([FeatureRequest("n", "int64")], Strings.of([record]))
    assert lists.splits.tolist() == [[0, 2]]
    assert lists.read(0, 1).values.tolist() == [5, 6]
    splits = np.array([0, 1, 2])
    column = EncodedColumn("n", np.array([7, 300]), splits)
    assert encode_examples([column]).tolist() == RECORDS.tolist()


@pytest.mark.usefixtures("native_on")
def test_the_kernels_are_on_here():
    for module in (examples, sequences, encoding):
        name = module.__name__.rpartition(".")[2]
        assert loading.kernels(name, module._agrees) is not None


@pytest.mark.parametrize(
    ("values", "splits", "match"),
    [
        (np.zeros(2), [0, 3, 2], "'x': splits must increase and stay within the 2"),
        (np.zeros(2), [-1, 1, 2], "splits must increase"),
        (np.zeros(2), [0.0, 1.0], "splits must be integers"),
        (np.zeros(2), [], "splits must be"),
        (np.zeros((2, 1)), [0, 1], "expected flat values"),
        (np.zeros(2, np.uint64), [0, 1], "has dtype uint64"),
    ],
)
def test_columns_that_cannot_be_encoded_are_refused(values, splits, match):
    with pytest.raises(InputError, match=match):
        encode_examples([EncodedColumn("x", values, np.array(splits))])


def test_columns_of_different_lengths_are_refused():
    one = EncodedColumn("a", np.zeros(1), np.array([0, 1]))
    two = EncodedColumn("b", np.zeros(2), np.array([0, 1, 2]))
    with pytest.raises(InputError, match="same number of rows, got a: 1, b: 2"):
        encode_examples([one, two])
    with pytest.raises(InputError, match="at least one column"):
        encode_examples([])
