"""Models of LightGBM in its text format: read, and joined.

    forest = parse(booster.model_to_string())
    forest.trees[0].threshold        # float64, as LightGBM compares
    text = join([first, more])       # the trees of both, in this order

Only what a prediction needs is read; LightGBM is not imported. The format is version 4,
which LightGBM 3.0 and later read and write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError

# Bits of `decision_type`.
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
MISSING_NONE, MISSING_ZERO, MISSING_NAN = 0, 1, 2


@dataclass(frozen=True)
class Tree:
    """One tree of S splits and S + 1 leaves; a child c < 0 is the leaf ~c.

    Attributes:
      feature: The feature of each split, int32 [S].
      threshold: Rows with a value of at most this go left, float64 [S].
      is_categorical: Whether a split asks if the id is in a set, bool [S].
      default_left: Whether missing values go left, bool [S].
      missing: Which values are missing: `MISSING_NONE`, `_ZERO` or `_NAN`, int32 [S].
      left: The left child of each split, int32 [S].
      right: The right child of each split, int32 [S].
      value: The value of each leaf, float64 [S + 1].
      left_ids: For each categorical split, the ids that go left; None for others.
      gain: How much each split lowered the loss, float64 [S].
      count: The number of training rows at each split, int64 [S].
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    is_categorical: NDArray[np.bool_]
    default_left: NDArray[np.bool_]
    missing: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    left_ids: tuple[NDArray[np.int64] | None, ...]
    gain: NDArray[np.float64]
    count: NDArray[np.int64]


@dataclass(frozen=True)
class Forest:
    """The trees of a model; tree i is of output i % `outputs`.

    Attributes:
      trees: The trees in the order of training.
      outputs: The number of raw scores of a row: 1, or the number of classes.
      is_average: Whether the score is the mean over iterations instead of the sum.
      features: The names of the features.
      objective: What LightGBM was trained for, such as "binary sigmoid:1".
    """

    trees: tuple[Tree, ...]
    outputs: int
    is_average: bool
    features: tuple[str, ...]
    objective: str

    @property
    def iterations(self) -> int:
        """The number of iterations, each with a tree for every output."""
        return len(self.trees) // self.outputs


def parse(text: str) -> Forest:
    """Read a model; raise CheckpointError if the text is not one.

    >>> parse("tree")
    Traceback (most recent call last):
    estimax.core.errors.CheckpointError: a LightGBM model has no 'num_class'.
    """
    header, *blocks = _blocks(text)
    fields = _fields(header)
    outputs = int(_field(fields, "num_tree_per_iteration", first="num_class"))
    trees = tuple(_tree(_fields(block)) for block in blocks)
    if outputs < 1 or len(trees) % outputs:
        raise CheckpointError(
            f"a LightGBM model has {len(trees)} trees for {outputs} outputs."
        )
    return Forest(
        trees,
        outputs,
        "average_output" in fields,
        tuple(_field(fields, "feature_names").split(" ")),
        fields.get("objective", ""),
    )


def join(texts: Sequence[str]) -> str:
    """Return one model with the trees of several, which have the same features.

    The header is that of the first. What follows the trees (parameters, importances)
    is left out; LightGBM does not need it to predict or to continue.
    """
    header = _blocks(texts[0])[0]
    blocks = [block for text in texts for block in _blocks(text)[1:]]
    numbered = [
        f"Tree={index}\n{block.strip().split(chr(10), 1)[1]}\n\n\n"
        for index, block in enumerate(blocks)
    ]
    # Without the sizes of the trees, LightGBM finds them by their first lines.
    lines = [
        line
        for line in header.strip().split("\n")
        if not line.startswith("tree_sizes=")
    ]
    body = "".join(numbered)
    return "\n".join(lines) + f"\n\n{body}end of trees\n"


def first_iterations(text: str, count: int) -> str:
    """Return a model with its first iterations only."""
    header, *blocks = _blocks(text)
    outputs = int(_field(_fields(header), "num_tree_per_iteration"))
    kept = "".join(blocks[: count * outputs])
    return join([f"{header}{kept}end of trees\n"])


def _blocks(text: str) -> list[str]:
    """Return the header, and the block of each tree with its line `Tree=i`."""
    body = text.split("\nend of trees", 1)[0]
    header, *trees = body.split("\nTree=")
    return [f"{header}\n", *(f"\nTree={tree}\n" for tree in trees)]


def _fields(block: str) -> dict[str, str]:
    found = (line.partition("=") for line in block.split("\n") if line)
    return {name: value for name, _, value in found}


def _field(fields: dict[str, str], name: str, first: str | None = None) -> str:
    for wanted in (first, name):
        if wanted is not None and wanted not in fields:
            raise CheckpointError(f"a LightGBM model has no {wanted!r}.")
    return fields[name]


def _tree(fields: dict[str, str]) -> Tree:
    leaves = int(_field(fields, "num_leaves"))
    if fields.get("is_linear", "0") != "0":
        raise CheckpointError("a LightGBM model has linear trees, which are not read.")

    def array(name: str, dtype: Any, size: int = leaves - 1) -> NDArray[Any]:
        words = fields.get(name, "").split() if size else []
        if len(words) != size:
            raise CheckpointError(
                f"a LightGBM tree of {leaves} leaves has {len(words)} values of "
                f"{name!r}, expected {size}."
            )
        return np.array(words, np.float64).astype(dtype)

    kind = array("decision_type", np.int32)
    threshold = array("threshold", np.float64)
    is_categorical = (kind & _CATEGORICAL) > 0
    return Tree(
        feature=array("split_feature", np.int32),
        threshold=threshold,
        is_categorical=is_categorical,
        default_left=(kind & _DEFAULT_LEFT) > 0,
        missing=(kind >> 2) & 3,
        left=array("left_child", np.int32),
        right=array("right_child", np.int32),
        value=array("leaf_value", np.float64, leaves),
        left_ids=tuple(_left_ids(fields, threshold, is_categorical)),
        gain=array("split_gain", np.float64),
        count=array("internal_count", np.int64),
    )


def _left_ids(
    fields: dict[str, str],
    threshold: NDArray[np.float64],
    is_categorical: NDArray[np.bool_],
) -> Iterator[NDArray[np.int64] | None]:
    """Yield the ids of each categorical split, from the words of its bit set."""
    bounds = [int(word) for word in fields.get("cat_boundaries", "").split()]
    words = np.array(fields.get("cat_threshold", "").split(), np.uint32)
    for number, is_set in zip(threshold, is_categorical, strict=True):
        if not is_set:
            yield None
            continue
        start, stop = bounds[int(number)], bounds[int(number) + 1]
        bits = np.unpackbits(words[start:stop].view(np.uint8), bitorder="little")
        yield np.flatnonzero(bits)
