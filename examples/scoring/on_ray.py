"""Score Parquet files on Ray, with a bundle.

    pip install 'estimax[ray]'
    python examples/scoring/on_ray.py \
        /tmp/nightly/export "/tmp/nightly/customers" /tmp/nightly/ray

`nightly.py` makes the bundle and the files. On a cluster, use paths that all machines
see.
"""

import sys

import ray

import estimax as ex

bundle, files, output = sys.argv[1:]
scores = ray.data.read_parquet(files).map_batches(
    ex.export.RayPredictor,
    fn_constructor_kwargs={"bundle": bundle, "keep": ["customer"]},
    batch_format="pyarrow",
    batch_size=4096,
    concurrency=(1, 2),  # processes, as work and processors allow
)
scores.write_parquet(output)
