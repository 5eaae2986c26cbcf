import numpy as np
import pytest
from golden_files import load_golden

from estimax.input import Dataset

span = Dataset.range

CHAINS = {
    "range(5).batch(2)": lambda: span(5).batch(2),
    "range(5).batch(2, drop_remainder=True)": lambda: span(5).batch(2, True),
    "range(3).repeat(2)": lambda: span(3).repeat(2),
    "range(3).repeat(0)": lambda: span(3).repeat(0),
    "range(3).repeat(-1).take(7)": lambda: span(3).repeat(-1).take(7),
    "range(3).repeat().take(4)": lambda: span(3).repeat().take(4),
    "range(0).repeat()": lambda: span(0).repeat(),
    "range(5).take(-1)": lambda: span(5).take(-1),
    "range(5).take(0)": lambda: span(5).take(0),
    "range(5).take(9)": lambda: span(5).take(9),
    "range(5).skip(-1)": lambda: span(5).skip(-1),
    "range(5).skip(2)": lambda: span(5).skip(2),
    "range(5).skip(9)": lambda: span(5).skip(9),
    "range(10).shard(3, 0)": lambda: span(10).shard(3, 0),
    "range(10).shard(3, 1)": lambda: span(10).shard(3, 1),
    "range(10).shard(3, 2)": lambda: span(10).shard(3, 2),
    "range(2).shard(3, 2)": lambda: span(2).shard(3, 2),
    "range(10).shard(2, 1).batch(2)": lambda: span(10).shard(2, 1).batch(2),
    "range(10).batch(2).shard(2, 1)": lambda: span(10).batch(2).shard(2, 1),
    "range(3).batch(2).repeat(2)": lambda: span(3).batch(2).repeat(2),
    "range(3).repeat(2).batch(2)": lambda: span(3).repeat(2).batch(2),
    "range(6).shuffle(1)": lambda: span(6).shuffle(1),
    "range(10).filter(lambda x: x % 3 == 0)": lambda: span(10).filter(
        lambda x: x % 3 == 0
    ),
    "zip(range(3), range(10, 15))": lambda: Dataset.zip(span(3), span(10, 15)),
    "range(2).concatenate(range(7, 9))": lambda: span(2).concatenate(span(7, 9)),
    "range(4).flat_map(lambda x: range(x))": lambda: span(4).flat_map(span),
    "range(5).window(2, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(2))": (
        lambda: span(5).window(2, 1, 1, True).flat_map(lambda w: w.batch(2))
    ),
    "range(5).window(3, shift=2).flat_map(lambda w: w.batch(3))": (
        lambda: span(5).window(3, shift=2).flat_map(lambda w: w.batch(3))
    ),
    "range(3).enumerate(5)": lambda: span(3).enumerate(5),
    "range(6).batch(4).unbatch().batch(3)": lambda: span(6).batch(4).unbatch().batch(3),
    "range(7).take_while(lambda x: x < 3)": lambda: span(7).take_while(lambda x: x < 3),
}


@pytest.mark.golden
def test_chains_of_verbs_give_what_tensorflow_gives():
    cases = {
        c["name"]: c["output"] for c in load_golden("data.json")["chains"]["cases"]
    }
    compared = 0
    for name, make in CHAINS.items():
        assert [np.asarray(element).tolist() for element in make()] == cases[name], name
        compared += 1
    assert compared == len(cases) == 31


def test_skip_is_done_once_and_not_on_resume():
    made = []
    data = Dataset.from_generator(lambda: (made.append(i) or i for i in range(9)))
    iterator = iter(data.skip(4))
    assert next(iterator) == 4
    assert made == [0, 1, 2, 3, 4]


def test_a_filter_that_keeps_nothing_ends_an_endless_repeat():
    assert list(span(5).filter_blocks(lambda x: x > 9).repeat()) == []
