"""What a training writes once: its graph, its params and its embeddings."""

from pathlib import Path

import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints
from estimax.hooks import summary

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
)
CITIES = ["Oslo", "Rome", "Paris"]


def input_fn():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)).astype(np.float32)
    city = np.array(CITIES)[rng.integers(0, 3, 60)]
    labels = (x[:, 0] > 0).astype(np.int64)
    rows = ex.input.Dataset.from_tensor_slices(({"x": x, "city": city}, labels))
    return rows.repeat().batch(20)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    fc = ex.feature_columns
    city = fc.categorical_column_with_vocabulary_list("city", CITIES, num_oov_buckets=2)
    columns = [fc.numeric_column("x"), fc.embedding_column(city, 4)]
    config = ex.RunConfig(save_summary_steps=2, tf_random_seed=1)
    model = ex.DNNClassifier([8], columns, model_dir=folder, config=config)
    model.train(input_fn, steps=6)
    return folder


def test_the_graph_connects_features_variables_and_loss(trained: Path) -> None:
    found = event_accumulator.EventAccumulator(str(trained)).Reload()
    graph = found.Graph()
    nodes = {node.name: node for node in graph.node}
    assert {"features/x", "features/city", "labels"} <= nodes.keys()
    assert nodes["dnn/logits/kernel"].op == "VariableV2"
    assert "loss" in nodes
    assert "predictions/probabilities" in nodes
    assert all(name in nodes for node in graph.node for name in node.input)
    before, reached = {"loss"}, set()
    while before:
        name = before.pop()
        reached.add(name)
        before |= set(nodes[name].input) - reached
    assert {"features/x", "features/city", "labels", "dnn/logits/bias"} <= reached
    (product,) = (n for n in nodes if n.startswith("dnn/logits/dot_general"))
    dims = nodes[product].attr["_output_shapes"].list.shape[0].dim
    assert [dim.size for dim in dims] == [20, 1]


def test_embeddings_are_written_with_their_words(trained: Path) -> None:
    (words,) = trained.glob("embeddings/*.words.tsv")
    assert words.read_text().split() == CITIES, "without the rows for other words"
    vectors = words.with_name(words.name.replace(".words", ""))
    latest = checkpoints.latest(trained)
    table = "dnn/input_from_feature_columns/input_layer/city_embedding"
    saved = checkpoints.read_array(latest, f"{table}/embedding_weights")
    np.testing.assert_allclose(np.loadtxt(vectors), saved[:3], rtol=1e-5)


def test_norms_of_layers_start_at_the_second_write(trained: Path) -> None:
    found = summary.read_scalars(trained)
    assert [step for step, _ in found["gradient_norm/dnn/logits"]] == [3]
    assert [step for step, _ in found["weight_norm/dnn/hiddenlayer_0"]] == [3]
    assert [step for step, _ in found["loss"]] == [1, 3, 5]


def test_params_become_hyper_parameters(tmp_path: Path) -> None:
    hook = ex.hooks.BoardHook(tmp_path, hparams={"units": 64})
    hook.begin(ex.hooks.RunContext(step=0))
    found = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert found.SummaryMetadata("_hparams_/session_start_info")
    hook.begin(ex.hooks.RunContext(step=40))
    assert len(list(tmp_path.iterdir())) == 1
