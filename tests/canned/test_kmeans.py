import jax
import numpy as np
import pytest

import estimax as ex
from estimax import export
from estimax.canned.kmeans import far_rows, random_rows
from estimax.core.errors import SpecError
from estimax.input import Dataset

POINTS = np.array(
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0], [9.0, 10.0], [10.0, 9.0]],
    np.float32,
)
NEAR, FAR = POINTS[:3].mean(axis=0), POINTS[3:].mean(axis=0)
START = np.array([[1.0, 1.0], [8.0, 8.0]], np.float32)


def quiet():
    return ex.RunConfig(
        tf_random_seed=1, save_summary_steps=0, log_step_count_steps=None
    )


def fed(points=POINTS, size=6, epochs=1):
    def input_fn():
        data = Dataset.from_tensor_slices({"x": points})
        return data.repeat(epochs).batch(size)

    return input_fn


def kmeans(folder, **options):
    options = {"initial_clusters": START} | options
    return ex.KMeans(2, folder, **options, config=quiet())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two clusters found in two of Lloyd's steps."""
    model = kmeans(tmp_path_factory.mktemp("kmeans"), use_mini_batch=False)
    return model.train(fed(epochs=2))


def test_a_whole_batch_puts_each_center_into_the_middle_of_its_points(trained):
    np.testing.assert_allclose(trained.cluster_centers(), [NEAR, FAR], rtol=1e-5)


def test_examples_are_told_their_cluster(trained):
    assert list(trained.predict_cluster_index(fed())) == [0, 0, 0, 1, 1, 1]


def test_the_score_is_the_sum_of_squared_distances_of_one_batch(trained):
    wanted = ((POINTS[:3] - NEAR) ** 2).sum() + ((POINTS[3:] - FAR) ** 2).sum()
    assert trained.score(fed()) == pytest.approx(wanted, rel=1e-4)
    assert trained.score(fed(size=3)) == pytest.approx(wanted / 2, rel=1e-4)


def test_transform_gives_distances_that_are_not_squared(trained):
    first = next(trained.transform(fed()))
    wanted = [np.linalg.norm(POINTS[0] - center) for center in (NEAR, FAR)]
    np.testing.assert_allclose(first, wanted, rtol=1e-4)


def test_a_bundle_answers_index_and_distances(trained, tmp_path):
    bundle = export.load(trained.export_saved_model(str(tmp_path)))
    answer = bundle.predict({"x": POINTS[2:4]})
    assert answer["cluster_index"].tolist() == [0, 1]
    assert answer["all_distances"].shape == (2, 2)


def test_labels_are_refused(tmp_path):
    with pytest.raises(SpecError, match="labels"):
        kmeans(tmp_path).train(lambda: ({"x": POINTS}, np.zeros(6)), steps=1)


def test_a_mini_batch_moves_a_center_to_the_mean_of_all_it_has_seen(tmp_path):
    points = np.array([[0.0], [2.0], [7.0], [9.0]], np.float32)
    model = kmeans(tmp_path, initial_clusters=[[1.0], [20.0]])
    model.train(fed(points, size=1))
    # 0, 2, 7 and 9 each found the first center nearest; it never had a say itself.
    np.testing.assert_allclose(model.cluster_centers(), [[4.5], [20.0]], rtol=1e-6)


def test_clusters_may_stay_for_several_steps(tmp_path):
    points = np.array([[0.0], [2.0], [7.0], [9.0]], np.float32)
    model = kmeans(
        tmp_path,
        initial_clusters=[[1.0], [20.0]],
        mini_batch_steps_per_iteration=2,
    )
    model.train(fed(points, size=1), steps=3)
    # The mean of 0 and 2; 7 waits for its second step.
    np.testing.assert_allclose(model.cluster_centers(), [[1.0], [20.0]], rtol=1e-6)
    model.train(fed(points, size=1), steps=1)
    np.testing.assert_allclose(model.cluster_centers(), [[8.0], [20.0]], rtol=1e-6)


def test_cosine_distance_knows_directions_only(tmp_path):
    points = np.array([[1.0, 0.1], [50.0, 0.0], [0.0, 2.0], [0.1, 9.0]], np.float32)
    model = kmeans(
        tmp_path,
        distance_metric="cosine",
        initial_clusters=[[1.0, 0.2], [0.2, 1.0]],
        use_mini_batch=False,
    )
    model.train(fed(points))
    assert list(model.predict_cluster_index(fed(points))) == [0, 0, 1, 1]
    distances = next(model.transform(fed(points)))
    assert 0 <= distances[0] < 0.01
    assert distances[1] > 0.8


def test_training_stops_when_the_loss_has_settled(tmp_path):
    model = kmeans(tmp_path, use_mini_batch=False, relative_tolerance=1e-4)
    model.train(fed(epochs=100))
    assert model.get_variable_value("global_step") < 6


def test_feature_columns_make_points_of_words(tmp_path):
    words = ex.feature_columns.categorical_column_with_vocabulary_list("w", ["a", "b"])
    model = ex.KMeans(
        2,
        tmp_path,
        feature_columns=[ex.feature_columns.indicator_column(words)],
        initial_clusters="kmeans_plus_plus",
        config=quiet(),
    )

    def input_fn():
        return Dataset.from_tensor_slices({"w": np.array(["a", "b", "a"])}).batch(3)

    model.train(input_fn)
    first, second, third = model.predict_cluster_index(input_fn)
    assert first == third != second


def test_centers_start_at_different_points():
    rows = random_rows(jax.random.key(3), jax.numpy.asarray(POINTS), 6)
    assert sorted(rows.tolist()) == sorted(POINTS.tolist())


def test_far_points_are_drawn_first():
    drawn = jax.jit(far_rows, static_argnums=(2, 3))
    for seed in range(5):
        rows = np.asarray(drawn(jax.random.key(seed), POINTS, 2, 2))
        assert sorted((rows.sum(axis=1) > 10).tolist()) == [False, True]


def test_clusters_that_a_small_batch_leaves_over_start_in_the_next(tmp_path):
    points = np.array([[0.0], [1.0], [50.0], [51.0], [90.0]], np.float32)
    model = ex.KMeans(4, tmp_path, use_mini_batch=False, config=quiet())
    model.train(fed(points, size=2), steps=2)
    assert sorted(model.cluster_centers()[:, 0].tolist()) == [0, 1, 50, 51]


def test_given_clusters_must_be_as_many(tmp_path):
    model = ex.KMeans(3, tmp_path, initial_clusters=START, config=quiet())
    with pytest.raises(SpecError, match=r"\(3, 2\)"):
        model.train(fed())


def test_options_are_checked_when_given():
    with pytest.raises(SpecError, match="num_clusters"):
        ex.KMeans(0)
    with pytest.raises(SpecError, match="cosine"):
        ex.KMeans(2, distance_metric="manhattan")
    with pytest.raises(SpecError, match="did you mean 'random'"):
        ex.KMeans(2, initial_clusters="randm")
