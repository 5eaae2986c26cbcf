"""Recipes: a digest of the verbs of a dataset and of their arguments.

    digest_of(dataset.node)       # "8c1f…", the same in another process

Two `train` calls continue in the same data only if it is the same: the fingerprint
compares files and arrays, the digest what the verbs do with them. `filter` with another
function, or `take` with another number, gives another digest. A function is compared by
its compiled code and by the values that it uses from outside, so far as they are
numbers, text, containers, arrays, dataclasses or other functions.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import zlib
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from estimax.input.sources.arrays import Range, Slices
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.stream import DatasetNode, inner_nodes

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, np.generic)


def digest_of(node: DatasetNode) -> str | None:
    """Return the digest; None if a source, such as a generator, has no fingerprint.

    >>> from estimax.input import Dataset
    >>> one, other = (Dataset.range(10).take(n) for n in (3, 4))
    >>> digest_of(one.node) == digest_of(other.node)
    False
    """
    if not all(isinstance(one, FileBlocks | Slices | Range) for one in _leaves(node)):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(node, {}):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _leaves(node: DatasetNode) -> Iterator[DatasetNode]:
    inner = inner_nodes(node)
    if not inner:
        yield node
    for one in inner:
        yield from _leaves(one)


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield texts that differ if the values differ.

    `seen` ends cycles. It keeps the values, because the id of a value that was freed
    may be given to a new value.
    """
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    yield _type_name(value)
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, FileBlocks):
        # The fingerprint compares the files, which may have moved to another folder.
        seen[id(value.paths)] = value.paths
    if isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}"
        if value.dtype.hasobject:
            yield from _parts(value.tolist(), seen)
        else:
            yield str(zlib.crc32(np.ascontiguousarray(value).tobytes()))
    else:
        for member in _members(value):
            yield from _parts(member, seen)


def _members(value: Any) -> Iterator[Any]:
    """Yield what a value consists of; nothing if that is not known."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, set | frozenset):
        yield from sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, FunctionType):
        yield from _function_members(value)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    elif isinstance(value, type | ModuleType):
        yield _name(value)
    elif isinstance(value, Slices):
        return  # the fingerprint compares the arrays
    elif dataclasses.is_dataclass(value):
        # Fields that do not change the elements are declared with compare=False.
        fields = (one for one in dataclasses.fields(value) if one.compare)
        yield from (getattr(value, one.name) for one in fields)
    elif hasattr(value, "__wrapped__"):  # such as a function in jax.jit
        yield value.__wrapped__
    elif callable(value) and hasattr(value, "__dict__"):
        yield from (type(value).__call__, vars(value))


def _function_members(function: FunctionType) -> Iterator[Any]:
    """Yield the code of a function, its defaults and the values from outside."""
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
    try:
        outside = inspect.getclosurevars(function)
    except ValueError:  # a variable that has no value yet
        return
    yield outside.nonlocals
    for name, value in outside.globals.items():
        if not isinstance(value, FunctionType):
            yield name, value
        elif value.__module__ == function.__module__:
            yield value
        else:  # the code of other modules uses values that change, such as caches
            yield _name(value)


def _type_name(value: Any) -> str:
    return _name(type(value))


def _name(value: Any) -> str:
    """Return the full name of a function, class or module, as checkpoints have it."""
    module = _saved_module(str(getattr(value, "__module__", None)))
    name = getattr(value, "__qualname__", value.__name__)
    if isinstance(value, ModuleType):
        name = _saved_module(name)
    return ".".join(_SAVED_NAMES.get((module, name), (module, name)))


# Checkpoints hold digests. If what has moved had its new name in them, a `train` call
# would take its data for other data, and begin at the start instead of behind the last
# batch. So the digest has the name of the time when digests were first saved. What
# moves from now on gets a line here: a package or module in the first table, single
# names of a module in the second. Both are without "estimax." in front.
_SAVED_MODULES = {
    "export.scoring": "scoring",
    "feature_columns.transforms": "transforms",
    "hooks.summary": "summary",
    "input.ops": "input.verbs",
    "inspection.report": "report",
    "metrics.losses": "heads.losses",
    "staging.variables": "variables",
    "v1.crf": "crf",
    "v1.experimental": "experimental",
    "v1.feature_columns": "feature_columns.v1",
    "v1.inputs": "inputs",
    "v1.lookup": "lookup",
    "v1.losses": "losses",
    "v1.metrics": "metrics.v1",
    "v1.optimizers": "optimizers.v1",
}


def _saved_module(module: str) -> str:
    """Return the name that digests have for a module.

    >>> _saved_module("estimax.v1.metrics.means")
    'estimax.metrics.v1.means'
    """
    for now, then in _SAVED_MODULES.items():
        if f"{module}.".startswith(f"estimax.{now}."):
            return f"estimax.{then}{module.removeprefix(f'estimax.{now}')}"
    return module


def _saved_names() -> dict[tuple[str, str], tuple[str, str]]:
    """Return module and name in digests, by the module and name of today.

    The module of today has gone through `_saved_module`. `New=Old` is a new name.
    """
    moved = {
        ("crf", "crf.decoding"): "crf_decode viterbi_decode",
        ("crf", "crf.likelihood"): (
            "crf_log_likelihood crf_log_norm crf_multitag_sequence_score"
        ),
        ("crf", "crf.scores"): "crf_binary_score crf_sequence_score crf_unary_score",
        ("estimator.wrappers", "estimator.extenders"): (
            "add_metrics call_logit_fn forward_features"
        ),
        ("feature_columns.bucketized", "feature_columns.numeric"): (
            "BucketizedColumn bucketized_column"
        ),
        ("feature_columns.categorical", "feature_columns.composed"): (
            "CrossedColumn WeightedCategoricalColumn "
            "crossed_column weighted_categorical_column"
        ),
        ("feature_columns.embedding", "feature_columns.indicator"): (
            "IndicatorColumn indicator_column"
        ),
        ("feature_columns.embedding_lookups", "feature_columns.embedding_lookup"): (
            "embedding_lookup embedding_lookup_sparse"
        ),
        ("formats.records", "wire.records"): (
            "RecordError TFRecordOptions TFRecordWriter"
        ),
        ("hooks.guards", "hooks.nan_guard"): "NanTensorHook",
        ("hooks.tensorboard", "hooks.board"): "BoardHook",
        ("hooks.tensorboard", "hooks.profiling"): "ProfilerHook",
        ("hooks.tensorboard", "hooks.summaries"): "SummarySaverHook",
        ("input.element_specs", "input.signatures"): "TensorSpec",
        ("input.examples.messages", "input.examples.lists"): (
            "BytesList FloatList Int64List"
        ),
        ("input.sources.cache_files", "input.sources.saved"): "Saved",
        ("input.sources.file_blocks", "input.sources.paths"): (
            "expand given_paths list_paths"
        ),
        ("input.sources.iterables", "input.sources.generators"): "Generated Batches",
        ("input.streams.chunks", "input.streams.chunks"): "ElementList=Elements",
        ("input.streams.columns", "input.streams.ragged"): "Ragged",
        ("input.tabular", "input.json_lines"): "json_files",
        ("input.verbs.batching", "input.verbs.rebatching"): (
            "Rebatch RaggedBatch SparseBatch"
        ),
        ("input.verbs.selection", "input.verbs.ordering"): "Repeat Take Skip Shard",
        ("input.verbs.selection", "input.verbs.scanning"): "TakeWhile Scan Unique",
        ("lookup", "lookup.words"): "index_to_string string_to_index",
        ("losses.functions", "losses.classification"): (
            "hinge_loss log_loss sigmoid_cross_entropy softmax_cross_entropy "
            "sparse_softmax_cross_entropy"
        ),
        ("losses.functions", "losses.regression"): (
            "absolute_difference cosine_distance huber_loss "
            "mean_pairwise_squared_error mean_squared_error"
        ),
        ("losses.reduction", "losses.collection"): (
            "add_loss get_losses get_regularization_loss get_total_loss"
        ),
        ("losses.reduction", "losses.weighted"): "Reduction compute_weighted_loss",
        ("metrics.thresholds", "metrics.operating_point"): (
            "precision_at_recall recall_at_precision "
            "sensitivity_at_specificity specificity_at_sensitivity"
        ),
        ("native.example_types", "native.features"): "FeatureRequest=Wanted Problem",
        ("scoring.score", "scoring.pool"): "ScoringError",
        ("storage.compression", "wire.compression"): "check_compression",
        ("summary.event_files", "summary.reader"): "read_scalars",
        ("summary.event_files", "summary.writer"): (
            "Output SummaryWriter times_written"
        ),
        ("transforms.embedding_lookups", "transforms.lookups"): "TableBags TableIds",
        ("transforms.numeric", "transforms.dense"): (
            "Bucketize Numbers RowCount Scaling"
        ),
        ("transforms.words", "transforms.fingerprint"): (
            "fingerprint64 fingerprint_cat64 hash_buckets"
        ),
    }
    saved = {}
    for (now, then), names in moved.items():
        for pair in names.split():
            name, _, old = pair.partition("=")
            saved[f"estimax.{now}", name] = (f"estimax.{then}", old or name)
    return saved


_SAVED_NAMES = _saved_names()
