"""The optimizer that is advised for LinearSDCA reaches the optimum of LinearSDCA."""

import numpy as np
import pytest
from golden_files import load_golden

import estimax as ex


@pytest.mark.golden
def test_proximal_adagrad_reaches_the_optimum_of_linear_sdca():
    golden = load_golden("linear_sdca.json")
    x, city = np.array(golden["x"], np.float32), np.array(golden["city"])
    fit = golden["fits"][1]  # l1 = 2 and l2 = 4: two weights are exactly 0
    count = len(x)
    column = ex.feature_columns
    columns = [
        column.numeric_column("x", shape=(2,)),
        column.categorical_column_with_identity("city", 4),
    ]
    optimizer = ex.optimizers.ProximalAdagrad(
        0.5,
        l1_regularization_strength=fit["l1"] / count,
        l2_regularization_strength=fit["l2"] / count,
    )
    model = ex.LinearClassifier(columns, optimizer=optimizer)
    batch = {"x": x, "city": city[:, None]}, np.array(golden["y"])
    model.train(lambda: batch, steps=500)
    for name, expected in fit["variables"].items():
        if not name.endswith("unshrunk"):
            found = model.get_variable_value(name)
            # TensorFlow's own solver stops at 1e-6 of its optimum.
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
