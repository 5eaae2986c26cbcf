"""The message classes of TensorFlow Serving, in a descriptor pool of their own.

    request = message("tensorflow.serving.PredictRequest")()
    request = request_message("PredictRequest").FromString(data)  # tensors are bytes

A private pool may use TensorFlow's own message names, also in a process that has
imported `tensorflow_serving.apis`, which registers the same names in the default pool.
The classes are built from a descriptor set and not from generated Python code, because
code that a newer protoc generated refuses to run with an older protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SERVING = "tensorflow.serving."
# Message and field of what `request_message` leaves as bytes.
_UNPARSED = frozenset(
    {
        ("PredictRequest", "value"),  # of its map `inputs`
        ("ExampleList", "examples"),
        ("ExampleListWithContext", "examples"),
        ("ExampleListWithContext", "context"),
    }
)


@cache
def message(name: str) -> Any:  # a class that protobuf makes at run time
    """Return a message class by its full name, or by its name in tensorflow.serving.

    >>> message("ModelSpec")(name="ctr").name
    'ctr'
    """
    full = name if "." in name else _SERVING + name
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full))


@cache
def request_message(name: str) -> Any:
    """Return a message class of tensorflow.serving in which tensors are bytes.

    The fields of `_UNPARSED` have the same bytes as in `message(name)`, but are not
    parsed with the message: a server first checks which of them it needs, and parses
    the fields of a large request in a thread.

    >>> sent = message("PredictRequest")()
    >>> sent.inputs["age"].dtype = 1
    >>> parsed = request_message("PredictRequest").FromString(sent.SerializeToString())
    >>> parsed.inputs["age"].hex()
    '0801'
    """
    found = _request_pool().FindMessageTypeByName(_SERVING + name)
    return message_factory.GetMessageClass(found)


@cache
def data_types() -> dict[str, int]:
    """Return the numbers of TensorFlow's dtypes by name, e.g. DT_FLOAT: 1."""
    found = _pool().FindEnumTypeByName("tensorflow.DataType")
    return {name: value.number for name, value in found.values_by_name.items()}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in _files():
        pool.Add(file)
    return pool


@cache
def _request_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in _files():
        for kind in file.message_type:
            for each in (kind, *kind.nested_type):
                for field in each.field:
                    if (kind.name, field.name) in _UNPARSED:
                        # A message and its bytes look the same on the wire.
                        field.type = field.TYPE_BYTES
                        field.ClearField("type_name")
        pool.Add(file)
    return pool


def _files() -> Sequence[Any]:
    folder = resources.files("estimax.serving")
    data = (folder / "tensorflow_serving.binpb").read_bytes()
    return list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
