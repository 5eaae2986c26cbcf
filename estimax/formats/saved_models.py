"""TensorFlow's SavedModel format, written without TensorFlow.

    graph = Graph()
    x = graph.add("Placeholder", dtype=Dtype("float32"), shape=Shape((None,)))
    y = graph.add("AddV2", x, graph.constant(np.float32(1)), T=Dtype("float32"))
    tensors = {"x": Tensor(x, "float32", (None,))}, {"y": Tensor(y, "float32", (None,))}
    write_saved_model(folder, graph, {"serving_default": SignatureTensors(*tensors)})

A SavedModel is a folder with the file `saved_model.pb`: a graph of named operations and
the tensors that each signature takes and returns. The weights are constants of the
graph, so there are no variables, and the file must stay below the 2 GB of a protobuf.

    record = encode_predict_log("predict", {"age": ages}, {"y": answers})

Beside it may stand requests that warm a server up: PredictionLog messages. All messages
are encoded by hand, because an export must not need the protobuf library, which only
`estimax serve` has. Numbers are written as bytes (`tensor_content`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from estimax.native.reference.protos import encode_varint, field

MOST_BYTES: Final = 2**31 - 2**20  # a protobuf has at most 2 GB; some is left for nodes
PREDICT_METHOD: Final = "tensorflow/serving/predict"
_STRING: Final = 7
# The version of TensorFlow 2.15's graphs, which later versions read.
_PRODUCER: Final = 1645
_INIT: Final = "__saved_model_init_op"

# The numbers of dtypes in TensorFlow. Types that are not numbers, such as strings, are
# left out.
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.int8),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(np.uint16),
    19: np.dtype(np.float16),
    22: np.dtype(np.uint32),
    23: np.dtype(np.uint64),
}
# Field numbers of TensorProto, PredictRequest, PredictResponse and PredictionLog.
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_MODEL_SPEC, _SIGNATURE_NAME, _INPUTS = 1, 3, 2
_OUTPUTS = 1
_REQUEST, _RESPONSE, _PREDICT_LOG = 1, 2, 6


def encode_tensor(array: NDArray[Any]) -> bytes:
    """Return the bytes of a TensorProto; object arrays hold bytes.

    >>> encode_tensor(np.array([1.0], np.float32)).hex()
    '080112041202080122040000803f'
    """
    sizes = b"".join(field(2, _varint_field(1, size)) for size in array.shape)
    if array.dtype == object:
        dtype = _STRING
        values = b"".join(field(_STRINGS, text) for text in array.reshape(-1).tolist())
    else:
        dtype = next(n for n, known in DTYPES.items() if known == array.dtype)
        values = field(_CONTENT, array.tobytes())
    return _varint_field(_DTYPE, dtype) + field(_SHAPE, sizes) + values


def encode_predict_log(
    signature: str,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
) -> bytes:
    """Return a PredictionLog of one request to Predict, with its answer.

    The request names no model, because a bundle does not know how it will be called.
    """
    spec = field(_MODEL_SPEC, field(_SIGNATURE_NAME, signature.encode()))
    request = spec + _tensor_map(_INPUTS, inputs)
    response = _tensor_map(_OUTPUTS, outputs)
    log = field(_REQUEST, request) + field(_RESPONSE, response)
    return field(_PREDICT_LOG, log)


def _tensor_map(number: int, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a map from names to TensorProtos."""
    return b"".join(
        field(number, field(1, name.encode()) + field(2, encode_tensor(array)))
        for name, array in arrays.items()
    )


def _varint_field(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)


class Dtype(str):
    """An attribute that is a dtype, by NumPy's name; "string" for text."""

    __slots__ = ()


class Shape(tuple[int | None, ...]):
    """An attribute that is a shape; None is a size that is not known."""

    __slots__ = ()


# What an attribute of an operation may be: one value, or a list of one kind.
Attribute = (
    bool | int | float | bytes | Dtype | Shape | NDArray[Any] | Sequence[Any] | None
)


class Graph:
    """A graph of operations, built node by node."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._before: list[str] = []  # nodes to run once, when the model is loaded

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add an operation; return its name, which stands for its first output.

        Args:
          op: The name of the operation, such as "AddV2".
          inputs: Names of nodes; "name:1" for a second output.
          name: A name of its own. Empty: the operation and a number.
          attributes: Attribute to value.
        """
        made = name or f"{op}_{len(self._nodes)}"
        node = field(1, made.encode()) + field(2, op.encode())
        node += b"".join(field(3, given.encode()) for given in inputs)
        for key, value in attributes.items():
            node += field(5, field(1, key.encode()) + field(2, _attribute(value)))
        self._nodes.append(node)
        return made

    def constant(self, value: Any) -> str:
        """Add an array as a constant; object arrays hold bytes."""
        array = np.asarray(value)
        dtype = "string" if array.dtype == object else array.dtype.name
        return self.add("Const", dtype=Dtype(dtype), value=array)

    def run_at_start(self, node: str) -> None:
        """Run a node once, when the model is loaded."""
        self._before.append(node)

    def encode(self) -> tuple[bytes, str | None]:
        """Return the bytes of a GraphDef, and the node that runs at the start."""
        start = None
        if self._before:
            start = self.add("NoOp", *(f"^{name}" for name in self._before))
        nodes = b"".join(field(1, node) for node in self._nodes)
        return nodes + field(4, _number(1, _PRODUCER)), start


@dataclass(frozen=True)
class Tensor:
    """An output of a node that a signature takes or returns."""

    node: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class SignatureTensors:
    """The tensors of a signature, by the names that callers use."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


def write_saved_model(
    folder: Path, graph: Graph, signatures: Mapping[str, SignatureTensors]
) -> None:
    """Write `saved_model.pb` and the empty folder of variables."""
    nodes, start = graph.encode()
    about = field(4, b"serve") + field(5, b"2.15.1")
    meta_graph = [field(1, about), field(2, nodes)]
    for name, signature in signatures.items():
        tensors = _tensors(1, signature.inputs) + _tensors(2, signature.outputs)
        encoded = tensors + field(3, PREDICT_METHOD.encode())
        meta_graph.append(_entry(5, name, encoded))
    if start is not None:
        info = field(1, start.encode()) + field(3, _number(3, 1))  # of unknown rank
        meta_graph.append(_entry(5, _INIT, _entry(2, _INIT, info)))
    (folder / "variables").mkdir()
    content = _number(1, 1) + field(2, b"".join(meta_graph))
    (folder / "saved_model.pb").write_bytes(content)


def _tensors(number: int, tensors: Mapping[str, Tensor]) -> bytes:
    return b"".join(
        _entry(
            number,
            name,
            field(1, f"{tensor.node.partition(':')[0]}:0".encode())
            + _number(2, _dtype(tensor.dtype))
            + field(3, _shape(tensor.shape)),
        )
        for name, tensor in tensors.items()
    )


def _entry(number: int, key: str, value: bytes) -> bytes:
    """Return one entry of a map."""
    return field(number, field(1, key.encode()) + field(2, value))


def _attribute(value: Attribute) -> bytes:
    """Return the bytes of an AttrValue."""
    if isinstance(value, np.ndarray):
        return field(8, encode_tensor(value))
    if isinstance(value, list):
        return field(1, b"".join(_single(each) for each in value))
    return _single(value)


def _single(value: Any) -> bytes:
    # The fields of AttrValue and of its ListValue have the same numbers.
    match value:
        case Dtype():
            return _number(6, _dtype(value))
        case Shape():
            return field(7, _shape(value))
        case bytes():
            return field(2, value)
        case bool():
            return _number(5, int(value))
        case int():
            return _number(3, value)
        case float():
            return encode_varint(4 << 3 | 5) + struct.pack("<f", value)
    raise TypeError(f"no attribute can be {type(value).__name__}")


def _shape(shape: Sequence[int | None]) -> bytes:
    sizes = (-1 if size is None else size for size in shape)
    return b"".join(field(2, _number(1, size)) for size in sizes)


def _dtype(name: str) -> int:
    if name == "string":
        return _STRING
    wanted = np.dtype(name)
    return next(number for number, dtype in DTYPES.items() if dtype == wanted)


def _number(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)
