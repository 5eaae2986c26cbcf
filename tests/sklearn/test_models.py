"""`ex.sklearn`: fit and predict of tables, with the tools of scikit-learn."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import estimax as ex


def people(rows=240, seed=0):
    """Numbers, words, categories, dates and booleans, with missing values."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 80, rows)
    city = rng.choice(["Oslo", "Rome", "Bonn"], rows)
    label = np.where((age > 50) ^ (city == "Rome"), "yes", "no")
    age[::20] = np.nan
    frame = pd.DataFrame(
        {
            "age": age,
            "city": pd.Categorical(city),
            "rooms": pd.array(rng.integers(1, 5, rows), "Int64"),
            "member": rng.random(rows) > 0.5,
            "since": pd.date_range("2024-01-01", periods=rows),
            "country": "NO",
        }
    )
    frame.loc[3, "city"] = None
    frame.loc[5, "rooms"] = pd.NA
    return frame, label


@pytest.fixture(scope="module")
def trained():
    frame, label = people()
    model = ex.sklearn.Classifier("trees", max_steps=30, random_state=0)
    return model.fit(frame, label)


def test_a_frame_of_all_kinds_of_columns_is_learned(trained):
    frame, label = people(seed=1)
    probabilities = trained.predict_proba(frame)
    assert trained.classes_.tolist() == ["no", "yes"]
    assert probabilities.shape == (240, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert trained.score(frame, label) > 0.85  # a constant has 0.5
    assert trained.n_features_in_ == 6
    assert trained.feature_names_in_.tolist() == frame.columns.tolist()
    assert trained.left_out_ == {"country": "is 'NO' in every row"}


def test_a_model_is_copied_by_pickle_deepcopy_and_as_a_bundle(trained, tmp_path):
    frame, _ = people(20, seed=2)
    expected = trained.predict_proba(frame)
    for other in (pickle.loads(pickle.dumps(trained)), copy.deepcopy(trained)):
        np.testing.assert_array_equal(other.predict_proba(frame), expected)
    bundle = ex.export.load(trained.write_bundle(tmp_path / "bundle"))
    assert bundle.predict(
        frame[["age", "city", "rooms", "member", "since"]].assign(
            city=["Oslo"] * 20, rooms=1, member=1, since="2024-01-01"
        )
    )["class_ids"].shape == (20, 1)
    with pytest.raises(ValueError, match="expected an empty folder"):
        trained.write_bundle(tmp_path / "bundle")


def test_the_next_table_may_have_other_types_and_values(trained):
    frame, _ = people(40, seed=3)
    expected = trained.predict_proba(frame)
    other = frame.assign(
        city=frame["city"].astype(object),  # as words
        rooms=frame["rooms"].astype("float64"),
        since=frame["since"].dt.strftime("%Y-%m-%d"),
        country=np.nan,
    )
    np.testing.assert_array_equal(trained.predict_proba(other), expected)
    frame["city"] = "Paris"
    frame["age"] = np.nan
    assert np.isfinite(trained.predict_proba(frame)).all()


def test_what_cannot_be_read_is_told(trained):
    frame, label = people(20)
    with pytest.raises(ValueError, match=r"'age' of X: expected numbers.*'old'"):
        trained.predict(frame.assign(age="old"))
    with pytest.raises(ValueError, match="column 'age' has an infinite number"):
        trained.predict(frame.assign(age=np.inf))
    with pytest.raises(TypeError, match="column 'age' of X has no numbers"):
        trained.predict(frame.assign(age=[{}] * 20))
    for wrong, message in (
        ({"model": "tree"}, "model: expected one of .*did you mean 'trees'"),
        ({"validation_fraction": 1.5}, "validation_fraction: expected a share"),
        ({"max_steps": 0}, "max_steps: expected a number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ex.sklearn.Classifier(**wrong).fit(frame, label)
    with pytest.raises(ValueError, match="at least two classes, found one class: 'a'"):
        ex.sklearn.Classifier().fit(frame, ["a"] * 20)
    with pytest.raises(ValueError, match="at least 2 rows to train on, found 1 sample"):
        ex.sklearn.Regressor().fit([[1.0, 2.0]], [3.0])


def test_a_pipeline_with_a_regressor_is_cross_validated():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(160, 3))
    target = 50 + 10 * features[:, 0]
    model = ex.sklearn.Regressor("trees", max_steps=40, random_state=0)
    pipeline = make_pipeline(FunctionTransformer(), model)
    scores = cross_val_score(pipeline, features, target, cv=2)
    assert scores.min() > 0.5  # of R²; a constant has 0
    assert clone(model).get_params() == model.get_params()


def test_a_model_dir_holds_the_last_fit_and_one_seed_gives_the_same_model(tmp_path):
    frame, label = people()
    weights = np.where(label == "yes", 1.0, 0.001)
    model = ex.sklearn.Classifier("trees", max_steps=30, random_state=0)
    model.set_params(model_dir=tmp_path / "run")
    answers = []
    for _ in range(2):
        model.fit(frame, label, sample_weight=weights)
        answers.append(model.predict_proba(frame))
        assert (tmp_path / "run" / "config" / "resolved.yaml").is_file()
    np.testing.assert_array_equal(*answers)
    assert answers[0][:, 1].min() > 0.8  # "no" hardly counts
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    model.set_params(model_dir=str(tmp_path / "other"))
    with pytest.raises(ValueError, match="not made by estimax"):
        model.fit(frame, label)


def test_without_scikit_learn_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['sklearn'] = None; import estimax as ex\n"
        "from estimax import *\n"
        "ex.sklearn.Regressor"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert 'pip install "estimax[sklearn]"' in done.stderr


@pytest.mark.slow  # minutes: each check trains models
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_scikit_learns_own_checks_pass(kind):
    estimator = getattr(ex.sklearn, kind)("linear", max_steps=300, random_state=0)
    found = check_estimator(
        estimator, on_skip=None, expected_failed_checks=EXPECTED_TO_FAIL
    )
    failed = {check["check_name"] for check in found if check["status"] == "xfail"}
    assert failed == EXPECTED_TO_FAIL.keys()


# The same list is in docs/guides/scikit_learn.md.
EXPECTED_TO_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": (
        "rows are held out at random, and batches have a number of rows, whatever "
        "their weights"
    )
}


@pytest.mark.slow
def test_a_search_tries_parameters():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(160, 3))
    target = 50 + 10 * features[:, 0]
    pipeline = make_pipeline(FunctionTransformer(), ex.sklearn.Regressor("trees"))
    grid = {"regressor__max_steps": [1, 40]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(features, target)
    assert search.best_params_ == {"regressor__max_steps": 40}
    assert search.predict(features[:3]).shape == (3,)


@pytest.mark.slow  # it compiles networks
@pytest.mark.parametrize("model", ["network", "both", "linear"])
def test_every_model_learns(model):
    frame, label = people(600)
    if model == "linear":  # which cannot learn that age and city turn each other around
        label = np.where(frame["age"] > 50, "yes", "no")
    estimator = ex.sklearn.Classifier(model, random_state=0)
    scores = cross_val_score(estimator, frame, label, cv=2)
    assert scores.mean() > 0.8
