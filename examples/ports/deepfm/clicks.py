"""Write a libsvm file shaped like the Criteo clicks: 39 features in every line.

    python examples/ports/deepfm/clicks.py clicks.libsvm --rows 20000

A line is `label id:value id:value …`. Ids 1 to 13 are numbers; then come 26 categorical
features with the value 1, whose ids follow a power law. Clicks depend on a weight of
each id and on products of two vectors, so that a factorization machine can learn them.
The same seed gives the same lines.
"""

import argparse
from pathlib import Path

import numpy as np

NUMBERS, CATEGORIES = 13, 26
FIELD_SIZE = NUMBERS + CATEGORIES
FEATURE_SIZE = 117_581  # ids are smaller


def write(path, rows, seed=1, feature_size=FEATURE_SIZE):
    """Write `rows` lines to `path`."""
    draw = np.random.default_rng(seed)
    values = draw.random((rows, NUMBERS)).round(4)
    size = (feature_size - NUMBERS - 1) // CATEGORIES  # ids of one categorical feature
    rank = np.minimum(size ** draw.random((rows, CATEGORIES)), size).astype(int) - 1
    ids = NUMBERS + 1 + rank + size * np.arange(CATEGORIES)
    score = _weights(1, feature_size)[ids].sum(1) + 2 * values[:, 0] - values[:, 1]
    vectors = 0.4 * np.stack([_weights(k, feature_size) for k in range(2, 6)], -1)
    score += (vectors[ids[:, 0]] * vectors[ids[:, 1]]).sum(1)
    labels = (score + draw.logistic(0, 0.5, rows) > np.quantile(score, 0.7)).astype(int)
    lines = map(_line, labels, values, ids)
    Path(path).write_text("\n".join(lines) + "\n")


def _weights(seed, feature_size):
    """One number of each id, the same in all files."""
    return np.random.default_rng(seed).normal(0, 0.6, feature_size)


def _line(label, values, ids):
    numbers = [f"{number}:{value:g}" for number, value in enumerate(values, 1)]
    return " ".join([str(label), *numbers, *(f"{number}:1" for number in ids)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.path, arguments.rows, arguments.seed)


if __name__ == "__main__":
    main()
