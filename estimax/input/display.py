"""The text of a dataset in `repr`: its verbs, element spec and cardinality.

    <Dataset from_tensor_slices > shuffle(buffer_size=100) > batch(batch_size=32)
     elements: {'age': int64 [B], 'city': string [B]}
     cardinality: 4>

Nothing is read and no user function is called. The line of elements is left out after
a verb whose result is unknown without running it, such as `map`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimax.core.display import html_table, html_text
from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.iterator import DatasetIterator
from estimax.input.ops.batching import Filter, MapBlocks, StackedBatch
from estimax.input.ops.caching import Cache
from estimax.input.ops.ignoring import IgnoreErrors
from estimax.input.ops.options import WithOptions
from estimax.input.ops.parallel_map import Prefetch
from estimax.input.ops.selection import Repeat, Shard, Skip, Take
from estimax.input.ops.sharding import (
    BATCHING,
    INFINITE,
    UNKNOWN,
    cardinality_of,
    rebuild_chain,
)
from estimax.input.ops.shuffle import WindowShuffle
from estimax.input.sources.arrays import Range, Slices
from estimax.input.streams.columns import Ragged
from estimax.input.streams.stream import DatasetNode, VerbNode, chain_of
from estimax.input.streams.structure import Structure, call, map_leaves, named_leaves

# Verbs that return elements as they are.
_SAME_SPEC = (
    Cache,
    Filter,
    IgnoreErrors,
    Prefetch,
    Repeat,
    Shard,
    Skip,
    Take,
    WindowShuffle,
    WithOptions,
)
# Fields whose parameter in `Dataset` has another name.
_PARAMETERS = {"threads": "num_parallel_calls", "blocks": "filter_blocks"}
_MOST_CHARACTERS = 300
_MOST_KEYS = 8
_MOST_ROWS = 5
# Verbs that are left out to show the first rows.
_NOT_SHOWN = (Cache, Prefetch, WindowShuffle)


def dataset_repr(node: DatasetNode) -> str:
    """Return one to three lines that describe a chain of nodes."""
    chain = chain_of(node)
    lines = [" > ".join(_stage(one) for one in chain if one.name)]
    spec = _spec(chain)
    if spec is not None:
        lines.append(f"elements: {_spec_text(spec)}")
    count = cardinality_of(node)
    if count != UNKNOWN:
        lines.append(f"cardinality: {'infinite' if count == INFINITE else count}")
    return "<Dataset " + "\n ".join(_cut(line) for line in lines) + ">"


def _stage(node: DatasetNode) -> str:
    """Return the name of a node with the arguments that are not defaults."""
    if not isinstance(node, VerbNode):
        return node.name
    hidden = {"name", "columnar", "is_ours", "at_once"}
    if node.name == "flat_map":  # an interleave with fixed arguments
        hidden |= {"cycle_length", "block_length"}
    arguments = [
        f"{_PARAMETERS.get(field.name, field.name)}={value!r}"
        for field in dataclasses.fields(node)
        if field.name not in hidden
        and isinstance(value := getattr(node, field.name), bool | int | float | str)
        and value != field.default
    ]
    return f"{node.name}({', '.join(arguments)})" if arguments else node.name


@dataclasses.dataclass(frozen=True)
class _LeafSpec:
    """The dtype and shape of one value of an element."""

    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        shape = f" [{', '.join(map(str, self.shape))}]" if self.shape else ""
        return self.dtype + shape


def _spec(chain: list[DatasetNode]) -> Structure:
    """Return a structure of `_LeafSpec`, or None if it is not known."""
    first, *rest = chain
    spec: Structure
    if isinstance(first, Range):
        spec = _LeafSpec("int64", ())
    elif isinstance(first, Slices):
        spec = map_leaves(_leaf_spec, first.block.tree)
    else:
        return None
    for node in rest:
        if isinstance(node, StackedBatch):
            spec = map_leaves(_add_batch_axis, spec)
        elif isinstance(node, MapBlocks) and node.is_ours:
            try:
                spec = call(node.fn, spec)  # only moves columns, whatever they hold
            except InputError:  # reading will raise it
                return None
        elif not isinstance(node, _SAME_SPEC):
            return None
    return spec


def _leaf_spec(column: Any) -> _LeafSpec:
    """Return the spec of one row of a column."""
    if isinstance(column, Sparse):
        return _LeafSpec(f"sparse {_dtype(column.values)}", column.dense_shape[1:])
    if isinstance(column, Ragged):
        return _LeafSpec(f"ragged {_dtype(column.values)}", ())
    return _LeafSpec(_dtype(column), column.shape[1:])


def _dtype(values: Any) -> str:
    return "string" if isinstance(values, Strings) else str(values.dtype)


def _add_batch_axis(leaf: _LeafSpec) -> _LeafSpec:
    return _LeafSpec(leaf.dtype, ("B", *leaf.shape))


def _spec_text(spec: Structure) -> str:
    if isinstance(spec, Mapping):
        shown = [f"{k!r}: {_spec_text(v)}" for k, v in list(spec.items())[:_MOST_KEYS]]
        more = len(spec) - len(shown)
        return "{" + ", ".join([*shown, *([f"… {more} more"] if more else [])]) + "}"
    if isinstance(spec, tuple):
        return "(" + ", ".join(map(_spec_text, spec)) + ")"
    return str(spec)


def _cut(line: str) -> str:
    if len(line) <= _MOST_CHARACTERS:
        return line
    return line[: _MOST_CHARACTERS - 1] + "…"


def dataset_html(node: DatasetNode) -> str:
    """Return the text of a dataset and its first rows as a table, for a notebook.

    The rows are read without shuffling, caching and prefetching, which would read many
    more rows, or write files.
    """
    text = dataset_repr(node)
    try:
        rows = _first_rows(node)
    # A notebook that shows a variable must not fail because its files are missing.
    except Exception as error:
        return html_text(f"{text}\n{type(error).__name__}: {error}")
    if not rows:
        return html_text(f"{text}\nno rows")
    headings = [name or "element" for name in rows[0]]
    cells = [[_cut(_cell(value)) for value in row.values()] for row in rows]
    return html_table(headings, cells, title=text)


def _first_rows(node: DatasetNode) -> list[dict[str, Any]]:
    """Return the first rows by the name of each value; of batches, the first rows."""
    chain = chain_of(node)
    first, *rest = (one for one in chain if not isinstance(one, _NOT_SHOWN))
    has_batches = any(isinstance(one, BATCHING) for one in rest)
    with DatasetIterator(rebuild_chain(first, rest), 0, 0) as iterator:
        elements = list(itertools.islice(iterator, 1 if has_batches else _MOST_ROWS))
    rows = [_values_by_name(element) for element in elements]
    if not has_batches:
        return rows
    return [
        {name: value[row] for name, value in batch.items()}
        for batch in rows
        for row in range(min(_MOST_ROWS, *map(len, batch.values())))
    ]


def _values_by_name(element: Structure) -> dict[str, Any]:
    """Return the values of an element by the names of features and of the label."""
    if isinstance(element, tuple) and len(element) == 2:
        features, label = element
        if isinstance(features, Mapping) and "label" not in features:
            return _values_by_name(features) | dict(named_leaves(label, "label"))
    if isinstance(element, Mapping):
        return {
            name: value
            for key, inner in element.items()
            for name, value in named_leaves(inner, str(key))
        }
    return dict(named_leaves(element))


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        return str(value.tolist())
    return str(value)
