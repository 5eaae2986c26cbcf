"""Exporters: when to export, what to keep, and what survives a restart."""

import json

import numpy as np
import pytest

from estimax import export
from estimax.core.errors import BundleError, SpecError
from estimax.export.exporters import BEST_FILE, read_best


class Folders:
    """An estimator of folders: an export is an empty one, named by a counter."""

    def __init__(self, first=1700000000):
        self.next = first
        self.calls = []

    def export_saved_model(
        self, base, serving_input_receiver_fn, *, assets_extra, checkpoint_path, metrics
    ):
        self.calls.append((serving_input_receiver_fn, assets_extra, checkpoint_path))
        self.metrics = metrics
        path = base / str(self.next)
        path.mkdir(parents=True)
        self.next += 1
        return path


def run(exporter, estimator, base, results, *, final=False):
    """Export after each result; tells which of them were exported."""
    paths = [exporter.export(estimator, base, "ckpt", r, final) for r in results]
    return [path is not None for path in paths]


def losses(*values):
    return [{"loss": value} for value in values]


def test_the_final_exporter_waits_for_the_end(tmp_path):
    estimator, receive = Folders(), lambda: None
    exporter = export.FinalExporter("final", receive, {"a.txt": "b.txt"})
    assert run(exporter, estimator, tmp_path, losses(1.0)) == [False]
    assert run(exporter, estimator, tmp_path, losses(1.0), final=True) == [True]
    assert estimator.calls == [(receive, {"a.txt": "b.txt"}, "ckpt")]
    assert estimator.metrics == {"loss": 1.0}


def test_the_latest_exporter_keeps_the_newest_of_ten_digits(tmp_path):
    for name in ("123", "temp-1700000000", "20240101120000"):
        (tmp_path / name).mkdir()
    exporter = export.LatestExporter("latest", exports_to_keep=2)
    run(exporter, Folders(), tmp_path, losses(1.0, 2.0, 3.0, 4.0))
    left = {p.name for p in tmp_path.iterdir()}
    others = {"123", "temp-1700000000", "20240101120000"}
    assert left == others | {"1700000002", "1700000003"}


def test_none_keeps_every_export(tmp_path):
    exporter = export.LatestExporter("latest", exports_to_keep=None)
    run(exporter, Folders(), tmp_path, losses(*range(7)))
    assert len(list(tmp_path.iterdir())) == 7


def test_the_best_exporter_exports_only_what_is_better(tmp_path):
    exported = run(
        export.BestExporter(), Folders(), tmp_path, losses(3.0, 4.0, 3.0, 2.5)
    )
    assert exported == [True, False, False, True]
    best = read_best(tmp_path)
    assert best["eval_result"] == {"loss": 2.5}
    assert best["export"] == "1700000001"


def test_the_best_survives_a_restart(tmp_path):
    run(export.BestExporter(), Folders(), tmp_path, losses(3.0))
    again = Folders(1700000100)
    exported = run(export.BestExporter(), again, tmp_path, losses(4.5, 3.5, 2.0))
    assert exported == [False, False, True]


def test_the_best_is_never_pruned(tmp_path):
    for name in ("1800000000", "1800000001"):  # from a clock that ran ahead
        (tmp_path / name).mkdir()
    exporter = export.BestExporter(exports_to_keep=1)
    run(exporter, Folders(), tmp_path, losses(3.0))
    folders = {p.name for p in tmp_path.iterdir() if p.is_dir()}
    assert folders == {"1700000000", "1800000001"}


def test_the_best_is_written_as_plain_numbers(tmp_path):
    result = {
        "loss": np.float32(0.5),
        "global_step": np.int64(7),
        "matrix": np.eye(2, dtype=np.float32),
    }
    run(export.BestExporter(), Folders(), tmp_path, [result])
    written = json.loads((tmp_path / BEST_FILE).read_text())
    assert written["eval_result"] == {
        "loss": 0.5,
        "global_step": 7,
        "matrix": [[1.0, 0.0], [0.0, 1.0]],
    }


def test_a_first_nan_gives_way_to_a_number(tmp_path):
    nan = float("nan")
    exported = run(
        export.BestExporter(), Folders(), tmp_path, losses(nan, nan, 3.0, nan)
    )
    assert exported == [True, False, True, False]


def test_any_metric_can_be_the_measure(tmp_path):
    exporter = export.BestExporter(compare_fn=export.metric_compare("auc", "max"))
    results = [{"auc": 0.7}, {"auc": 0.6}, {"auc": 0.8}]
    assert run(exporter, Folders(), tmp_path, results) == [True, False, True]


def test_a_metric_that_is_not_there_names_its_neighbour():
    compare = export.metric_compare("acu")
    with pytest.raises(SpecError, match="no 'acu'; did you mean 'auc'"):
        compare({"auc": 0.5}, {"auc": 0.6})
    with pytest.raises(SpecError, match="unknown mode 'maximum'"):
        export.metric_compare("auc", "maximum")
    with pytest.raises(SpecError, match="no 'loss'"):
        export.loss_smaller({}, {"loss": 1.0})


def test_a_damaged_memory_of_the_best_says_how_to_go_on(tmp_path):
    (tmp_path / BEST_FILE).write_text("[")
    with pytest.raises(BundleError, match="Remove the file to start afresh"):
        run(export.BestExporter(), Folders(), tmp_path, losses(1.0))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: export.FinalExporter(""), "non-empty string"),
        (lambda: export.FinalExporter("a/b"), "name of one folder"),
        (lambda: export.LatestExporter("a", exports_to_keep=0), "must be positive"),
        (lambda: export.BestExporter(compare_fn=None), "must be a function"),
        (
            lambda: export.BestExporter(compare_fn=lambda best, current: True),
            r"arguments \(best_eval_result, current_eval_result\), found \(best",
        ),
    ],
)
def test_an_exporter_that_cannot_work_is_refused(build, words):
    with pytest.raises(SpecError, match=words):
        build()


def test_every_exporter_is_one():
    for exporter in (
        export.FinalExporter("a"),
        export.LatestExporter("b"),
        export.BestExporter("c"),
    ):
        assert isinstance(exporter, export.Exporter)
