"""Bundles in the workers of Spark and Ray, without and with the real ones."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

import estimax as ex
from estimax.core.errors import BundleError
from estimax.export.spark import _spark_types
from tests.export import bundles

PROGRAMS = Path(__file__).parent / "programs"
TABLE = bundles.table(300)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return bundles.write_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def expected(bundle):
    return bundles.expected(bundle, TABLE)


def scores(keys, probabilities):
    return dict(zip(keys, (float(p[0]) for p in probabilities), strict=True))


FORMS = {
    "pyarrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "numpy": lambda table: {n: np.asarray(table[n]) for n in table.column_names},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_ray_batch_is_answered_in_its_form(bundle, expected, form):
    predict = ex.export.RayPredictor(bundle, keep=["id", "note"])
    given = FORMS[form](TABLE)
    found = predict(given)
    assert isinstance(found, type(given))
    assert list(found if form == "numpy" else pa.table(found).column_names) == [
        *("id", "note", "class_ids", "classes", "logits", "probabilities")
    ]
    assert set(np.asarray(found["classes"])) == {"no", "yes"}
    keys, probabilities = np.asarray(found["id"]), found["probabilities"]
    probabilities = (
        probabilities.to_pylist() if form == "pyarrow" else list(probabilities)
    )
    assert scores(keys.tolist(), probabilities) == expected


def test_all_columns_can_be_kept(bundle):
    predict = ex.export.RayPredictor(bundle, keep="*")
    assert predict(TABLE).column_names[:5] == TABLE.column_names
    named = TABLE.append_column("classes", TABLE["note"])
    with pytest.raises(BundleError, match=r"an output 'classes'.*Rename or drop"):
        predict(named)


def test_mistakes_are_explained(bundle, tmp_path):
    with pytest.raises(BundleError, match="keep: no column 'ids'; did you mean 'id'"):
        ex.export.RayPredictor(bundle, keep=["ids"])(TABLE)
    with pytest.raises(BundleError, match="an output 'logits'"):
        ex.export.SparkPredictor(bundle, keep=["logits"])
    with pytest.raises(BundleError, match="unknown signature 'predct'; did you mean"):
        ex.export.SparkPredictor(bundle, signature="predct")
    with pytest.raises(BundleError, match="unknown output 'probs'"):
        ex.export.spark_udf(bundle, output="probs")
    with pytest.raises(BundleError, match="'age' is missing"):
        ex.export.RayPredictor(bundle)(TABLE.drop_columns(["age"]))


def test_a_worker_with_another_bundle_raises(bundle, tmp_path):
    other = bundles.write_bundle(tmp_path)
    here = ex.export.SparkPredictor(bundle, keep=["id"], worker_path=str(bundle))
    assert len(next(here.map_arrow(TABLE.to_batches()))) == 300
    predictor = ex.export.SparkPredictor(bundle, worker_path=str(other))
    with pytest.raises(BundleError, match="expected the bundle that the driver has"):
        next(predictor.map_arrow(TABLE.to_batches()))


def test_functions_of_spark_score_batches(bundle, expected):
    predictor = ex.export.SparkPredictor(ex.export.load(bundle), keep=["id"])
    for batch in predictor.map_arrow(TABLE.to_batches()):
        assert batch.schema.field("probabilities").type == pa.list_(pa.float32())
        found = batch.to_pydict()
        assert scores(found["id"], found["probabilities"]) == expected
    for frame in predictor.map_pandas([TABLE.to_pandas()]):
        assert isinstance(frame, pd.DataFrame)
        assert scores(frame["id"], frame["probabilities"]) == expected


def test_outputs_have_types_that_spark_has():
    def spec(name, dtype, *tail):
        return ex.export.TensorInfo(name, dtype, (None, *tail))

    outputs = (
        spec("id", "uint8", 1),
        spec("half", "bfloat16"),
        spec("steps", "float64", None, 3),
        spec("word", "string"),
        spec("all_classes", "string", 2),
    )
    signature = ex.export.Signature("predict", ex.export.PREDICT, (), outputs)
    assert _spark_types(signature) == {
        "id": "smallint",
        "half": "float",
        "steps": "array<array<double>>",
        "word": "string",
    }


def run_program(name, *arguments):
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, PROGRAMS / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=arguments[-1],
        env={**environment, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def check_folder(folder, expected):
    """Every key is there once, with its score."""
    table = pyarrow.dataset.dataset(folder, format="parquet").to_table()
    assert sorted(table["id"].to_pylist()) == sorted(expected)
    found = scores(table["id"].to_pylist(), table["probabilities"].to_pylist())
    keys = sorted(expected)
    np.testing.assert_allclose(
        [found[k] for k in keys], [expected[k] for k in keys], rtol=1e-5
    )


@pytest.mark.slow
def test_spark_scores_every_row_once_although_a_worker_is_killed(
    bundle, expected, tmp_path
):
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs pyspark: pip install 'estimax[spark]'")
    if shutil.which("java") is None:
        pytest.skip("needs Java, for example Debian's default-jre-headless")
    given = bundles.write(TABLE, tmp_path / "in.parquet")
    shown = run_program("spark_scores.py", bundle, given, tmp_path)
    assert (tmp_path / "killed").exists()
    for how in ("arrow", "pandas", "udf"):
        check_folder(tmp_path / how, expected)
    types = "class_ids:bigint,classes:string,logits:array<float>"
    assert f"struct<{types},probabilities:array<float>>" in shown


@pytest.mark.slow
def test_ray_scores_every_row_once_although_an_actor_dies(bundle, expected, tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs ray: pip install 'estimax[ray]'")
    given = bundles.write(TABLE, tmp_path / "in.parquet")
    run_program("ray_scores.py", bundle, given, tmp_path)
    for form in FORMS:
        assert (tmp_path / f"died-{form}").exists()
        check_folder(tmp_path / form, expected)
