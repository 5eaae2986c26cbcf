"""A map that runs in blocks of rows gives the results of calling it row by row."""

from __future__ import annotations

import collections
import json
import logging
import operator
from pathlib import Path
from typing import Any

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


def test_rows_that_differ_from_their_block_end_the_blocks(monkeypatch):
    # `type` tells a block from a row, which no operation of the value can notice.
    def by_type(x):
        return x * (2 if isinstance(x, np.generic) else 3)

    data = Dataset.from_tensor_slices(np.arange(50)).map(by_type)
    assert next(iter(data.batch(50)))[10] == 20
    assert "other results" in str(data.node.function.obstacle)


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
