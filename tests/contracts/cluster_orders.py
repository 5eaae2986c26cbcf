"""Train in turns with what the chief does alone, in every order of two operations.

    python cluster_orders.py MODEL_DIR by_hand OUTPUT.json

Without TF_CONFIG one process does it all.
"""

import json
import sys

import numpy as np
from models import MODELS, OPERATIONS, Calls, order_of

import estimax as ex


def main(model_dir, model, output):
    config = ex.RunConfig(
        model_dir, tf_random_seed=4, lost_after_secs=30, keep_checkpoint_max=0
    )
    calls = Calls(MODELS[model](config))
    found = []
    # The first checkpoint and bundle, which some orders begin with.
    for operation in ["train", "export", *order_of(OPERATIONS, 2)]:
        if operation == "train":
            calls.train()  # all processes together
        elif config.is_chief:
            result = getattr(calls, operation)() or {}
            numbers = {name: np.asarray(v).tolist() for name, v in result.items()}
            found.append([operation, numbers])
    if config.is_chief:
        with open(output, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
