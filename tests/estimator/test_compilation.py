import os
import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import estimax as ex

def model_fn(features, mode):
    return ex.EstimatorSpec(mode, loss=features["x"].sum(),
                            train_op=ex.optimizers.SGD(0.1))

config = ex.RunConfig(compilation_cache_dir=sys.argv[1])
model = ex.Estimator(model_fn, sys.argv[2], config)
model.train(lambda: {"x": np.ones((2, 1), np.float32)}, steps=1)
"""


def test_compiled_programs_are_kept_where_the_config_says(tmp_path):
    cache = tmp_path / "cache"
    # In a process of its own: the setting would stay for the tests after this one.
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cache), str(tmp_path / "model")],
        check=True,
        env={**os.environ, "XLA_FLAGS": ""},
    )
    assert any("train" in name or "call" in name for name in os.listdir(cache))
