"""Compare optimizers and learning rates on the late flights.

    python examples/flights/prepare.py          # writes data/flights/*.csv
    python examples/flights/learning_rates.py

The same network is trained for one pass over the same batches with every setting. The
program prints the loss and the AUC on the test months, and marks the best rate of each
optimizer. Rates differ by about a factor of 3 to 10, which is how to search: first the
magnitude, then, if at all, the digits.
"""

import argparse
import tempfile
from pathlib import Path

from wide_and_deep import columns, input_fn, statistics

import estimax as ex

RATES = {
    "SGD": (0.01, 0.1, 1.0),
    "Momentum": (0.001, 0.01, 0.1),
    "Adagrad": (0.001, 0.01, 0.05, 0.2),
    "LazyAdam": (0.0001, 0.001, 0.01),
    "Adam": (0.001,),
    "Ftrl": (0.01, 0.1),
}


def trained(make, rate, deep, train, test, steps):
    """Train a new model and return its evaluation."""
    options = {"momentum": 0.9} if make is ex.optimizers.Momentum else {}
    with tempfile.TemporaryDirectory() as folder:
        model = ex.DNNClassifier(
            [64, 32],
            deep,
            folder,
            optimizer=make(rate, **options),
            config=ex.RunConfig(
                tf_random_seed=1, save_summary_steps=0, log_step_count_steps=None
            ),
        )
        return model.train(train, steps=steps).evaluate(test, steps=5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data/flights"))
    parser.add_argument("--steps", type=int, default=800)
    arguments = parser.parse_args()
    path = arguments.data / "train.csv"
    words, moments = statistics(path)
    _, deep = columns(words, moments)
    train = input_fn(path, moments, shuffle=True)
    test = input_fn(arguments.data / "test.csv", moments)

    for name, rates in RATES.items():
        make = getattr(ex.optimizers, name)
        found = {
            rate: trained(make, rate, deep, train, test, arguments.steps)
            for rate in rates
        }
        best = min(found, key=lambda rate: found[rate]["average_loss"])
        for rate, metrics in found.items():
            loss, auc = metrics["average_loss"], metrics["auc"]
            mark = "  <- best rate" if rate == best and len(rates) > 1 else ""
            print(f"{name:9} {rate:<7g} loss {loss:.4f}  AUC {auc:.4f}{mark}")


if __name__ == "__main__":
    main()
