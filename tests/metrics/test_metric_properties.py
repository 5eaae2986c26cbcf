"""Laws that every metric of examples has, on numbers that hypothesis makes.

The shapes are always the same, so that each metric is compiled a few times only.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from estimax import metrics

SETTINGS = settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
ROWS, CUT = 8, 5

BINARY = ["auc", "recall", "expected_calibration_error"]
# These take the mean over the last axis of a row, as in Keras.
ROWWISE = ["mean_squared_error", "log_cosh_error", "poisson"]
NUMBERS = [*ROWWISE, "root_mean_squared_error"]


@st.composite
def weighted(draw, labels, scores):
    numbers = [
        st.lists(kind, min_size=ROWS, max_size=ROWS) for kind in (labels, scores)
    ]
    weights = st.lists(
        st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=ROWS, max_size=ROWS
    )
    drawn = [draw(kind) for kind in (*numbers, weights)]
    return [np.array(column, np.float32) for column in drawn]


share = st.integers(0, 64).map(lambda n: n / 64)
number = st.integers(-40, 40).map(lambda n: n / 8)
CASES = [(name, weighted(st.sampled_from([0.0, 1.0]), share)) for name in BINARY]
CASES += [(name, weighted(number, number.map(abs))) for name in NUMBERS]
CASES = [pytest.param(getattr(metrics, n), s, id=n) for n, s in CASES]


def value(metric):
    return np.asarray(metric.compute())


def columns_of(metric, columns, part=slice(None)):
    labels, scores, weights = (column[part] for column in columns)
    if metric.__name__ in ROWWISE:
        return labels[:, None], scores[:, None], weights
    return labels, scores, weights


@pytest.mark.parametrize(("metric", "strategy"), CASES)
def test_batches_merge_in_any_order_to_the_metric_of_all(metric, strategy):
    @SETTINGS
    @given(strategy)
    def law(columns):
        whole = metric(*columns_of(metric, columns))
        first, rest = (metric(*columns_of(metric, columns, part)) for part in PARTS)
        np.testing.assert_allclose(value(first.merge(rest)), value(whole), **CLOSE)
        np.testing.assert_allclose(value(rest.merge(first)), value(whole), **CLOSE)
        np.testing.assert_allclose(value(metric().merge(whole)), value(whole), **CLOSE)

    law()


@pytest.mark.parametrize(("metric", "strategy"), CASES)
def test_examples_of_weight_0_do_not_count(metric, strategy):
    @SETTINGS
    @given(strategy)
    def law(columns):
        some = np.where(np.arange(ROWS) < CUT, columns[2], 0.0).astype(np.float32)
        masked = metric(*columns_of(metric, [*columns[:2], some]))
        without = metric(*columns_of(metric, columns, slice(CUT)))
        np.testing.assert_allclose(value(masked), value(without), **CLOSE)

    law()


PARTS = slice(0, CUT), slice(CUT, ROWS)
# Sums of float32 in another order.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
