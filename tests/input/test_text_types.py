"""A single text is `bytes` in every function and loop of a user.

The table goes through all sources and verbs: before a `map`, after it, and in a loop.
"""

import numpy as np
import pytest

from estimax.formats.records import write_records
from estimax.input import (
    CsvDataset,
    Dataset,
    FixedLenFeature,
    TextLineDataset,
    TFRecordDataset,
    csv_files,
    json_files,
    parse_single_example,
)
from estimax.input import Example as OurExample

WORDS = ["a", "b", "c", "d"]


def _generator(folder):
    return Dataset.from_generator(lambda: iter(WORDS))


def _typed_generator(folder):
    return Dataset.from_generator(lambda: iter(WORDS), output_types="string")


def _lines(folder):
    (folder / "a.txt").write_text("\n".join(WORDS))
    return TextLineDataset(str(folder / "a.txt"))


def _csv(folder):
    (folder / "a.csv").write_text("\n".join(["t", *WORDS]))
    return csv_files(str(folder / "a.csv"), dtypes={"t": str})


def _csv_tuples(folder):
    (folder / "a.csv").write_text("\n".join(f"{word},1" for word in WORDS))
    return CsvDataset(str(folder / "a.csv"), ["", 0])


def _json(folder):
    (folder / "a.jsonl").write_text("\n".join(f'{{"t": "{word}"}}' for word in WORDS))
    return json_files(folder / "a.jsonl", {"t": "string"})


def _records(folder):
    write_records(folder / "a", [word.encode() for word in WORDS])
    return TFRecordDataset(str(folder / "a"))


def _examples(folder):
    examples = [OurExample.of({"t": word}).serialize() for word in WORDS]
    write_records(folder / "a", examples)
    spec = {"t": FixedLenFeature([], "string")}
    return TFRecordDataset(str(folder / "a")).map(
        lambda record: parse_single_example(record, spec)
    )


SOURCES = {
    "slices": lambda folder: Dataset.from_tensor_slices(WORDS),
    "slices of NumPy": lambda folder: Dataset.from_tensor_slices(np.array(WORDS)),
    "slices of objects": lambda folder: Dataset.from_tensor_slices(
        np.array(WORDS, object)
    ),
    "dict": lambda folder: Dataset.from_tensor_slices({"t": WORDS, "n": [1, 2, 3, 4]}),
    "tuple": lambda folder: Dataset.from_tensor_slices((WORDS, [1, 2, 3, 4])),
    "nested": lambda folder: Dataset.from_tensor_slices(({"t": WORDS}, WORDS)),
    "tensors": lambda folder: Dataset.from_tensors("a"),
    "tensors of NumPy": lambda folder: Dataset.from_tensors(np.str_("a")),
    "tensors in a dict": lambda folder: Dataset.from_tensors({"t": b"a"}),
    "generator": _generator,
    "typed generator": _typed_generator,
    "lines": _lines,
    "CSV": _csv,
    "CSV tuples": _csv_tuples,
    "JSON": _json,
    "records": _records,
    "examples": _examples,
}

VERBS = {
    "none": lambda data: data,
    "map": lambda data: data.map(_same),
    "map twice": lambda data: data.map(_same).map(_same),
    "map in threads": lambda data: data.map(_same, num_parallel_calls=2),
    "map by row": lambda data: data.map(_by_row),
    "map to a tuple": lambda data: data.map(lambda *parts: (parts, 1)),
    "map to a dict": lambda data: data.map(lambda *parts: {"x": _same(*parts)}),
    "map to a new text": lambda data: data.map(lambda *parts: "new"),
    "zip": lambda data: Dataset.zip((data, data)),
    "enumerate": lambda data: data.enumerate(),
    "interleave": lambda data: data.interleave(
        lambda *parts: Dataset.from_tensors(_same(*parts)), cycle_length=2
    ),
    "flat_map": lambda data: data.flat_map(
        lambda *parts: Dataset.from_tensors(_same(*parts))
    ),
    "filter": lambda data: data.filter(lambda *parts: True),
    "concatenate": lambda data: data.concatenate(data),
    "shuffle": lambda data: data.shuffle(4, seed=1),
    "repeat": lambda data: data.repeat(2),
    "take and skip": lambda data: data.repeat(2).skip(1).take(2),
    "cache": lambda data: data.cache(),
    "prefetch": lambda data: data.prefetch(1),
    "batch and unbatch": lambda data: data.batch(2).unbatch(),
    "shard": lambda data: data.repeat(2).shard(2, 0),
    "window": lambda data: data.window(2).flat_map(_of_window),
    "scan": lambda data: data.scan(0, lambda n, part: (n + 1, part)),
    "ignore_errors": lambda data: data.ignore_errors(),
}


def _same(*parts):
    return parts if len(parts) > 1 else parts[0]


def _by_row(*parts):
    list(map(id, parts))  # what a block of rows cannot do
    return _same(*parts)


def _of_window(*parts):
    first = parts[0]
    while not hasattr(first, "batch"):
        first = next(iter(first.values() if isinstance(first, dict) else first))
    return first


def _leaves(value):
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def _texts(parts):
    """The types of all parts that are no numbers."""
    return {type(leaf) for leaf in _leaves(parts) if not hasattr(leaf, "dtype")} - {int}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_single_text_is_bytes(tmp_path, source, verb):
    data = VERBS[verb](SOURCES[source](tmp_path))
    seen = []

    def look(*parts):
        seen.append(_texts(parts))
        return parts

    found = list(data.map(look))
    assert seen
    assert all(types == {bytes} for types in seen)
    assert all(_texts(element) == {bytes} for element in found)
    assert all(_texts(element) == {bytes} for element in data)
