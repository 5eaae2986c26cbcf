"""What the metrics of a trained model say, worked by hand."""

import pytest

from estimax.config.verdict import perfect_metric


@pytest.mark.parametrize(
    ("metrics", "baseline", "told"),
    [
        ({"accuracy": 1.0, "average_loss": 0.01}, {"accuracy": 0.6}, "accuracy is 1"),
        ({"accuracy": 0.99, "auc": 1.0}, {"accuracy": 0.6}, "auc is 1"),
        (
            {"accuracy": 0.999, "average_loss": 8e-6},
            {"accuracy": 0.6},
            "average_loss is 8e-06",
        ),
        ({"accuracy": 0.99, "auc": 0.999, "average_loss": 0.01}, {}, None),
        ({"accuracy": 1.0}, {"accuracy": 1.0}, None),
        ({"average_loss": 0.01}, {"average_loss": 1000.0}, "R² is 0.9999900"),
        ({"average_loss": 1e-6}, {"average_loss": 1e-5}, None),
        ({"average_loss": 1e-6}, {}, None),
        ({}, {}, None),
    ],
)
def test_a_perfect_metric_is_named(metrics, baseline, told):
    assert perfect_metric(metrics, baseline) == told
