"""A run written out and read again is the same run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text, spoiled, write

from estimax.config import load
from estimax.config.dump import dump

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def test_there_are_shipped_configs():
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_run_survives_the_round_trip(path, tmp_path):
    run = load(path).run
    again = load(write(tmp_path, dump(run))).run
    assert again == run
    assert dump(again) == dump(run)


@pytest.mark.parametrize("word", ["1e-3", "NO", "null", "0x1f", "a: b", "${name}", ""])
def test_a_text_that_looks_like_something_else_stays_a_text(tmp_path, word):
    run = load_text(tmp_path, GOOD).run
    object.__setattr__(run, "metadata", {"word": word, "words": [word]})
    again = load(write(tmp_path, dump(run), "again.yaml")).run
    assert again.metadata == {"word": word, "words": [word]}


def test_numbers_survive_with_all_their_digits(tmp_path):
    text = spoiled(
        "name: small", "name: small\nmetadata: {a: 1.0e-7, b: 1e22, c: .inf}"
    )
    run = load_text(tmp_path, text).run
    again = load(write(tmp_path, dump(run), "again.yaml")).run
    assert again.metadata == {"a": 1e-7, "b": 1e22, "c": float("inf")}
