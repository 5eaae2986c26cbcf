"""Predict the rows of Spark data frames with a bundle.

    predictor = SparkPredictor("export", keep=["id"])
    scores = predictor.transform(frame)                       # mapInArrow

    predict = spark_udf("export", output="probabilities")     # a pandas UDF
    frame.withColumn("p", predict())

Every Python worker of Spark loads the bundle from disk, once, and imports no training
code. It needs `pip install 'estimax[spark]'` and Java.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from estimax.core.errors import BundleError, ConfigError, did_you_mean
from estimax.export.arrow_tables import arrow_types
from estimax.export.bundle import Bundle
from estimax.export.bundle_reference import ALL, BundleReference
from estimax.export.signature import Signature

# Spark has no unsigned and no short floating-point numbers. Arrow type -> the type that
# holds all of its values, except for uint64.
_WIDER = {
    "halffloat": "float32",
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
}
_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
}


class SparkPredictor:
    """Predicts the rows of Spark data frames, with `mapInArrow` or `mapInPandas`.

    Use it to score a whole data frame; `spark_udf` adds a column to one. It is sent to
    the workers as a path and a few names, and each worker loads the bundle from there:
    the folder must be at the same path on all machines, or at `worker_path`.

    Args:
      bundle: A bundle, or the path of one, or of a folder of versions, of which the
        newest is used.
      signature: The signature to call. None: `Bundle.default_signature`.
      keep: The columns of the data frame to return beside the predictions; `"*"` for
        all.
      worker_path: The path of the bundle on the workers, if it is another one. A
        relative path is looked up in the working directory of the worker, and then
        among what Spark has sent with `addArchive` or `spark.archives`.

    Raises:
      MissingFileError: There is no such folder.
      BundleError: The bundle is damaged, has no such signature, or a column to keep has
        the name of an output.

    Example:
      >>> SparkPredictor("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
      Traceback (most recent call last):
      MissingFileError: no/such/folder: expected a bundle's folder, found none.
    """

    def __init__(
        self,
        bundle: Bundle | str | os.PathLike[str],
        *,
        signature: str | None = None,
        keep: Sequence[str] = (),
        worker_path: str | None = None,
    ) -> None:
        self._reference, self._called = BundleReference.of(
            bundle, signature=signature, keep=keep, worker_path=worker_path
        )

    def transform(self, frame: Any) -> Any:
        """Return a data frame of the kept columns and the predictions.

        Args:
          frame: A Spark `DataFrame` with a column for each feature.

        Returns:
          A `DataFrame`, computed when an action needs it.

        Raises:
          BundleError: The data frame lacks a feature or a column to keep.
        """
        self._check_columns(frame.columns)
        return frame.mapInArrow(self.map_arrow, self.schema(frame))

    def schema(self, frame: Any) -> Any:
        """Return the schema of the result, for `mapInArrow` and `mapInPandas`.

        Args:
          frame: The `DataFrame` to predict, whose kept columns are in the schema.

        Returns:
          A `StructType`.
        """
        from pyspark.sql.types import StructType

        names = (
            frame.columns if self._reference.keep == (ALL,) else self._reference.keep
        )
        outputs = StructType.fromDDL(_ddl(_spark_types(self._called)))
        return StructType([*(frame.schema[name] for name in names), *outputs.fields])

    def map_arrow(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Predict batches of rows; the function for `DataFrame.mapInArrow`.

        Args:
          batches: pyarrow RecordBatches.

        Yields:
          RecordBatches of the kept columns and the predictions.
        """
        import pyarrow as pa

        reference = _on_worker(self._reference)
        for batch in batches:
            scored = reference.score_arrow(batch)
            yield pa.RecordBatch.from_pydict(_as_spark(scored, self._called))

    def map_pandas(self, frames: Iterable[Any]) -> Iterator[Any]:
        """Predict data frames of pandas; the function for `DataFrame.mapInPandas`.

        Args:
          frames: pandas DataFrames.

        Yields:
          DataFrames of the kept columns and the predictions.
        """
        yield from map(_on_worker(self._reference).score_frame, frames)

    def _check_columns(self, found: Sequence[str]) -> None:
        needed = [spec.name for spec in self._called.inputs]
        kept = () if self._reference.keep == (ALL,) else self._reference.keep
        for what, names in (("the bundle needs a", needed), ("keep: no", kept)):
            for name in names:
                if name not in found:
                    near = did_you_mean(name, found, listed_as="found")
                    raise BundleError(f"{what} column {name!r}{near}")


def spark_udf(
    bundle: Bundle | str | os.PathLike[str],
    signature: str | None = None,
    *,
    output: str | None = None,
    worker_path: str | None = None,
) -> Callable[..., Any]:
    """Return a function that adds predictions to a Spark data frame, as a pandas UDF.

    Use it in `withColumn` and `select`. For a whole data frame, `SparkPredictor` moves
    less data between Java and Python.

    Args:
      bundle: A bundle, or the path of one, or of a folder of versions.
      signature: The signature to call. None: `Bundle.default_signature`.
      output: The output to return as a column. None: a struct of all outputs.
      worker_path: The path of the bundle on the workers, if it is another one, as for
        `SparkPredictor`.

    Returns:
      A function. `predict()` reads the columns that have the names of the features;
      `predict(age=frame.years)` reads others. It returns a Spark `Column`.

    Raises:
      MissingFileError: There is no such folder.
      BundleError: The bundle is damaged, or has no such signature or output.

    Example:
      >>> spark_udf("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
      Traceback (most recent call last):
      MissingFileError: no/such/folder: expected a bundle's folder, found none.
    """
    reference, called = BundleReference.of(
        bundle, signature=signature, worker_path=worker_path
    )
    types = _spark_types(called)
    if output is not None and output not in types:
        raise BundleError(f"unknown output {output!r}{did_you_mean(output, types)}")
    import pandas as pd
    from pyspark.sql.functions import col, pandas_udf, struct

    def predict_frames(frames: Any) -> Any:
        here = _on_worker(reference)
        for frame in frames:
            scored = here.score_frame(frame)
            yield scored if output is None else scored[output]

    # Spark finds out from the annotations what kind of UDF this is.
    returned = pd.DataFrame if output is None else pd.Series
    predict_frames.__annotations__ = {
        "frames": Iterator[pd.DataFrame],
        "return": Iterator[returned],  # type: ignore[valid-type]
    }
    result = _ddl(types) if output is None else types[output]
    udf = pandas_udf(predict_frames, result)
    features = [spec.name for spec in called.inputs]

    def predict(**columns: Any) -> Any:
        """Return the column of predictions."""
        for name in columns:
            if name not in features:
                raise ConfigError(
                    f"the model has no feature {name!r}{did_you_mean(name, features)}"
                )
        given = (columns.get(name, col(_quote_name(name))) for name in features)
        named = (c.alias(name) for c, name in zip(given, features, strict=True))
        return udf(struct(*named))

    return predict


def _on_worker(reference: BundleReference) -> BundleReference:
    """Return the reference with the path at which this worker has the bundle."""
    if os.path.isabs(reference.path) or os.path.isdir(reference.path):
        return reference
    from pyspark import SparkFiles

    return replace(reference, path=SparkFiles.get(reference.path))


def _as_spark(columns: Mapping[str, Any], called: Signature) -> dict[str, Any]:
    """Return Arrow columns in types that Spark has."""
    import pyarrow as pa

    outputs = arrow_types(called)
    return {
        name: array.cast(_wider(pa, array.type)) if name in outputs else array
        for name, array in columns.items()
    }


def _spark_types(called: Signature) -> dict[str, str]:
    """Return output name to the name of its type in Spark."""
    import pyarrow as pa

    return {n: _type_name(_wider(pa, t)) for n, t in arrow_types(called).items()}


def _wider(pa: Any, kind: Any) -> Any:
    if pa.types.is_list(kind):
        return pa.list_(_wider(pa, kind.value_type))
    wider = _WIDER.get(str(kind))
    return kind if wider is None else pa.type_for_alias(wider)


def _type_name(kind: Any) -> str:
    text = str(kind)
    if text in _NAMES:
        return _NAMES[text]
    return f"array<{_type_name(kind.value_type)}>"


def _ddl(types: Mapping[str, str]) -> str:
    return ", ".join(f"{_quote_name(name)} {kind}" for name, kind in types.items())


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
