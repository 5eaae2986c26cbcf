"""The files of a SavedModel, read back field by field."""

import numpy as np
import pytest

from estimax.formats.messages import fields
from estimax.formats.saved_models import (
    Dtype,
    Graph,
    Shape,
    SignatureTensors,
    Tensor,
    write_saved_model,
)


def values(message, number):
    return [value for found, value in fields(message) if found == number]


def test_a_saved_model_has_nodes_signatures_and_a_start(tmp_path):
    graph = Graph()
    x = graph.add("Placeholder", dtype=Dtype("float32"), shape=Shape((None, 2)))
    y = graph.add("AddV2", x, graph.constant(np.float32(1)), T=Dtype("float32"))
    graph.run_at_start(graph.add("NoOp", name="fill"))
    signature = SignatureTensors(
        {"x": Tensor(x, "float32", (None, 2))}, {"y": Tensor(y, "float32", (None, 2))}
    )
    write_saved_model(tmp_path, graph, {"serving_default": signature})
    (meta,) = values((tmp_path / "saved_model.pb").read_bytes(), 2)
    (graph_def,) = values(meta, 2)
    nodes = values(graph_def, 1)
    assert [values(node, 2)[0] for node in nodes] == [
        b"Placeholder",
        b"Const",
        b"AddV2",
        b"NoOp",
        b"NoOp",
    ]
    assert values(nodes[2], 3) == [b"Placeholder_0", b"Const_1"]
    assert values(nodes[4], 3) == [b"^fill"]
    names = [values(entry, 1)[0] for entry in values(meta, 5)]
    assert names == [b"serving_default", b"__saved_model_init_op"]
    assert (tmp_path / "variables").is_dir()


def test_attributes_have_the_fields_of_their_kinds():
    graph = Graph()
    graph.add("Op", a=True, b=7, c=b"text", d=[Dtype("int64"), Dtype("string")], e=1.5)
    encoded, start = graph.encode()
    assert start is None
    (node,) = values(encoded, 1)
    attributes = {
        values(entry, 1)[0]: next(fields(values(entry, 2)[0]))
        for entry in values(node, 5)
    }
    assert attributes[b"a"] == (5, 1)
    assert attributes[b"b"] == (3, 7)
    assert attributes[b"c"] == (2, b"text")
    number, listed = attributes[b"d"]
    assert (number, values(listed, 6)) == (1, [9, 7])
    assert attributes[b"e"][0] == 4


def test_other_attributes_are_refused():
    with pytest.raises(TypeError, match="no attribute can be dict"):
        Graph().add("Op", a={})
