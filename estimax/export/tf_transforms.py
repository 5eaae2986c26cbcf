"""Host transforms of a bundle as operations of a TensorFlow graph.

    staged = TransformWriter(graph, inputs).arrays(call)   # {"ids": "Cast_12"}

Hashes, vocabularies, identities, buckets, their weights, crosses of dense features and
of buckets, and plain numbers have exact counterparts. A sparse feature is a rectangle
[B, L] here, in which '' and -1 stand for no value, as in requests to a server.
Sequences, and crosses of features in which a value may be missing, have none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimax.core.sparse import padded_length
from estimax.core.strings import Strings
from estimax.export.signature import STRING
from estimax.feature_columns import transforms
from estimax.feature_columns.transforms.categorical import DEFAULT_HASH_KEY
from estimax.formats.saved_models import Dtype, Graph, Tensor
from estimax.staging.trace import HostCall, Origin

_BOOL, _INT32, _INT64, _FLOAT = (
    Dtype(d) for d in ("bool", "int32", "int64", "float32")
)
_TEXT = Dtype(STRING)


class NoCounterpartError(Exception):
    """A transform cannot be written as operations of TensorFlow."""


class TransformWriter:
    """Adds transforms to a graph.

    Args:
      graph: The graph.
      inputs: The placeholder of every feature.
    """

    def __init__(self, graph: Graph, inputs: Mapping[Origin, Tensor]) -> None:
        self._graph = graph
        self._inputs = inputs

    def arrays(self, call: HostCall) -> dict[str, str]:
        """Return the node of every array that a call results in, by its path.

        Raises:
          NoCounterpartError: TensorFlow has no such operations.
        """
        transform: Any = call.transform
        keys = dict(zip(transform.keys, call.inputs, strict=True))
        features = {key: self._inputs[origin] for key, origin in keys.items()}
        if isinstance(transform, transforms.PadIds):
            return self._pad(transform.source, features)
        if isinstance(transform, transforms.Numbers):
            tensor = features[transform.key]
            return {"": self._cast(self._matrix(tensor), tensor.dtype, _FLOAT)}
        if isinstance(transform, transforms.Vocabulary):
            tensor = features[transform.key]
            values = tensor.node
            if transform.strip and tensor.dtype == STRING:
                values = self._add("StringStrip", values)
            ids = self._vocabulary(transform, values)
            return {"": self._cast(ids, _INT64, _INT32)}
        raise NoCounterpartError(type(transform).__name__)

    def _pad(self, source: Any, features: Mapping[str, Tensor]) -> dict[str, str]:
        weights = None
        if isinstance(source, transforms.Weighted):
            given = features[source.weight_key]
            weights = self._cast(self._matrix(given), given.dtype, _FLOAT)
            source = source.source
        width: int | None
        if isinstance(source, transforms.Cross):
            ids, width = self._cross(source, features)
        else:
            tensor = features[source.key]
            ids, width = self._ids(source, tensor), _width(tensor)
        limit = self._graph.constant(np.int64(source.num_buckets))
        outside = self._add("GreaterEqual", ids, limit, T=_INT64)
        ids = self._where(outside, self._minus_one(), ids, _INT64)
        ids = self._add("Maximum", ids, self._minus_one(), T=_INT64)
        found = {"ids": self._widen(self._cast(ids, _INT64, _INT32), width, -1)}
        if weights is not None:
            nothing = self._graph.constant(np.float32(0))
            absent = self._add("Less", ids, self._zero(), T=_INT64)
            kept = self._where(absent, nothing, weights, _FLOAT)
            found["weights"] = self._widen(kept, width, 0.0)
        return found

    def _ids(self, source: Any, tensor: Tensor) -> str:
        """Return int64 ids [B, W]; negative where a value is missing."""
        values = self._matrix(tensor)
        if isinstance(source, transforms.Bucketize):
            return self._buckets(source, values, tensor)
        is_text = tensor.dtype == STRING
        if not is_text:
            values = self._cast(values, tensor.dtype, _INT64)
        elif getattr(source, "strip", False):
            values = self._add("StringStrip", values)
        if isinstance(source, transforms.HashBucket):
            ids = self._hash(values, source.num_buckets, is_text)
        elif isinstance(source, transforms.Vocabulary):
            ids = self._vocabulary(source, values)
        elif isinstance(source, transforms.Identity):
            ids = self._identity(source, values)
        else:
            raise NoCounterpartError(type(source).__name__)
        empty = self._graph.constant(np.array(b"", object)) if is_text else None
        absent = self._add(
            "Equal", values, empty or self._minus_one(), T=_TEXT if is_text else _INT64
        )
        return self._where(absent, self._minus_one(), ids, _INT64)

    def _cross(
        self, source: transforms.Cross, features: Mapping[str, Tensor]
    ) -> tuple[str, int]:
        """Return the ids of all combinations, [B, W], and W."""
        nodes: list[tuple[bool, str, Dtype]] = []  # whether raw, node, dtype
        width = 1
        for part in source.parts:
            is_raw = isinstance(part, str)
            if not is_raw and not isinstance(part, transforms.Bucketize):
                raise NoCounterpartError(f"Cross of {type(part).__name__}")
            tensor = features[part if isinstance(part, str) else part.key]
            size = _width(tensor)
            if size is None:
                raise NoCounterpartError("Cross of a feature with rows of any length")
            width *= size
            node, dtype = self._matrix(tensor), Dtype(tensor.dtype)
            if isinstance(part, transforms.Bucketize):
                node, dtype = self._buckets(part, node, tensor), _INT64
            elif dtype != _TEXT:
                node, dtype = self._cast(node, dtype, _INT64), _INT64
            nodes.append((is_raw, node, dtype))
        # TensorFlow hashes sparse inputs first, and ids of buckets are sparse there.
        nodes.sort(key=lambda node: node[0])
        dtypes = [dtype for _, _, dtype in nodes]
        crossed = self._add(
            "SparseCross",
            *(node for _, node, _ in nodes),
            N=0,
            hashed_output=True,
            num_buckets=source.num_buckets,
            hash_key=source.hash_key or DEFAULT_HASH_KEY,
            sparse_types=[],
            dense_types=dtypes,
            out_type=_INT64,
            internal_type=_TEXT if set(dtypes) == {_TEXT} else _INT64,
        )
        shape = self._graph.constant(np.array([-1, width], np.int32))
        return self._add("Reshape", f"{crossed}:1", shape, T=_INT64), width

    def _hash(self, values: str, buckets: int, is_text: bool) -> str:
        words = values if is_text else self._add("AsString", values, T=_INT64)
        return self._add("StringToHashBucketFast", words, num_buckets=buckets)

    def _vocabulary(self, source: transforms.Vocabulary, values: str) -> str:
        words = source.words
        kind = _INT64 if words.is_integer else _TEXT
        table = self._add(
            "HashTableV2",
            key_dtype=kind,
            value_dtype=_INT64,
            shared_name=f"words_{words.digest.hex()[:16]}_{source.key}".encode(),
        )
        keys = words.words
        listed: Any = np.asarray(keys) if isinstance(keys, Strings) else keys
        filled = self._add(
            "LookupTableImportV2",
            table,
            self._graph.constant(listed),
            self._graph.constant(np.arange(len(words))),
            Tin=kind,
            Tout=_INT64,
        )
        self._graph.run_at_start(filled)
        # -2 is no default of a column, so it tells which values were not found.
        default = -2 if source.num_oov_buckets else source.default
        missing = self._graph.constant(np.int64(default))
        found = self._add(
            "LookupTableFindV2", table, values, missing, Tin=kind, Tout=_INT64
        )
        if not source.num_oov_buckets:
            return found
        hashed = self._hash(values, source.num_oov_buckets, not words.is_integer)
        first = self._graph.constant(np.int64(len(words)))
        beyond = self._add("AddV2", hashed, first, T=_INT64)
        is_oov = self._add("Equal", found, missing, T=_INT64)
        return self._where(is_oov, beyond, found, _INT64)

    def _identity(self, source: transforms.Identity, values: str) -> str:
        if source.default is None:
            return values
        limit = self._graph.constant(np.int64(source.num_buckets))
        below = self._add("Less", values, self._zero(), T=_INT64)
        above = self._add("GreaterEqual", values, limit, T=_INT64)
        outside = self._add("LogicalOr", below, above)
        default = self._graph.constant(np.int64(source.default))
        return self._where(outside, default, values, _INT64)

    def _buckets(
        self, source: transforms.Bucketize, values: str, tensor: Tensor
    ) -> str:
        numbers = self._cast(values, tensor.dtype, _FLOAT)
        if source.normalizer is not None:
            numbers = self._scale(source.normalizer, numbers)
        edges = [float(edge) for edge in source.boundaries]
        found = self._add("Bucketize", numbers, T=_FLOAT, boundaries=edges)
        steps = np.arange(source.width) * (len(edges) + 1)
        wide = self._cast(found, _INT32, _INT64)
        return self._add("AddV2", wide, self._graph.constant(steps), T=_INT64)

    def _scale(self, scaling: Any, numbers: str) -> str:
        if not isinstance(scaling, transforms.Scaling):
            raise NoCounterpartError("a normalizer_fn")
        if scaling.fill is not None:
            numbers = without_nan(self._graph, numbers, scaling.fill)
        if scaling.log1p:
            numbers = self._add("Log1p", numbers, T=_FLOAT)
        mean, std = (
            self._graph.constant(np.float32(n)) for n in (scaling.mean, scaling.std)
        )
        return self._add(
            "RealDiv", self._add("Sub", numbers, mean, T=_FLOAT), std, T=_FLOAT
        )

    def _matrix(self, tensor: Tensor) -> str:
        """Return a feature as [B, W]."""
        if len(tensor.shape) == 2:
            return tensor.node
        width = _width(tensor)
        if width is None:
            raise NoCounterpartError(f"a feature of shape {list(tensor.shape)}")
        shape = self._graph.constant(np.array([-1, width], np.int32))
        return self._add("Reshape", tensor.node, shape, T=Dtype(tensor.dtype))

    def _widen(self, node: str, width: int | None, fill: float) -> str:
        """Pad [B, W] to the power of two that the program takes."""
        if width is None:
            return node  # the program takes any length
        missing = padded_length(width) - width
        if not missing:
            return node
        pads = self._graph.constant(np.array([[0, 0], [0, missing]], np.int32))
        dtype = _INT32 if fill else _FLOAT
        value = self._graph.constant(np.array(fill, str(dtype)))
        return self._add("PadV2", node, pads, value, T=dtype)

    def _where(self, condition: str, yes: str, no: str, dtype: Dtype) -> str:
        return self._add("SelectV2", condition, yes, no, T=dtype)

    def _cast(self, node: str, given: str, wanted: str) -> str:
        return cast(self._graph, node, given, wanted)

    def _minus_one(self) -> str:
        return self._graph.constant(np.int64(-1))

    def _zero(self) -> str:
        return self._graph.constant(np.int64(0))

    def _add(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self._graph.add(op, *inputs, **attributes)


def _width(tensor: Tensor) -> int | None:
    """Return how many values a row has; None if any number."""
    sizes = [size for size in tensor.shape[1:] if size is not None]
    return math.prod(sizes) if len(sizes) == len(tensor.shape) - 1 else None


def cast(graph: Graph, node: str, given: str, wanted: str) -> str:
    """Return a node with the same values in another dtype."""
    if given == wanted:
        return node
    return graph.add("Cast", node, SrcT=Dtype(given), DstT=Dtype(wanted))


def without_nan(graph: Graph, node: str, default: Any) -> str:
    """Return a node of float32 with `default` in place of NaN."""
    is_nan = graph.add("IsNan", node, T=_FLOAT)
    value = graph.constant(np.asarray(default, np.float32))
    return graph.add("SelectV2", is_nan, value, node, T=_FLOAT)
