"""The graph of a model for TensorBoard, made from the trace of its `model_fn`.

    graph_def(jaxpr, constants, inputs, outputs)       # a serialized GraphDef

Nodes are the operations between features, variables, loss and predictions, grouped by
the scopes of Flax and `ex.variable_scope`. Operations that only change a shape or dtype
are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax.staging import HostCall

# Operations of one input that would only lengthen the paths between others.
_TRANSPARENT = frozenset(
    [
        "broadcast_in_dim",
        "convert_element_type",
        "copy",
        "reshape",
        "squeeze",
        "stop_gradient",
    ]
)
_CALLS = ("jit", "pjit", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


def graph_def(jaxpr: Any, constants: Sequence[str], inputs: Any, outputs: Any) -> bytes:
    """Return the graph of a traced model as a serialized GraphDef.

    Args:
      jaxpr: The trace of `record`: from a key, variables and arrays to loss,
        predictions and more.
      constants: The names of its constants.
      inputs: Its inputs after the key: variables, and arrays by name.
      outputs: The structure of its outputs, with shapes as leaves.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    graph = _Graph()
    for name, variable in zip(constants, jaxpr.constvars, strict=True):
        graph.add_source(name, "Placeholder", variable)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(inputs)]
    for path, variable in zip(paths, jaxpr.invars[1:], strict=True):
        graph.add_source(*_source(path), variable)
    wanted = list(_outputs(jaxpr, outputs))
    for equation in _find_needed(jaxpr, graph.owners, [v for _, v in wanted]):
        graph.add(equation)
    for name, variable in wanted:
        graph.add_output(name, variable)
    graph.drop_unused_sources()
    made = GraphDef(node=graph.nodes.values(), versions=VersionDef(producer=22))
    return bytes(made.SerializeToString())


def names_of_constants(
    constants: Sequence[Any], results: Mapping[HostCall, Any]
) -> list[str]:
    """Return names for the constants of a trace that equal the result of a call.

    Results of host transforms are constants of the trace, and JAX copies them.
    """
    # By value, so that the time does not grow with constants times results.
    names: dict[tuple[Any, bytes], str] = {}
    for call, result in results.items():
        name = "/".join(dict.fromkeys(origin.name for origin in call.inputs))
        for leaf in jax.tree.leaves(result):
            names.setdefault(_value(leaf), name)
    return [names.get(_value(constant), "constant") for constant in constants]


def _value(array: Any) -> tuple[Any, bytes]:
    """Return what is equal for arrays of the same shape and numbers."""
    if isinstance(array, jax.Array) and jnp.issubdtype(
        array.dtype, jax.dtypes.prng_key
    ):
        array = jax.random.key_data(array)
    numbers = np.asarray(array)
    return numbers.shape, numbers.astype(np.float64).tobytes()


def _source(path: Any) -> tuple[str, str]:
    """Return the name and the operation of an input."""
    if path[0].idx == 1:
        return _name(path[1:]), "Placeholder"
    # Variables of `model_state` are below the name of their collection.
    depth = 3 if path[1].name == "model_state" else 2
    return _name(path[depth:]), "VariableV2"


def _outputs(jaxpr: Any, outputs: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and variable of the loss and the predictions."""
    leaves = jax.tree_util.tree_leaves_with_path(outputs)
    for (path, _), variable in zip(leaves, jaxpr.outvars, strict=True):
        if hasattr(variable, "val"):  # a literal
            continue
        place = [getattr(part, "idx", None) for part in path[:2]]
        if place == [0, 0]:
            yield "loss", variable
        elif place == [0, 1]:
            yield f"predictions/{_name(path[2:])}", variable


def _name(path: Any) -> str:
    text = jax.tree_util.keystr(path, simple=True, separator="/")
    return re.sub(r"[^\w./-]+", "_", text).strip("/") or "value"


def _find_needed(jaxpr: Any, known: Any, outputs: Sequence[Any]) -> list[Any]:
    """Return the equations between the sources and the outputs, in order."""
    wanted = {id(variable) for variable in outputs}
    found = []
    for equation in reversed(jaxpr.eqns):
        made = {id(v) for v in equation.outvars} - known.keys()
        if made & wanted:
            found.append(equation)
            wanted |= {id(v) for v in equation.invars}
    return found[::-1]


class _Graph:
    """The nodes of a graph by name, and the node that computes each variable."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.owners: dict[int, str] = {}  # id of a variable of the trace -> node
        self._sources: set[str] = set()

    def add_source(self, name: str, operation: str, variable: Any) -> None:
        if id(variable) not in self.owners:
            node = self._add(name, operation, [], [variable])
            self._sources.add(node)

    def add(self, equation: Any) -> None:
        inputs = [self.owners[id(v)] for v in equation.invars if id(v) in self.owners]
        kind = equation.primitive.name
        if kind in _TRANSPARENT:
            if inputs:
                self.owners[id(equation.outvars[0])] = inputs[0]
            return
        if all(_is_key(v) for v in equation.outvars):
            return  # operations that split random keys are of no interest
        if kind in _CALLS:
            kind = str(equation.params.get("name") or _callee_name(equation) or kind)
        scope = _scope(str(equation.source_info.name_stack))
        self._add(f"{scope}/{kind.lstrip('_')}", kind, inputs, equation.outvars)

    def add_output(self, name: str, variable: Any) -> None:
        if id(variable) in self.owners:
            owner = self.owners[id(variable)]
            self._add(name, "Identity", [owner], [variable])
            self.owners[id(variable)] = owner  # one value may be several outputs

    def drop_unused_sources(self) -> None:
        used = {name for node in self.nodes.values() for name in node.input}
        for name in self._sources - used:
            del self.nodes[name]

    def _add(
        self, wanted: str, operation: str, inputs: Sequence[str], made: Sequence[Any]
    ) -> str:
        from tensorboardX.proto.attr_value_pb2 import AttrValue
        from tensorboardX.proto.node_def_pb2 import NodeDef
        from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

        name, count = wanted, 0
        while name in self.nodes:
            count += 1
            name = f"{wanted}_{count}"
        shapes = [
            TensorShapeProto(
                dim=[TensorShapeProto.Dim(size=n) for n in getattr(v.aval, "shape", ())]
            )
            for v in made
        ]
        listed = AttrValue(list=AttrValue.ListValue(shape=shapes))
        self.nodes[name] = NodeDef(
            name=name,
            op=operation,
            input=list(dict.fromkeys(inputs)),
            attr={"_output_shapes": listed},
        )
        for variable in made:
            self.owners[id(variable)] = name
        return name


def _is_key(variable: Any) -> bool:
    dtype = getattr(variable.aval, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _callee_name(equation: Any) -> str:
    """Return the name of the function behind a call with a custom derivative."""
    inner = equation.params.get("call_jaxpr")
    names = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    return str(getattr(names, "func_name", "")).rpartition(".")[2]


def _scope(stack: str) -> str:
    """Return the scope of an operation, without modules and methods of estimax.

    >>> _scope("ModelModule/dnn/input_layer/input_layer._block/_Variables")
    'dnn/input_layer'
    >>> _scope("ModelModule")
    'model_fn'
    """
    parts = [
        part
        for part in re.sub(r"[^\w./-]+", "_", stack).split("/")
        if part and "." not in part and part not in ("ModelModule", "_Variables")
    ]
    return "/".join(parts) or "model_fn"
