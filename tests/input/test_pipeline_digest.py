import functools
import subprocess
import sys

import numpy as np
import pytest

from estimax.input import Dataset, TextLineDataset, csv_files
from estimax.input.pipeline_digest import digest_of

LIMIT = 3


def recipe(dataset):
    return digest_of(dataset.node)


def numbers():
    return Dataset.from_tensor_slices({"x": np.arange(4)})


def keep(limit):
    return lambda row: row["x"] < limit


class Keep:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, row):
        return row["x"] < self.limit


def below(row, limit):
    return row["x"] < limit


def below_global(row):
    return row["x"] < LIMIT


PAIRS = {
    "batch size": (lambda d: d.batch(2), lambda d: d.batch(3)),
    "shard": (lambda d: d.shard(2, 0), lambda d: d.shard(2, 1)),
    "closure": (lambda d: d.filter(keep(1)), lambda d: d.filter(keep(2))),
    "object": (lambda d: d.filter(Keep(1)), lambda d: d.filter(Keep(2))),
    "partial": (
        lambda d: d.filter(functools.partial(below, limit=1)),
        lambda d: d.filter(functools.partial(below, limit=2)),
    ),
    "code": (
        lambda d: d.map(lambda row: row["x"] + 1),
        lambda d: d.map(lambda row: row["x"] * 1),
    ),
    "array": (
        lambda d: d.filter(keep(np.arange(3))),
        lambda d: d.filter(keep(np.arange(1, 4))),
    ),
    "seed": (lambda d: d.shuffle(4, seed=1), lambda d: d.shuffle(4, seed=2)),
}


@pytest.mark.parametrize("what", PAIRS)
def test_another_argument_is_another_recipe(what):
    one, other = PAIRS[what]
    assert recipe(one(numbers())) == recipe(one(numbers()))
    assert recipe(one(numbers())) != recipe(other(numbers()))


def test_a_global_that_a_function_uses_belongs_to_the_recipe(monkeypatch):
    before = recipe(numbers().filter(below_global))
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 4)
    assert recipe(numbers().filter(below_global)) != before


def test_files_and_arrays_are_left_to_the_fingerprint(tmp_path):
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "b").write_text("2\n")
    a, b = (tmp_path / name for name in "ab")
    assert recipe(TextLineDataset(str(a))) == recipe(TextLineDataset(str(b)))
    assert recipe(csv_files(a, columns=["x"])) == recipe(csv_files(b, columns=["x"]))
    assert recipe(Dataset.from_tensor_slices(np.arange(4))) == recipe(
        Dataset.from_tensor_slices(np.arange(9))
    )


def test_a_generator_anywhere_in_the_dataset_has_no_recipe():
    generated = Dataset.from_generator(lambda: iter(range(4)))
    assert recipe(generated.batch(2)) is None
    assert recipe(Dataset.zip((numbers(), generated))) is None


def test_reading_does_not_change_a_recipe():
    dataset = numbers().map(lambda row: row["x"] + 1).cache().shuffle(4).batch(2)
    before = recipe(dataset)
    assert len(list(dataset)) == 2
    assert recipe(dataset) == before


def test_the_recipe_is_the_same_in_another_process():
    code = """
from estimax.input import Dataset
from estimax.input.pipeline_digest import digest_of
words = {"a", "b", "c"}
data = Dataset.range(4).filter(lambda x: x in {1, 2} and "a" in words).batch(2)
print(digest_of(data.node))
"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "NUMBA_DISABLE_JIT": "1"},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
