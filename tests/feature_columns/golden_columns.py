"""Golden descriptions (see the fixtures' README) made into columns and features."""

import ast
import base64
import operator

import numpy as np

from estimax import feature_columns
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings


def build(value, folder=None):
    """Build a column, or whatever else an argument is."""
    if isinstance(value, list):
        return [build(inner, folder) for inner in value]
    if not isinstance(value, dict):
        return value
    if "b64" in value:
        return base64.b64decode(value["b64"])
    if "expr" in value:
        return function_of(value["expr"])
    args = {name: build(arg, folder) for name, arg in value["args"].items()}
    if "vocabulary_file" in args and folder is not None:
        args["vocabulary_file"] = str(folder / args["vocabulary_file"])
    return getattr(feature_columns, value["fn"])(**args)


def build_all(described, folder=None):
    """Build a list of columns; shared embeddings give several."""
    columns = []
    for value in described:
        built = build(value, folder)
        columns.extend(built if isinstance(built, list) else [built])
    return columns


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def function_of(expression):
    """The arithmetic `lambda x: expression`, read and not evaluated as code."""
    tree = ast.parse(expression, mode="eval").body

    def value_of(node, x):
        match node:
            case ast.BinOp():
                apply = _OPERATORS[type(node.op)]
                return apply(value_of(node.left, x), value_of(node.right, x))
            case ast.UnaryOp(op=ast.USub()):
                return -value_of(node.operand, x)
            case ast.Constant():
                return node.value
            case ast.Name(id="x"):
                return x
        raise ValueError(f"unknown expression {ast.dump(node)}")

    return lambda x: value_of(tree, x)


def write_files(case, folder):
    """Write the files of a case into a folder."""
    for name, content in case.get("files", {}).items():
        is_text = isinstance(content, str)
        data = content.encode() if is_text else base64.b64decode(content["b64"])
        (folder / name).write_bytes(data)
    return folder


def features_of(case):
    """The features of a case."""
    return {key: tensor(value) for key, value in case["features"].items()}


def tensor(described):
    """An array, Strings or Sparse."""
    values, dtype = described["values"], described["dtype"]
    if dtype == "string":
        array = np.array(_decoded(values), dtype=object)
        array = Strings.of(array)
    else:
        array = np.array(_numbers(values), dtype=dtype)
    if described["kind"] == "dense":
        shape = described.get("shape")
        return array.reshape(tuple(shape)) if shape else array
    shape = tuple(described["dense_shape"])
    indices = np.array(described["indices"], np.int64).reshape(-1, len(shape))
    return Sparse(indices, array, shape)


def _decoded(values):
    if isinstance(values, list):
        return [_decoded(value) for value in values]
    return base64.b64decode(values["b64"]) if isinstance(values, dict) else values


def _numbers(values):
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(values) if isinstance(values, str) else values
