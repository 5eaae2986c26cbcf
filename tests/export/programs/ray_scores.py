"""Score a Parquet file on local Ray in every batch format, with an actor that dies.

    ray_scores.py BUNDLE INPUT OUTPUT

Writes OUTPUT/pyarrow, OUTPUT/pandas and OUTPUT/numpy, each with the keys and scores.
"""

import os
import sys
from pathlib import Path

import ray

import estimax as ex

TRAINING = ("flax", "optax", "estimax.training", "estimax.estimator", "estimax.heads")


class WithoutTrainingCode(ex.export.RayPredictor):
    """Fails if the actor has imported training code; the first one dies once."""

    def __init__(self, marker, **arguments):
        super().__init__(**arguments)
        self._marker = Path(marker)

    def __call__(self, batch):
        scored = super().__call__(batch)
        if not self._marker.exists():
            self._marker.touch()
            os._exit(1)
        loaded = [name for name in sys.modules if name.startswith(TRAINING)]
        assert not loaded, loaded
        return scored


bundle, given, output = sys.argv[1:]
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
for form in ("pyarrow", "pandas", "numpy"):
    rows = ray.data.read_parquet(given, override_num_blocks=4)
    scores = rows.map_batches(
        WithoutTrainingCode,
        fn_constructor_kwargs={
            "marker": f"{output}/died-{form}",
            "bundle": bundle,
            "keep": ["id"],
        },
        batch_format=form,
        batch_size=100,
        concurrency=2,
    )
    scores.write_parquet(f"{output}/{form}")
ray.shutdown()
