"""A map that runs in blocks of rows gives the results of calling it row by row."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import enum
import functools
import itertools
import json
import logging
import operator
import os
import pickle
import random
import re
import sys
import threading
import time
import tracemalloc
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input import (
    Dataset,
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    TextLineDataset,
    TFRecordDataset,
    VarLenFeature,
    decode_csv,
    parse_single_example,
)
from estimax.input.ops.row_functions import RowFunction, is_same
from estimax.input.ops.sandbox import Sandbox

NAMES = ["age", "score", "city", "label"]
DEFAULTS: list[Any] = [[-1], [0.5], ["none"], [0.0]]
Row = collections.namedtuple("Row", ["x", "y"])
OFFSET = np.float32(0.25)
TABLE = np.arange(10.0)


def parse_line(line):
    features = dict(zip(NAMES, decode_csv(line, DEFAULTS), strict=True))
    label = features.pop("label")
    return features, label


def text_lines(n: int = 300) -> Strings:
    rng = np.random.default_rng(3)
    rows = []
    for i in range(n):
        age = "" if i % 13 == 5 else str(rng.integers(-5, 90))
        score = repr(float(rng.normal())) if i % 3 else f"{rng.normal():.2f}"
        city = f'"a ""{i}"", b"' if i % 7 == 2 else f"city{i % 9}"
        rows.append(f"{age},{score},{city},{i % 2}")
    return Strings.of(rows)


def rows_of(data: Dataset) -> list[Any]:
    """Return all elements as nested lists with the types of their leaves."""
    return [_shown(element) for element in data]


def _shown(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _shown(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return (type(tree).__name__, *(_shown(value) for value in tree))
    if isinstance(tree, ex.Sparse):
        shape = tree.dense_shape
        return "sparse", tree.indices.tolist(), _shown(tree.values), shape
    if isinstance(tree, Strings):
        return "text", tree.shape, tree.tolist()
    if isinstance(tree, np.ndarray | np.generic):
        return type(tree).__name__, str(tree.dtype), tree.shape, tree.tobytes()
    return type(tree).__name__, repr(tree)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowFunction, "obstacle", "is told to")


def check_same(make: Any, monkeypatch: pytest.MonkeyPatch, *, blocks: bool = True):
    """Compare a dataset with its results row by row; `make` returns it."""
    data = make()
    found = rows_of(data)
    function = _function_of(data.node)
    assert (function.obstacle is None) == blocks, function.obstacle
    with monkeypatch.context() as patch:
        one_by_one(patch)
        assert found == rows_of(make())
    return found


def _function_of(node: Any) -> RowFunction:
    while not hasattr(node, "fn") or node.name != "map":
        node = node.source
    return node.function


SOURCE = {
    "f": np.random.default_rng(0).normal(size=200).astype(np.float32),
    "d": np.random.default_rng(1).normal(size=200),
    "i": np.arange(200, dtype=np.int32) - 50,
    "v": np.random.default_rng(2).normal(size=(200, 3)).astype(np.float32),
    "s": [f"word{i % 5}" for i in range(200)],
    "b": np.arange(200) % 3 == 0,
}


def helper(x):
    return x * 3 - OFFSET


FUNCTIONS = {
    "arithmetic": lambda r: (r["f"] * 2 + 1, r["i"] // 3, r["i"] % 7, -r["d"] / 3),
    "types": lambda r: (r["f"] * 1.5, r["i"] * 1.5, r["f"] + r["d"], r["b"] + 1),
    "constants": lambda r: {"x": r["f"], "one": 1, "name": "a", "w": np.float32(2)},
    "vectors": lambda r: (r["v"] * r["f"], r["v"] + TABLE[:3], r["v"][1], r["v"][:2]),
    "reductions": lambda r: (r["v"].sum(), np.mean(r["v"]), r["v"].max() - r["f"]),
    "transcendental": lambda r: np.log1p(np.exp(r["f"])) + np.tanh(r["d"]) ** 2,
    "comparisons": lambda r: (r["f"] > 0, r["s"] == b"word3", r["s"] != b"word1"),
    "booleans": lambda r: (r["s"] == b"word3") & (r["s"] != b"x") | r["b"],
    "words": lambda r: (r["s"].upper() + b"!", r["s"][:2], r["s"].startswith(b"w")),
    "where": lambda r: np.where(r["f"] > 0, r["f"], np.float32(0)),
    "clip": lambda r: (np.clip(r["v"], 0, 1), np.maximum(r["f"], 0), r["f"].round(1)),
    "stack": lambda r: np.stack([r["f"], r["f"] * 2, r["d"]]),
    "concatenate": lambda r: np.concatenate([r["v"], r["v"] * 2]),
    "casts": lambda r: (r["f"].astype(np.int64), r["b"].astype("float32"), abs(r["i"])),
    "unpacking": lambda r: dict(zip("abc", r["v"], strict=True)),
    "items": lambda r: {k: v for k, v in r.items() if k != "s"},
    "named": lambda r: Row(r["f"], r["d"]),
    "helpers": lambda r: (helper(r["f"]), helper(r["v"])),
    "shapes": lambda r: r["v"] * r["v"].shape[0] + len(r["v"]) + r["f"].ndim,
    "reflected": lambda r: (1 - r["f"], 2 / r["d"], np.arange(3) * r["v"], 7 // r["d"]),
    "pass": lambda r: (r["v"], r["s"], r["b"], None),
    "power": lambda r: (r["d"] ** 2, 2 ** r["i"].astype(np.float64), divmod(r["i"], 7)),
    "gaps": lambda r: np.sqrt(r["f"]),
    "matrix": lambda r: r["v"] @ np.eye(3, dtype=np.float32),
    "split": lambda r: r["s"].split(b"d"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:.*encountered in")
def test_a_block_gives_the_same_as_its_rows(name, monkeypatch):
    def make():
        return Dataset.from_tensor_slices(SOURCE).map(FUNCTIONS[name]).batch(32)

    check_same(make, monkeypatch)
    check_same(lambda: Dataset(make().node.source).shuffle(50, seed=1), monkeypatch)


COUNTED = [0]
KEPT: list[Any] = []
RANDOM = np.random.default_rng(0)
calls = 0


def counting(r):
    COUNTED[0] += 1
    return r["f"]


def keeping(r):
    KEPT.append(r["f"])
    return r["f"]


def assigning(r):
    global calls
    calls += 1
    return r["f"]


def catching(r):
    try:
        return float(r["f"])
    except TypeError:
        return 0.0


def swallowing(r):
    value = r["f"] * 2
    if hasattr(value, "decode"):
        return value + 1
    return value


BY_ROW = {
    "branch": lambda r: r["f"] if r["f"] > 0 else -r["f"],
    "float": lambda r: float(r["f"]) * 2,
    "cast": lambda r: np.float64(r["f"]) * 2,
    "take": lambda r: np.take(TABLE, r["i"] % 10),
    "index": lambda r: TABLE[r["i"] % 10],
    "array": lambda r: np.array([r["f"], r["d"]]),
    "key": lambda r: {b"word1": 1}.get(r["s"], 0) + r["f"],
    "contains": lambda r: (r["f"], r["s"] in (b"word1", b"word2")),
    "text": lambda r: (r["f"], r["s"].decode()),
    "print": lambda r: print(end="") or r["f"],
    "random": lambda r: r["f"] + 0 * np.random.rand(),
    "generator": lambda r: r["f"] + 0 * RANDOM.normal(),
    "constant": lambda r: 1,
    "counting": counting,
    "keeping": keeping,
    "assigning": assigning,
    "catching": catching,
    "swallowing": swallowing,
    "module": lambda r: r["f"] * json.loads("2"),
    "ragged": lambda r: r["s"].split(b"3"),
    "writing": lambda r: operator.setitem(r, "f", 1) or r,
}


@pytest.mark.parametrize("name", BY_ROW)
def test_what_a_block_cannot_do_is_done_row_by_row(name, monkeypatch):
    def make():
        data = Dataset.from_tensor_slices(SOURCE).map(BY_ROW[name])
        return data.shuffle(64, seed=2)

    check_same(make, monkeypatch, blocks=False)


def test_a_function_that_counts_is_called_once_for_every_row():
    COUNTED[0] = 0
    list(Dataset.from_tensor_slices(SOURCE).map(counting).batch(50))
    assert COUNTED[0] == 200


def test_a_constant_that_changes_between_blocks_is_seen():
    scale = {"by": 1}
    data = Dataset.from_tensor_slices(np.arange(200)).map(lambda x: x * scale["by"])
    batches = iter(data.batch(100))
    first = next(batches)
    scale["by"] = 10
    second = next(batches)
    assert (first[1], second[0]) == (1, 1000)


def test_rows_that_differ_from_their_block_end_the_blocks():
    # `is` tells a block from a row, which no operation of the value can notice. The
    # first row that ends with "7" comes after the rows that are always compared.
    def by_identity(word):
        return word, 2 if word.endswith(b"7") is True else 3

    words = [*["a"] * 30, "b7", *["a"] * 19]
    data = Dataset.from_tensor_slices(words).map(by_identity)
    assert next(iter(data.batch(50)))[1].tolist() == [*[3] * 30, 2, *[3] * 19]
    assert "other results" in str(data.node.function.obstacle)


def test_an_outcome_is_compared_in_the_block_where_it_first_occurs():
    def by_identity(word):
        return word, 2 if (word == b"rare") is True else 3

    words = [*["a"] * 1000, "rare", *["a"] * 99]
    data = Dataset.from_tensor_slices(words).map(by_identity)
    found = np.concatenate([batch[1] for batch in data.batch(10)])
    assert np.flatnonzero(found == 2).tolist() == [1000]


def test_a_function_that_asks_for_a_type_sees_rows():
    def is_rare(word):
        if isinstance(word, bytes):
            word = word.decode()
        return word == "rare"

    words = [*["a"] * 60, "rare", "a"]
    data = Dataset.from_tensor_slices(words).map(lambda w: (w, is_rare(w)))
    assert np.flatnonzero(next(iter(data.batch(62)))[1]).tolist() == [60]
    assert data.node.function.obstacle == "asks for the type of a value"


class Counting:
    """Objects and classes with state."""

    total = 0

    def __init__(self) -> None:
        self.n = 0
        self.by = 2
        self.seen: list[int] = []

    def count(self, r):
        self.n += 1
        return r["f"] + self.n

    def count_class(self, r):
        Counting.total += 1
        return r["f"] + Counting.total

    def append(self, r):
        self.seen.append(1)
        return r["f"] + len(self.seen)

    def hide(self, r):
        return self._add_one(r["f"])

    def _add_one(self, x):
        self.n += 1
        return x + self.n

    def scale(self, r):
        return self._times(r["f"])

    def _times(self, x):
        return x * self.by

    def __call__(self, r):
        return self.count(r)


def stateful() -> dict[str, Any]:
    """Functions whose result depends on the calls before; made anew for each use."""
    numbers, counts, cache = itertools.count(), np.zeros(1), dict[str, Any]()
    total, generator = 0, (i for i in range(10_000))
    table: dict[str, int] = collections.defaultdict(int)

    def nonlocal_counter(r):
        nonlocal total
        total += 1
        return r["f"] + total

    def attribute(r):
        attribute.calls = getattr(attribute, "calls", 0) + 1
        return r["f"] + attribute.calls

    def default(r, seen=[]):  # noqa: B006 # that it is shared is the point
        seen += [1]
        return r["f"] + len(seen)

    def array(r):
        counts[0] += 1
        return r["f"] + counts[0]

    def quiet_array(r):
        try:
            counts[0] += 1
        except:  # noqa: E722 # the widest handler there is
            return r["f"]
        return r["f"] + counts[0]

    def memo(r):
        cache["n"] = cache.get("n", 0) + 1
        return r["f"] + cache["n"]

    def missing(r):
        table["calls"] += 1
        return r["f"] + table["calls"]

    def nested(r):
        def step():
            nonlocal total
            total += 1
            return total

        return r["f"] + step()

    def comprehension(r):
        return r["f"] + sum([next(numbers) for _ in range(2)])

    def through(r):
        return helper(r["f"]) + nonlocal_counter(r)

    state = Counting()
    return {
        "iterator": lambda r: r["f"] + next(numbers),
        "loop": lambda r: r["f"] + max(n for n, _ in zip(numbers, "a", strict=False)),
        "dunder": lambda r: r["f"] + numbers.__next__(),
        "generator": lambda r: r["f"] + generator.send(None),
        "random": lambda r: (
            r["f"] + random.Random(len(cache)).random() * 0 + next(numbers)
        ),
        "nonlocal": nonlocal_counter,
        "attribute": attribute,
        "default": default,
        "array": array,
        "quiet array": quiet_array,
        "memo": memo,
        "missing": missing,
        "nested": nested,
        "comprehension": comprehension,
        "through": through,
        "method": state.count,
        "class": state.count_class,
        "list of self": state.append,
        "other method": state.hide,
        "callable": state,
        "partial": functools.partial(lambda n, r: r["f"] + next(n), numbers),
        "setitem": lambda r: r["f"] + (operator.setitem(cache, "n", len(cache)) or 1),
        "ufunc": lambda r: r["f"] + np.add(counts, 1, out=counts)[0],
        "setattr": lambda r: setattr(state, "n", state.n + 1) or r["f"] + state.n,
        "exec": lambda r: exec("n[0] += 1", {"n": counts}) or r["f"] + counts[0],
        "import": lambda r: (
            r["f"] + __import__("itertools").count(next(numbers)).__next__()
        ),
    }


@pytest.mark.parametrize("name", stateful())
def test_a_function_with_state_is_called_for_every_row(name, monkeypatch):
    rows = Dataset.from_tensor_slices(SOURCE)
    data = rows.map(stateful()[name]).batch(25)
    Counting.total = 0
    found = rows_of(data)
    assert _function_of(data.node).obstacle is not None
    one_by_one(monkeypatch)
    Counting.total = 0
    assert found == rows_of(rows.map(stateful()[name]).batch(25))


def outside_world(path: Path) -> dict[str, Any]:
    """Functions that read more than their row, which is the same while a test runs."""

    def imports(r):
        import time

        return r["f"] + 0 * time.time()

    def opens(r):
        with open(path) as file:
            return r["f"] + len(file.read())

    return {
        "clock": lambda r: r["f"] + 0 * time.monotonic(),
        "now": lambda r: r["f"] + 0 * np.datetime64("now").astype(int),
        "file": lambda r: r["f"] + len(path.read_bytes()),
        "open": opens,
        "array file": lambda r: r["f"] + len(np.fromfile(path, np.uint8)),
        "environment": lambda r: r["f"] + len(os.environ),
        "import": imports,
        "random": lambda r: r["f"] + 0 * random.gauss(0, 1),
        "numpy random": lambda r: r["f"] + 0 * np.random.default_rng(0).normal(),
        "hash": lambda r: r["f"] + 0 * hash("a"),
        "identity": lambda r: r["f"] + 0 * id(r),
        "frame": lambda r: r["f"] + 0 * sys._getframe().f_lineno,
        "thread": lambda r: r["f"] + 0 * threading.get_ident(),
        "print": lambda r: print("row", end="") or r["f"],
        "log": lambda r: logging.getLogger("x").debug("row") or r["f"],
    }


@pytest.mark.parametrize("name", outside_world(Path()))
def test_a_function_that_reads_more_than_its_row_is_called_for_each(name, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    data = Dataset.from_tensor_slices(SOURCE).map(outside_world(path)[name]).batch(50)
    assert len(list(data)) == 4
    assert _function_of(data.node).obstacle is not None


def handlers() -> dict[str, Any]:
    """Functions that would handle what only a block raises."""

    def joined(r):
        try:
            return r["f"], len(b"-".join([r["s"], b"x"])) > 7
        except Exception:
            return r["f"], False

    def found(r):
        try:
            return r["f"], b"word3 word4".find(r["s"])
        except (TypeError, ValueError):
            return r["f"], -1

    def bare(r):
        try:
            return r["f"], r["s"].decode()
        except:  # noqa: E722
            return r["f"], ""

    def bad_row(r):
        try:
            return r["f"], r["s"].replace(b"word", b"")[5]
        except IndexError:
            return r["f"], 0

    def in_helper(r):
        return r["f"], _parse_or_zero(r["s"])

    def finally_(r):
        value = 0
        try:
            value = {b"word3": 1}[r["s"]]
        finally:
            return r["f"], value  # noqa: B012

    def suppressed(r):
        value = 0
        with contextlib.suppress(TypeError):
            value = b"word3".find(r["s"])
        return r["f"], value

    names = [joined, found, bare, bad_row, in_helper, finally_, suppressed]
    return {function.__name__: function for function in names}


def _parse_or_zero(text):
    try:
        return int(text)
    except ValueError:
        return 0


@pytest.mark.parametrize("name", handlers())
@pytest.mark.filterwarnings("ignore:.*'return' in a 'finally':SyntaxWarning")
def test_a_handler_never_runs_for_a_block(name, monkeypatch):
    words = {**SOURCE, "s": [*["word"] * 150, *SOURCE["s"][150:]]}

    def make():
        return Dataset.from_tensor_slices(words).map(handlers()[name]).batch(32)

    check_same(make, monkeypatch, blocks=False)


def test_a_row_of_bad_text_is_handled_for_that_row_only(monkeypatch):
    def parse(line):
        try:
            return decode_csv(line, [[0]])[0]
        except:  # noqa: E722
            return np.int32(-1)

    lines = [*["1"] * 40, "bad", *["2"] * 40]

    def make():
        return Dataset.from_tensor_slices(lines).map(parse).batch(27)

    found = check_same(make, monkeypatch, blocks=False)
    assert len(found) == 3


def harmless() -> dict[str, Any]:
    """Functions that refer to much, and yet depend on their row only."""
    scale, state = 3.0, Counting()
    weights = np.arange(3, dtype=np.float32)

    def twice(function):
        @functools.wraps(function)
        def call_twice(x):
            return function(function(x))

        return call_twice

    def recursive(x, n=2):
        return x if n == 0 else recursive(x * 2, n - 1)

    def local_class(r):
        class Pair:
            def __init__(self, x):
                self.x = x

        return Pair(r["f"]).x * 2

    def local_state(r):
        values, seen = [], {}
        for key in ("f", "d"):
            seen[key] = len(values)
            values.append(r[key] + seen[key])
        return tuple(values)

    def imports(r):
        import numpy

        return numpy.maximum(r["f"], 0)

    return {
        "closure": lambda r: r["f"] * scale + weights[1],
        "decorated": lambda r: twice(helper)(r["f"]),
        "recursive": lambda r: recursive(r["f"]),
        "method": state.scale,
        "partial": functools.partial(lambda by, r: r["f"] * by, 2),
        "class": local_class,
        "lists": local_state,
        "import": imports,
        "weights": lambda r: r["v"] @ weights,
        "norm": lambda r: np.linalg.norm(r["v"]),
        "constant array": lambda r: (r["f"], TABLE, weights),
        "checks": lambda r: r["f"] if len(TABLE) > 3 and scale == 3 else None,
    }


@pytest.mark.parametrize("name", harmless())
def test_what_depends_on_its_row_only_is_called_for_blocks(name, monkeypatch):
    made = harmless()[name]
    check_same(lambda: Dataset.from_tensor_slices(SOURCE).map(made), monkeypatch)


def test_a_constant_of_one_map_is_the_same_object_in_the_next(monkeypatch):
    def make():
        data = Dataset.from_tensor_slices(SOURCE).map(lambda r: (r["f"], True))
        return data.map(lambda x, flag: (x * (2 if flag is True else 3), flag))

    check_same(make, monkeypatch)


def test_variables_are_read_again_for_every_block():
    scale, names = np.ones(1), ["a"]

    def function(x):
        return dict.fromkeys(names, x * scale[0] * OFFSET)

    data = Dataset.from_tensor_slices(np.arange(300.0)).map(function)
    batches = iter(data.batch(100))
    assert next(batches)["a"][4] == 1
    scale[0] = 2
    assert next(batches)["a"][0] == 50
    names[0] = "b"
    assert list(next(batches)) == ["b"]
    assert data.node.function.obstacle is None


def test_a_dataset_that_was_read_can_be_pickled():
    data = Dataset.from_tensor_slices(text_lines()).map(parse_line)
    expected = rows_of(data)
    assert rows_of(pickle.loads(pickle.dumps(data))) == expected


def test_a_parser_with_its_arguments_is_called_for_blocks(monkeypatch):
    parse = functools.partial(parse_single_example, features=FEATURES)
    check_same(lambda: Dataset.from_tensor_slices(records()).map(parse), monkeypatch)


@pytest.mark.parametrize("threads", [None, 2])
def test_lines_are_parsed_in_blocks(threads, monkeypatch):
    def make():
        lines = Dataset.from_tensor_slices(text_lines())
        return lines.map(parse_line, num_parallel_calls=threads).repeat(2).batch(64)

    found = rows_of(make())
    one_by_one(monkeypatch)
    assert found == rows_of(make())


VERBS = {
    "shuffle": lambda d: d.shuffle(100, seed=4),
    "take": lambda d: d.skip(3).take(200).shard(2, 1),
    "filter": lambda d: d.filter(lambda features, label: label > 0),
    "filter by row": lambda d: d.filter(lambda features, label: bool(label > 0)),
    "prefetch": lambda d: d.prefetch(50),
    "cache": lambda d: d.cache().repeat(2),
    "map": lambda d: d.map(lambda f, y: ({**f, "half": f["score"] / 2}, y == 1)),
    "map by row": lambda d: d.map(lambda f, y: (f, float(y))),
    "enumerate": lambda d: d.enumerate(),
    "zip": lambda d: Dataset.zip((d, Dataset.range(250))),
    "with_label": lambda d: d.map(lambda f, y: {**f, "y": y}).with_label("y"),
    "map_blocks": lambda d: d.map_blocks(lambda f, y: (f["age"] + 1, y)),
    "ignore_errors": lambda d: d.ignore_errors(),
    "concatenate": lambda d: d.concatenate(d.take(20)),
    "interleave": lambda d: Dataset.range(3).interleave(lambda i: d.take(40)),
    "window": lambda d: d.window(5).flat_map(lambda f, y: y),
    "mix": lambda d: Dataset.sample_from_datasets([d, d], seed=3),
    "unique": lambda d: d.map(lambda f, y: f["age"]).unique(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("batched", [False, True])
def test_every_verb_behind_a_map_gives_the_same(verb, batched, monkeypatch):
    def make():
        data = VERBS[verb](Dataset.from_tensor_slices(text_lines()).map(parse_line))
        return data.batch(16) if batched else data

    found = rows_of(make().iterator(seed=5))
    one_by_one(monkeypatch)
    assert found == rows_of(make().iterator(seed=5))


@pytest.mark.parametrize(
    "verb", sorted(set(VERBS) - {"map_blocks", "window", "unique"})
)
def test_positions_resume_in_either_way(verb, monkeypatch):
    def make():
        data = VERBS[verb](Dataset.from_tensor_slices(text_lines()).map(parse_line))
        return data.batch(16).iterator(seed=5)

    iterator = make()
    expected, states = [], []
    for element in iterator:
        expected.append(_shown(element))
        states.append(iterator.get_state())
    again = make()
    again.set_state(json.loads(json.dumps(states[4])))
    assert rows_of(again) == expected[5:]
    with monkeypatch.context() as patch:  # saved with blocks, resumed without
        one_by_one(patch)
        rows = make()
        rows.set_state(states[4])
        assert rows_of(rows) == expected[5:]
        before = make()
        for _ in range(7):
            next(before)
        state = before.get_state()
    back = make()  # saved without blocks, resumed with them
    back.set_state(state)
    assert rows_of(back) == expected[7:]


FEATURES = {
    "x": FixedLenFeature([], "float32"),
    "pair": FixedLenFeature([2], "int64", [7, 8]),
    "s": FixedLenFeature([], "string", "none"),
    "words": FixedLenFeature([2], "string"),
    "tags": VarLenFeature("string"),
    "ids": VarLenFeature("int64"),
    "at": SparseFeature("index", "value", "float32", 10),
}


def records(n: int = 150) -> Strings:
    made = []
    for i in range(n):
        one: dict[str, Any] = {"x": [i / 3], "words": ["a", f"b{i}"]}
        one["tags"] = [f"t{k}" for k in range(i % 4)]
        one["index"], one["value"] = [1, 3 + i % 5], [1.0, float(i)]
        if i % 3:
            one |= {"pair": [i, -i], "s": [f"s{i}"]}
        if i % 5:
            one["ids"] = list(range(i % 7))
        kinds = {k: v for k, v in one.items() if v}
        made.append(ex.input.Example.of(kinds).serialize())
    return Strings.of(made)


@pytest.mark.parametrize("shuffled", [False, True])
def test_records_are_parsed_in_blocks(shuffled, monkeypatch):
    def parse(record):
        features = parse_single_example(record, FEATURES)
        return features, features.pop("x") * 2

    def make():
        data = Dataset.from_tensor_slices(records()).map(parse)
        return data.shuffle(40, seed=1) if shuffled else data.batch(16)

    check_same(make, monkeypatch)


def test_rows_of_any_length_are_parsed_one_by_one(monkeypatch):
    steps = {"ids": FixedLenSequenceFeature([], "int64", allow_missing=True)}

    def make():
        data = Dataset.from_tensor_slices(records())
        return data.map(lambda r: parse_single_example(r, steps)).padded_batch(8)

    check_same(make, monkeypatch, blocks=False)


def test_padded_batch_takes_blocks(monkeypatch):
    check_same(
        lambda: (
            Dataset.from_tensor_slices(SOURCE)
            .map(lambda r: (r["v"], r["s"], r["f"]))
            .padded_batch(16, ((5,), (), ()))
        ),
        monkeypatch,
    )


def test_a_bad_row_raises_what_it_raises_alone(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.csv"
    good = ["1,2.5,x,0"] * 70
    path.write_text("\n".join([*good, "1,oops,x,0", *good]) + "\n")

    def make():
        return TextLineDataset(path).map(parse_line).batch(16)

    def message() -> tuple[int, str]:
        given: list[Any] = []
        with pytest.raises(InputError) as caught:
            given.extend(iter(make()))
        return len(given), str(caught.value)

    found = message()
    assert "oops" in found[1]
    rows = TextLineDataset(path).map(parse_line)
    behind = {
        "batch": make().ignore_errors(),
        "map": rows.ignore_errors().batch(16),
        "prefetch": rows.prefetch(99).ignore_errors(),
        "cache": rows.cache().ignore_errors(),
    }
    ignored = {name: rows_of(data) for name, data in behind.items()}
    assert {len(ignored["prefetch"]), len(ignored["cache"])} == {140}
    one_by_one(monkeypatch)
    assert found == message()
    assert ignored == {name: rows_of(data) for name, data in behind.items()}


def test_a_bad_record_names_its_file(tmp_path: Path):
    path = str(tmp_path / "a.tfrecord")
    with ex.input.TFRecordWriter(path) as writer:
        for record in records(40).tolist():
            writer.write(record)
        writer.write(b"\xff\xff")
    features = {"x": FixedLenFeature([], "float32")}
    data = TFRecordDataset(path).map(lambda r: parse_single_example(r, features))
    with pytest.raises(ex.input.ExampleError, match=r"a\.tfrecord.*record 40"):
        list(data.batch(8))


def test_blocks_go_on_after_a_bad_row():
    lines = [*["1,2.5,x,0"] * 50, "bad", *["1,2.5,x,0"] * 50]
    data = Dataset.from_tensor_slices(lines).map(parse_line).ignore_errors()
    assert sum(len(label) for _, label in data.batch(10)) == 100
    assert _function_of(data.node).obstacle is None


def test_a_batch_can_be_written_to():
    source = np.arange(64.0)
    data = Dataset.from_tensor_slices(source).map(lambda x: (x, x, x + 1)).cache()
    for _ in range(2):
        for first, second, third in data.batch(16):
            expected = second.copy()
            first += 100
            third += 100
            assert (second == expected).all()
    assert source[1] == 1
    assert next(iter(data.batch(2)))[0].tolist() == [0, 1]


def test_waiting_for_input_names_the_verb_to_move(caplog):
    data = Dataset.from_tensor_slices(np.arange(100)).map(_branch)
    iterator = iter(data.batch(10))
    next(iterator)
    assert iterator.advice == (
        "map() calls _branch for every row, because it decides by a value. Move "
        "batch() before map() and let the function process whole columns."
    )
    context = ex.hooks.RunContext(step=0, input_advice=lambda: iterator.advice)
    times = iter([0.0, 1.0, 2.0])
    hook = ex.hooks.StepCounterHook(every_n_steps=1, clock=lambda: next(times))
    hook.begin(context)
    with caplog.at_level(logging.INFO):
        for step in (1, 2):
            context.step, context.input_wait = step, float(step)
            hook.after_run(context, {})
    assert "waiting for input). map() calls _branch" in caplog.text


def _branch(x):
    return x if x > 3 else 0 * x


@pytest.mark.parametrize("threads", [None, 2])
def test_reading_does_not_change_the_recipe(threads):
    data = Dataset.from_tensor_slices(text_lines()).map(parse_line, threads).batch(9)
    before = iter(data).recipe
    list(data)
    assert iter(data).recipe == before


def test_values_are_the_same_only_with_equal_types_and_bits():
    assert is_same((1.0, {"a": np.float32(2)}), (1.0, {"a": np.float32(2)}))
    assert is_same(np.array([np.nan]), np.array([np.nan]))
    assert not is_same(0.0, -0.0)
    assert not is_same(1, True)
    assert not is_same(np.float32(1), np.float64(1))
    assert not is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Loud(enum.Enum):
    RED = 1

    def __hash__(self):
        return counted.append(self) or 1


class Unbound:
    """A proxy of an object that is there only at some times."""

    @property
    def __class__(self):
        raise RuntimeError("there is no request")

    def __getattr__(self, name):
        raise RuntimeError("there is no request")


def _nest(depth: int) -> list[Any]:
    outer: list[Any] = []
    for _ in range(depth):
        outer = [outer]
    return outer


counted: list[Any] = []
UNBOUND, NESTED = Unbound(), _nest(5000)
HOLIDAYS = {datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)}
VALUES = {
    "dates": HOLIDAYS,
    "times": frozenset((datetime.timedelta(1), datetime.time(3, tzinfo=datetime.UTC))),
    "members": {Colour.RED, (Colour.BLUE, 2)},
    "numbers": {decimal.Decimal("1.5"): 1, uuid.UUID(int=5): 2},
    "pattern": {re.compile("a+"): 1},
}
OTHER_VALUES = {
    "objects": {object()},
    "pairs": {("a", object())},
    "frozen": frozenset((object(),)),
    "functions": {helper: 1},
    "nested functions": {(1, helper): 1},
    "methods": {Loud.RED},
}


def _count_values(values: Any, r: Any) -> Any:
    return r["f"] * len(values)


@pytest.mark.parametrize("name", VALUES)
def test_values_of_the_standard_library_are_constants(name, monkeypatch):
    fn = functools.partial(_count_values, VALUES[name])
    data = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: data.map(fn).batch(50), monkeypatch)
    assert len(list(data.map(fn).prefetch(4))) == 200


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_sets_and_keys_of_other_objects_are_not_copied(name, monkeypatch):
    fn = functools.partial(_count_values, OTHER_VALUES[name])
    data = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: data.map(fn).batch(50), monkeypatch, blocks=False)
    for verb in (Dataset.cache, Dataset.ignore_errors, lambda d: d.prefetch(4)):
        assert len(list(verb(data.map(fn)))) == 200
    assert len(list(data.map(fn, num_parallel_calls=2))) == 200


def _name_unbound(r):
    return r["f"] * 2 if UNBOUND is not None else 0


def _name_nested(r):
    return r["f"] * 2 if NESTED is not None else 0


@pytest.mark.parametrize("fn", [_name_unbound, _name_nested])
def test_a_function_that_cannot_be_copied_is_called_by_row(fn, monkeypatch):
    data = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: data.map(fn).batch(50), monkeypatch, blocks=False)
    assert len(list(data.map(fn).prefetch(4))) == 200
    assert len(list(data.map(fn, num_parallel_calls=2).ignore_errors())) == 200


def test_a_date_does_not_give_the_time():
    day = datetime.datetime(2020, 1, 1)
    rows = Dataset.from_tensor_slices(SOURCE)
    data = rows.map(lambda r: r["f"] * day.now().microsecond)
    assert len(list(data.batch(50))) == 4
    assert data.node.function.obstacle == "uses the time"


class Named:
    """An object whose attributes are named like those of many objects."""

    def __init__(self, name: str) -> None:
        self._name, self._object, self._sandbox, self._module = name, 2.0, 3.0, 4.0

    def scale(self, r):
        return {self._name: r["f"] * self._object * self._sandbox - self._module}


def test_an_object_may_have_attributes_of_any_name(monkeypatch):
    data = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: data.map(Named("a").scale).batch(50), monkeypatch)


def test_a_function_with_many_constants_is_copied_once(monkeypatch):
    pairs = [(i, i + 1) for i in range(2000)]
    copied = []
    first = Sandbox.__init__

    def count(self, *args, **options):
        copied.append(self)
        first(self, *args, **options)

    monkeypatch.setattr(Sandbox, "__init__", count)
    data = Dataset.from_tensor_slices(np.arange(400.0)).map(lambda x: x * pairs[3][1])
    assert len(list(data.batch(20))) == 20
    assert data.node.function.obstacle is None
    assert len(copied) <= 3  # for a guess, the first block, and all others


@functools.cache
def read_factor():
    return 2.0


def _ask_again(r):
    while True:
        try:
            return r["f"] * read_factor()
        except:  # noqa: E722
            continue


def _ask_again_by_name(r):
    while True:
        try:
            return r["f"] * read_factor()
        except (ValueError, BaseException):
            continue


def _ask_again_at_last(r):
    value = None
    while value is None:
        try:
            value = r["f"] * read_factor()
        finally:
            continue  # noqa: B012
    return value


def _ask_again_in_block(r):
    class Quiet:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return True

    while True:
        with Quiet():
            return r["f"] * read_factor()


def _ask_in_helper(r):
    return _ask_again(r)


class Asking:
    def ask(self, r):
        return self.ask_again(r)

    def ask_again(self, r):
        while True:
            try:
                return r["f"] * read_factor()
            except:  # noqa: E722
                continue


REPEATING = [_ask_again, _ask_again_by_name, _ask_again_at_last, _ask_again_in_block]


@pytest.mark.parametrize("fn", [*REPEATING, _ask_in_helper, Asking().ask])
def test_a_loop_that_tries_again_ends(fn, monkeypatch):
    data = Dataset.from_tensor_slices(SOURCE).map(fn)
    assert len(list(data.batch(50))) == 4
    assert data.node.function.obstacle == "may handle all exceptions"


def _release_at_last(r):
    try:
        value = r["f"] * 2
    finally:
        scale = 3.0
    return value * scale


def _name_an_exception(r):
    """Return what has no handler: the word except: is in a text."""
    try:
        return r["f"] * 2
    except (ValueError, KeyError):
        return 0.0


@pytest.mark.parametrize("fn", [_release_at_last, _name_an_exception])
def test_other_handlers_do_not_end_blocks(fn, monkeypatch):
    data = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: data.map(fn).batch(50), monkeypatch)


def test_a_lambda_in_a_chain_is_called_for_blocks(monkeypatch):
    def make():
        return (
            Dataset.from_tensor_slices(SOURCE)
            .map(
                lambda r: r["f"]
                * 2
                + 1
            )
            .batch(50)
        )  # fmt: skip

    check_same(make, monkeypatch)


def test_a_function_without_source_is_called_by_row(monkeypatch):
    names: dict[str, Any] = {}
    exec("def double(r):\n    return r['f'] * 2\n", names)
    data = Dataset.from_tensor_slices(SOURCE)
    make = lambda: data.map(names["double"]).batch(50)  # noqa: E731
    check_same(make, monkeypatch, blocks=False)


class Point(NamedTuple):
    x: Any
    weight: float

    @staticmethod
    def weigh(x):
        counted.append(x)
        return Point(x, float(len(counted)))

    @classmethod
    def make(cls, x):
        counted.append(x)
        return cls(x, float(len(counted)))


@pytest.mark.parametrize("name", ["weigh", "make"])
def test_methods_of_a_named_tuple_are_not_trusted(name):
    counted.clear()
    data = Dataset.from_tensor_slices(SOURCE).map(
        lambda r: getattr(Point, name)(r["f"])
    )
    weights = np.concatenate([batch.weight for batch in data.batch(50)])
    assert weights.tolist() == list(range(1, 201))


def test_large_arrays_are_not_copied(monkeypatch):
    table = np.zeros(1_000_000, np.float32)
    rows = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: rows.map(lambda r: r["f"] + table[3]).batch(50), monkeypatch)
    tracemalloc.start()
    list(rows.map(lambda r: r["f"] + table[3]).batch(50))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < table.nbytes / 2


def test_a_write_to_a_large_array_happens_once_for_a_row():
    table = np.zeros(1_000_000, np.float32)

    def count(r):
        table[0] += 1
        return r["f"] * 0 + table[0]

    data = Dataset.from_tensor_slices(SOURCE).map(count)
    assert np.concatenate(list(data.batch(50))).tolist() == list(range(1, 201))


LARGE = {
    "dict": {f"word{i}": i for i in range(20_000)},
    "tuple": tuple(range(20_000)),
    "frozenset": frozenset(range(20_000)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_tables_of_constants_can_be_used(name, monkeypatch):
    fn = functools.partial(_count_values, LARGE[name])
    data = Dataset.from_tensor_slices(SOURCE)
    check_same(lambda: data.map(fn).batch(50), monkeypatch)


def test_a_large_dict_is_changed_once_for_a_row():
    words = dict(LARGE["dict"])

    def add(r):
        return r["f"] * 0 + words.setdefault(len(words), len(words))

    data = Dataset.from_tensor_slices(SOURCE).map(add)
    found = np.concatenate(list(data.batch(50)))
    assert found.tolist() == list(range(20_000, 20_200))
