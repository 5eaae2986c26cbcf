"""Curves and matrices of evaluations, and evaluations that are repeated."""

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

import estimax as ex
from estimax import metrics
from estimax.estimator import curves, results
from estimax.hooks import summary
from estimax.hooks.summary import event_files
from estimax.metrics.auc import curve_counts

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
)


def events(folder):
    """Every event of a folder, also those that a restart hides."""
    for path in sorted(folder.glob("*.tfevents.*")):
        for record in event_files._records(path.read_bytes()):
            yield Event.FromString(record)


def points(folder, tag):
    found = event_accumulator.EventAccumulator(str(folder)).Reload()
    return [(event.step, round(event.value, 6)) for event in found.Scalars(tag)]


def test_curves_come_from_the_counts_of_the_auc():
    labels, scores = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    found = curves.curve_summaries({"auc/click": metrics.auc(labels, scores)})
    kinds = [(kind, name) for kind, name, _ in found]
    assert kinds == [
        ("pr_curve", "pr_curve/click"),
        ("image", "roc/click"),
        ("image", "calibration/click"),
        ("image", "confusion/click"),
        ("text", "confusion/click"),
    ]
    tp, fp, tn, fn = found[0][2]
    np.testing.assert_allclose(tp + fn, 2)
    np.testing.assert_allclose(fp + tn, 2)
    assert found[-1][2].splitlines()[2:] == ["| **0** | 2 | 0 |", "| **1** | 1 | 1 |"]


def test_calibration_is_the_share_of_positives_in_each_tenth():
    scores = np.repeat([0.25, 0.85], 100)
    labels = np.concatenate([np.arange(100) < 30, np.arange(100) < 90])
    tp, fp, _, _ = curve_counts(metrics.auc(labels, scores))
    predicted, actual, weight = curves.calibration(tp, fp)
    np.testing.assert_allclose(predicted, [0.25, 0.85], atol=0.005)
    np.testing.assert_allclose(actual, [0.3, 0.9], atol=1e-6)
    np.testing.assert_allclose(weight, [100, 100])


def test_labels_of_one_class_have_no_curves():
    assert curves.curve_summaries({"auc": metrics.auc([1, 1], [0.2, 0.9])}) == []


def test_an_area_at_thresholds_of_the_user_has_no_curves():
    metric = metrics.auc([0, 1], [0.2, 0.9], thresholds=[0.1, 0.5])
    assert curves.curve_summaries({"auc": metric}) == []


def test_several_classes_have_a_matrix(tmp_path):
    x = np.array([[0.0], [1.0], [2.0]] * 4, np.float32)
    columns = [ex.feature_columns.numeric_column("x")]
    model = ex.DNNClassifier([4], columns, n_classes=3, model_dir=tmp_path)
    data = {"x": x}, x[:, 0].astype(np.int64)
    model.train(lambda: data, steps=2)
    result = model.evaluate(lambda: iter([data]))
    found = event_accumulator.EventAccumulator(str(tmp_path / "eval")).Reload()
    (text,) = found.Tensors("confusion/text_summary")
    rows = text.tensor_proto.string_val[0].decode().splitlines()[2:]
    cells = np.array([row.split("|")[2:-1] for row in rows], float)
    assert cells.sum() == 12
    assert np.trace(cells) / 12 == pytest.approx(result["accuracy"])
    assert found.Images("confusion/image")


def write(folder, loss, step):
    results.write_evaluation(
        str(folder), {"loss": loss, "global_step": step}, step, "", {}
    )


def test_a_repeated_evaluation_is_not_written_again(tmp_path):
    for step in (100, 200, 200, 100):
        write(tmp_path, step / 1000, step)
    assert points(tmp_path, "loss") == [(100, 0.1), (200, 0.2)]
    assert sum(bool(event.summary.value) for event in events(tmp_path)) == 2


def test_another_result_replaces_that_of_the_last_step(tmp_path):
    write(tmp_path, 0.1, 100)
    write(tmp_path, 0.2, 200)
    write(tmp_path, 0.3, 200)
    assert points(tmp_path, "loss") == [(100, 0.1), (200, 0.3)]
    assert summary.read_scalars(tmp_path)["loss"][1][1] == pytest.approx(0.3)


def test_what_another_process_wrote_is_not_written_again(tmp_path, monkeypatch):
    write(tmp_path, float("nan"), 100)
    monkeypatch.setattr(results, "_written", {})  # as a new process starts
    write(tmp_path, float("nan"), 100)
    assert len(points(tmp_path, "loss")) == 1


def test_a_folder_that_was_removed_is_written_anew(tmp_path):
    folder = tmp_path / "eval"
    write(folder, 0.1, 100)
    for path in folder.iterdir():
        path.unlink()
    write(folder, 0.1, 100)
    assert points(folder, "loss") == [(100, 0.1)]
