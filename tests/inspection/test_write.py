"""Whole reports of small models."""

import re
import sys

import numpy as np
import pytest
from inspection.test_page import check

import estimax as ex
from estimax.core.errors import ConfigError, FeatureError

pytest.importorskip("matplotlib")
RNG = np.random.default_rng(0)
X = RNG.normal(size=600).astype(np.float32)
CITY = np.array(["Oslo", "Rome", "<b>"])[RNG.integers(0, 3, 600)]
USER = np.array([f"u{i}" for i in RNG.integers(0, 40, 600)])
CLICK = (X + RNG.normal(size=600) > 0).astype(np.int64)


def input_of(labels):
    rows = {"x": X, "city": CITY, "user": USER}
    return lambda: ex.input.Dataset.from_tensor_slices((rows, labels)).batch(100)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of two heads, trained and evaluated."""
    head = ex.heads.MultiHead(
        [ex.heads.BinaryClassHead(name="click"), ex.heads.RegressionHead(name="price")]
    )
    folder = tmp_path_factory.mktemp("report")
    config = ex.RunConfig(save_summary_steps=5, tf_random_seed=1)
    columns = [ex.feature_columns.numeric_column("x")]
    model = ex.DNNEstimator(head, [4], columns, model_dir=folder, config=config)
    input_fn = input_of({"click": CLICK, "price": 2 * X})
    model.train(lambda: input_fn().repeat(), steps=20)
    model.evaluate(input_fn)
    return model, input_fn


@pytest.fixture(scope="module")
def html(model):
    path = ex.report.write_report(*model, group="user", importance_secs=30)
    assert path.name == "report.html"
    return path.read_text()


def headings(html):
    return re.findall(r"<h2>(.*?)</h2>", html)


def test_every_head_has_its_sections(html):
    assert headings(html) == [
        "Metrics",
        "Data",
        "Learning curves",
        "click: two classes",
        "click: ranking",
        "click: slices",
        "click: worst errors",
        "price: regression",
        "price: ranking",
        "price: slices",
        "price: worst errors",
        "Feature importance",
        "click: contributions",
        "price: contributions",
    ]


def test_contributions_are_shown_beside_the_importance(model, html):
    estimator, input_fn = model
    found = ex.inspection.integrated_gradients(
        estimator, input_fn, output="click/logits"
    )
    section = html[html.index("<h2>click: contributions") :]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", section)
    assert cells[0] == "x"
    assert float(cells[1]) == pytest.approx(found.mean_absolute["x"], rel=0.02)
    assert float(cells[2]) != 0
    assert "importance (loss)" in section


def test_the_file_needs_nothing_else_and_escapes_the_data(html):
    check(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    assert "&lt;b&gt;" in html
    assert "city = <b>" not in html
    outside = re.findall(r'(?:src|href|xlink:href)="(?!#)[^"]*"', html)
    assert outside == []
    assert "@import" not in html


def test_figures_have_the_colors_of_the_page(html):
    assert "var(--series-1)" in html
    for placeholder in ("#010203", "#040506", "#0a0b0"):
        assert placeholder not in html
    svgs = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(svgs) > 8
    # Text in black would not be legible on a dark screen.
    assert all("fill: #000" not in svg for svg in svgs)


def test_the_numbers_are_those_of_the_evaluation(model, html):
    estimator, input_fn = model
    auc = estimator.evaluate(input_fn, report=False)["auc/click"]
    shown = re.search(r"<b>([\d.]+)</b>area under ROC", html)
    assert float(shown[1]) == pytest.approx(auc, abs=0.002)


def test_several_classes_have_a_report(tmp_path):
    columns = [ex.feature_columns.numeric_column("x")]
    words = np.array(["low", "mid", "high"])
    labels = words[np.digitize(X, [-0.5, 0.5])]
    model = ex.LinearClassifier(
        columns, n_classes=3, label_vocabulary=list(words), model_dir=tmp_path
    )
    input_fn = input_of(labels)
    model.train(lambda: input_fn().repeat(), steps=5)
    path = ex.report.write_report(
        model, input_fn, tmp_path / "a" / "b.html", max_rows=150, importance_secs=0
    )
    text = path.read_text()
    assert "Classes" in headings(text)
    assert "150 rows" in text, "spread over the 600"
    assert "Confusion matrix" in text


def test_a_group_that_is_no_feature_is_an_error(model):
    with pytest.raises(FeatureError, match=r"group: no feature 'usr'.*user"):
        ex.report.write_report(*model, group="usr")


def test_without_matplotlib_the_error_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'estimax\[report\]'"):
        ex.report.write_report(*model)


def test_a_model_without_labels_has_a_report(tmp_path):
    columns = [ex.feature_columns.numeric_column("x")]
    model = ex.KMeans(2, model_dir=tmp_path, feature_columns=columns)

    def input_fn():
        return ex.input.Dataset.from_tensor_slices({"x": X}).batch(100)

    model.train(lambda: input_fn().repeat(), steps=5)
    text = ex.report.write_report(model, input_fn, max_rows=50).read_text()
    assert headings(text)[:2] == ["Metrics", "Data"]
    assert "How much worse loss is" in text, "features are shuffled without labels"


def test_metrics_are_those_of_the_evaluation_of_the_data(model):
    estimator, input_fn = model
    estimator.evaluate(input_fn, steps=1, name="a_slice")
    common = {"path": None, "importance_secs": 0}
    for name, source in [
        ("a_slice", "all data of eval_a_slice"),
        ("another", "the rows of this report"),
        (None, "all data of eval,"),
    ]:
        path = ex.report.write_report(estimator, input_fn, evaluation=name, **common)
        assert f"Evaluated on {source}" in path.read_text()
