"""Score a Parquet file on local Spark in every way, with a worker that is killed.

    spark_scores.py BUNDLE INPUT OUTPUT

Writes OUTPUT/arrow, OUTPUT/pandas and OUTPUT/udf, each with the keys and scores.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark import TaskContext
from pyspark.sql import SparkSession

import estimax as ex

TRAINING = ("flax", "optax", "estimax.training", "estimax.estimator", "estimax.heads")


def without_training_code(batches):
    """The function to map, which fails if the worker has imported training code."""
    for batch in predictor.map_arrow(batches):
        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            Path(output, "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loaded = [name for name in sys.modules if name.startswith(TRAINING)]
        assert not loaded, loaded
        yield batch


bundle, given, output = sys.argv[1:]
# A task that fails is tried up to three times.
spark = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    .getOrCreate()
)
frame = spark.read.parquet(given).repartition(4)
predictor = ex.export.SparkPredictor(bundle, keep=["id"])
schema = predictor.schema(frame)
frame.mapInArrow(without_training_code, schema).write.parquet(f"{output}/arrow")
frame.mapInPandas(predictor.map_pandas, schema).write.parquet(f"{output}/pandas")
predict = ex.export.spark_udf(bundle, output="probabilities")
renamed = frame.withColumnRenamed("age", "years")
(
    renamed.withColumn("probabilities", predict(age=renamed.years))
    .select("id", "probabilities")
    .write.parquet(f"{output}/udf")
)
all_outputs = ex.export.spark_udf(bundle)
whole = frame.limit(5).withColumn("scores", all_outputs()).select("scores.*")
print(whole.schema.simpleString())
assert {row.classes for row in whole.collect()} <= {"no", "yes"}
# A bundle that Spark sends to the workers.
archive = shutil.make_archive(f"{output}/archive", "zip", bundle)
spark.sparkContext.addArchive(f"{archive}#model")
sent = ex.export.SparkPredictor(bundle, keep="*", worker_path="model")
assert sent.transform(frame).count() == frame.count()
spark.stop()
