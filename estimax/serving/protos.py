"""The message classes of TensorFlow Serving, in a descriptor pool of their own.

    request = messages("tensorflow.serving.PredictRequest")()

A private pool may use TensorFlow's own message names, also in a process that has
imported `tensorflow_serving.apis`, which registers the same names in the default pool.
The classes are built from a descriptor set and not from generated Python code, because
code that a newer protoc generated refuses to run with an older protobuf.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SERVING = "tensorflow.serving."


@cache
def message(name: str) -> Any:  # a class that protobuf makes at run time
    """Return a message class by its full name, or by its name in tensorflow.serving.

    >>> message("ModelSpec")(name="ctr").name
    'ctr'
    """
    full = name if "." in name else _SERVING + name
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full))


@cache
def data_types() -> dict[str, int]:
    """Return the numbers of TensorFlow's dtypes by name, e.g. DT_FLOAT: 1."""
    found = _pool().FindEnumTypeByName("tensorflow.DataType")
    return {name: value.number for name, value in found.values_by_name.items()}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    folder = resources.files("estimax.serving")
    data = (folder / "tensorflow_serving.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool
