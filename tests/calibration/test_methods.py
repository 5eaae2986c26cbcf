"""Calibrations of arrays, against closed forms and scikit-learn."""

import numpy as np
import pytest

import estimax as ex
from estimax.calibration.measures import reliability
from estimax.core.errors import InputError, LabelError, SpecError

METHODS = (ex.calibration.Temperature, ex.calibration.Platt, ex.calibration.Isotonic)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rows(count=4000, seed=0):
    """Labels, and logits of the true probabilities."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1.0, 1.5, count)
    return (rng.random(count) < sigmoid(logits)).astype(int), logits


def error(labels, p):
    return reliability(labels, p, np.ones(len(p))).error


def test_each_method_undoes_the_distortion_that_it_can_express():
    labels, logits = rows()
    others, other_logits = rows(seed=1)
    distortions = {
        ex.calibration.Temperature: lambda x: 3 * x,
        ex.calibration.Platt: lambda x: 2 * x + 1.5,
        ex.calibration.Isotonic: lambda x: np.where(x > 0, 4 * x, x / 2 - 2),
    }
    for method, distort in distortions.items():
        fitted = method().fit(labels, sigmoid(distort(logits)))
        given = sigmoid(distort(other_logits))
        found = fitted.apply(given)
        assert found.shape == (4000, 2)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
        assert error(others, given) > 0.07
        assert error(others, found[:, 1]) < 0.03
        # The report is of rows that were left out: as good as those of other rows.
        said = fitted.report["expected_calibration_error"]
        assert said["before"] == pytest.approx(error(labels, given_of(logits, distort)))
        assert said["after"] < 0.03
        assert fitted.report["log_loss"]["after"] < fitted.report["log_loss"]["before"]


def given_of(logits, distort):
    return sigmoid(distort(logits))


def test_temperature_and_platt_find_the_parameters():
    labels, logits = rows(20_000)
    fitted = ex.calibration.Temperature().fit(labels, sigmoid(3 * logits))
    assert float(fitted.arrays["temperature"]) == pytest.approx(3, rel=0.05)
    fitted = ex.calibration.Platt().fit(labels, sigmoid(2 * logits + 1))
    assert float(fitted.arrays["slopes"][0]) == pytest.approx(0.5, rel=0.05)
    assert float(fitted.arrays["offsets"][0]) == pytest.approx(-0.5, abs=0.05)


def test_isotonic_is_that_of_scikit_learn_with_weights_and_ties():
    isotonic = pytest.importorskip("sklearn.isotonic")
    labels, logits = rows(500)
    p = np.round(sigmoid(logits), 2).astype(np.float32)
    weights = np.random.default_rng(2).random(500)
    weights[::7] = 0
    fitted = ex.calibration.Isotonic().fit(labels, p, weights)
    other = isotonic.IsotonicRegression(out_of_bounds="clip").fit(p, labels, weights)
    asked = np.linspace(0, 1, 301, dtype=np.float32)
    np.testing.assert_allclose(
        fitted.apply(asked)[:, 1], other.predict(asked), atol=2e-6
    )


@pytest.mark.parametrize("method", METHODS)
def test_several_classes_are_calibrated_and_sum_to_one(method):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 3)) * 1.5
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (true.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    sure = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
    fitted = method().fit(labels, sure)
    found = fitted.apply(sure)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    said = fitted.report["expected_calibration_error"]
    assert said["before"] > 0.1
    assert said["after"] < 0.05


def test_certain_and_separated_predictions_stay_finite():
    labels = np.tile([0, 1], 20)
    sure = np.where(labels == 1, 1.0, 0.0)
    for method in METHODS:
        found = method().fit(labels, sure).apply(sure)
        assert np.isfinite(found).all()
        assert ((found[:, 1] > 0.5) == (labels == 1)).all()


@pytest.mark.parametrize(
    ("labels", "p", "kind", "words"),
    [
        ([], [], InputError, "there are no rows to fit on"),
        ([1, 1], [0.1, 0.2], LabelError, r"have only \[1\] \(no \[0\]\)"),
        ([0, 2], [0.1, 0.2], LabelError, "class ids from 0 to 1"),
        ([0, 1], [0.1], SpecError, r"got \[1, 2\] for \[2\]"),
        ([0, 1], [0.1, 1.2], SpecError, "not all within"),
        ([0, 1], [0.1, np.nan], SpecError, "not all within"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused(labels, p, kind, words):
    with pytest.raises(kind, match=words):
        ex.calibration.Isotonic().fit(labels, p)
    with pytest.raises(SpecError, match="a weight of at least 0"):
        ex.calibration.Isotonic().fit([0, 1], [0.1, 0.2], [1, -1])
