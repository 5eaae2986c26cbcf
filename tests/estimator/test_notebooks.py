"""What a notebook shows of an Estimator and of its bundle."""

import estimax as ex
from tests.estimator.tiny_models import data, line_model_fn


def test_an_estimator_shows_its_variables_and_its_step(tmp_path):
    model = ex.Estimator(line_model_fn, tmp_path)
    assert "no checkpoint" in model._repr_html_()
    page = model.train(data(), steps=3)._repr_html_()
    assert "step 3" in page
    assert "<td>line/kernel</td><td>[1, 1]</td><td>float32</td><td>4</td>" in page


def test_a_bundle_shows_its_signatures(tmp_path):
    model = ex.Estimator(line_model_fn, tmp_path / "m").train(data(), steps=1)
    bundle = ex.export.load(model.export_saved_model(tmp_path / "export"))
    page = bundle._repr_html_()
    assert "<td>serving_default</td><td>input</td><td>x</td><td>float32</td>" in page
    assert "<td>output</td><td>twice</td>" in page


def test_a_variable_table_is_a_table(tmp_path):
    model = ex.Estimator(line_model_fn, tmp_path)
    page = ex.inspection.variable_table(model, data())._repr_html_()
    assert "<td>line/kernel</td>" in page
    assert "2 variables" in page
