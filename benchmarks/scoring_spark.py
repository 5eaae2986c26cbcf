"""Score a file on local Spark with `SparkPredictor`, and print the seconds as JSON.

scoring_spark.py BUNDLE INPUT OUTPUT
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import estimax as ex

bundle, given, output = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.memory", "4g")
    .getOrCreate()
)
began = time.monotonic()
reader = spark.read.option("header", True).option("inferSchema", True)
frame = reader.csv(given) if given.endswith(".csv") else reader.parquet(given)
scores = ex.export.SparkPredictor(bundle, keep=["id"]).transform(frame)
scores.write.parquet(output)
seconds = time.monotonic() - began
spark.stop()
print(json.dumps({"seconds": seconds}))
