"""Score Parquet files on Spark, with a bundle.

    pip install 'estimax[spark]'            # and Java
    PYSPARK_PYTHON=$(which python) python examples/scoring/on_spark.py \
        /tmp/nightly/export "/tmp/nightly/customers/*.parquet" /tmp/nightly/spark

`nightly.py` makes the bundle and the files. On a cluster, use `spark-submit`, and a
path that all machines see; the guide on scoring says how Spark sends a bundle along.
"""

import sys

from pyspark.sql import SparkSession

import estimax as ex

bundle, files, output = sys.argv[1:]
spark = SparkSession.builder.appName("scores").getOrCreate()
customers = spark.read.parquet(files)
scores = ex.export.SparkPredictor(bundle, keep=["customer"]).transform(customers)
scores.write.mode("overwrite").parquet(output)

# The same as a column, for a few customers.
predict = ex.export.spark_udf(bundle, output="logistic")
customers.limit(3).select("customer", predict().alias("cancels")).show()
spark.stop()
