"""Rows for tests of averages: a binary label of a number and a city."""

import numpy as np

ROWS = 300


def table(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=ROWS).astype(np.float32)
    city = rng.choice(["Oslo", "Rome", "Lima"], ROWS)
    chance = 1 / (1 + np.exp(-(2 * x + 2 * (city == "Rome"))))
    return {"x": x, "city": city}, (rng.random(ROWS) < chance).astype(np.int32)


TRAIN, HELD, TEST = table(1), table(2), table(3)
