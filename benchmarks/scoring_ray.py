"""Score a file on local Ray with `RayPredictor`, and print the seconds as JSON.

scoring_ray.py BUNDLE INPUT OUTPUT
"""

from __future__ import annotations

import json
import sys
import time

import ray

import estimax as ex

bundle, given, output = sys.argv[1:]
# One processor more than there are actors: reading and writing are tasks as well.
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
began = time.monotonic()
read = ray.data.read_csv if given.endswith(".csv") else ray.data.read_parquet
scores = read(given).map_batches(
    ex.export.RayPredictor,
    fn_constructor_kwargs={"bundle": bundle, "keep": ["id"]},
    batch_format="pyarrow",
    batch_size=4096,
    concurrency=2,
)
scores.write_parquet(output)
seconds = time.monotonic() - began
ray.shutdown()
print(json.dumps({"seconds": seconds}))
