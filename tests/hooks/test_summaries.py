from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tensorboardX.proto import event_pb2

from estimax import staging
from estimax.hooks import SummarySaverHook, summary
from estimax.hooks.summary import event_files


def histograms(logdir: Path) -> list[tuple[int, str, int]]:
    (path,) = logdir.iterdir()
    records = event_files._records(path.read_bytes())
    events = [event_pb2.Event.FromString(record) for record in records]
    return [
        (event.step, value.tag, int(value.histo.num))
        for event in events
        for value in event.summary.value
        if value.HasField("histo")
    ]


def test_loss_is_written_at_one_and_then_every_n(tmp_path: Path, run: Any) -> None:
    run([SummarySaverHook(4, output_dir=tmp_path)], steps=10)
    found = summary.read_scalars(tmp_path)
    assert found == {"loss": [(1, 0.5), (5, 0.5), (9, 0.5)]}
    assert run.fetches == [1, 5, 9]


def test_all_that_the_model_logs_is_written(tmp_path: Path, run: Any) -> None:
    run.logged = {"accuracy": "scalar", "logits": "histogram", "about": "text"}
    run.logged_values = {"accuracy": 0.75, "logits": np.ones(5), "about": "two towers"}
    run([SummarySaverHook(100, output_dir=tmp_path, histograms_every=0)], steps=1)
    assert summary.read_scalars(tmp_path) == {
        "loss": [(1, 0.5)],
        "accuracy": [(1, 0.75)],
    }
    assert histograms(tmp_path) == [(1, "logits", 5)]


def test_variables_are_written_every_few_times(tmp_path: Path, run: Any) -> None:
    run([SummarySaverHook(1, output_dir=tmp_path, histograms_every=3)], steps=4)
    assert histograms(tmp_path) == [
        (1, "dnn/w", 3),
        (1, "city/embedding_weights", 8),
        (4, "dnn/w", 3),
        (4, "city/embedding_weights", 8),
    ]


def test_large_variables_are_sampled_and_huge_ones_left_out(
    tmp_path: Path, run: Any
) -> None:
    tables = {"large": jnp.ones((500, 1000)), "huge": jnp.ones((1001, 1000))}
    object.__setattr__(run.state, "tables", tables)
    run([SummarySaverHook(1, output_dir=tmp_path)], steps=1)
    by_tag = {tag: count for _, tag, count in histograms(tmp_path)}
    assert sorted(by_tag) == ["dnn/w", "large"]
    assert 5_000 < by_tag["large"] <= 10_000


def test_seconds_are_a_cadence_too(tmp_path: Path, run: Any) -> None:
    now = [0.0]
    run.on_step = lambda step: now.__setitem__(0, float(step))
    run(
        [SummarySaverHook(save_secs=3, output_dir=tmp_path, clock=lambda: now[0])],
        steps=9,
    )
    assert [step for step, _ in summary.read_scalars(tmp_path)["loss"]] == [1, 5, 9]


def test_a_histogram_may_have_a_free_size_as_in_an_exported_evaluation() -> None:
    (rows,) = jax.export.symbolic_shape("b")
    trace = staging.Trace("eval", lambda call: None)

    def log(values: jax.Array) -> Any:
        with staging.tracing(trace):
            summary.histogram("h", values)
        return trace.logged["h"].value

    found = jax.eval_shape(log, jax.ShapeDtypeStruct((rows, 3), jnp.float32))
    assert found.shape == (3 * rows,)
