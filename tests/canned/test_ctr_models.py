"""The click models: each is given the structure that it was made for, and finds it."""

import itertools

import jax
import numpy as np
import pytest

import estimax as ex
from estimax.canned.click_models import Attention, pairwise_products
from estimax.canned.multi_task import both_logit

fc = ex.feature_columns
RNG = np.random.default_rng(3)
ROWS = 512
USERS = RNG.integers(0, 8, ROWS)
PAGES = RNG.integers(0, 8, ROWS)
# Neither users nor pages have anything to themselves: only their pair tells.
LIKES = ((USERS + PAGES) % 2 == 0).astype(np.int64)


def config():
    return ex.RunConfig(tf_random_seed=1, save_summary_steps=None)


def embedded(*keys, dimension=4):
    columns = [fc.categorical_column_with_identity(key, 8) for key in keys]
    return [fc.embedding_column(column, dimension) for column in columns]


def data(features, labels):
    def input_fn(mode):
        rows = ex.input.Dataset.from_tensor_slices((features, labels))
        if mode == ex.ModeKeys.TRAIN:
            rows = rows.shuffle(ROWS, seed=1).repeat()
        return rows.batch(64)

    return input_fn


def auc_after(model, features, labels, steps):
    model.train(data(features, labels), steps=steps)
    return model.evaluate(data(features, labels))["auc"]


PAIRS = {"user": USERS, "page": PAGES}


def test_the_products_of_all_pairs_are_what_a_loop_finds():
    vectors = RNG.normal(size=(5, 4, 3)).astype(np.float32)
    wanted = [
        sum(np.dot(a, b) for a, b in itertools.combinations(row, 2)) for row in vectors
    ]
    found = pairwise_products(vectors)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-5)


def test_deepfm_finds_pairs_without_any_deep_layer(tmp_path):
    model = ex.DeepFMClassifier(
        [],
        [*embedded("user", "page"), fc.numeric_column("noise")],
        tmp_path / "model",
        optimizer=ex.optimizers.Adagrad(0.3),
        config=config(),
    )
    features = {**PAIRS, "noise": RNG.normal(size=ROWS).astype(np.float32)}
    assert auc_after(model, features, LIKES, 150) > 0.95
    tables = [name for name in model.get_variable_names() if "Adagrad" not in name]
    assert "linear_model/user/weights" in tables
    assert_exports_what_it_predicts(model, features, tmp_path)


def test_deepfm_refuses_vectors_that_it_cannot_multiply():
    columns = [*embedded("user", dimension=4), *embedded("page", dimension=8)]
    with pytest.raises(ValueError, match=r"all of one dimension.*'page_embedding': 8"):
        ex.DeepFMClassifier([8], columns)


@pytest.mark.parametrize("structure", ["parallel", "stacked"])
def test_dcn_finds_pairs_by_its_cross_layers(tmp_path, structure):
    model = ex.DCNClassifier(
        [8],
        embedded("user", "page"),
        tmp_path / "model",
        cross_layers=2,
        projection=4 if structure == "stacked" else None,
        structure=structure,
        optimizer=ex.optimizers.Adagrad(0.3),
        config=config(),
    )
    assert auc_after(model, PAIRS, LIKES, 200) > 0.95
    names = model.get_variable_names()
    assert ("cross_1/projection/kernel" in names) == (structure == "stacked")
    assert_exports_what_it_predicts(model, PAIRS, tmp_path)


def test_dcn_says_which_structures_there_are():
    with pytest.raises(ValueError, match="'parallel' or 'stacked', got 'serial'"):
        ex.DCNClassifier([8], embedded("user"), structure="serial")


@pytest.mark.parametrize("experts", [1, 3])
def test_mmoe_trains_several_tasks_on_shared_experts(tmp_path, experts):
    head = ex.heads.MultiHead(
        [ex.heads.BinaryClassHead(name="likes"), ex.heads.RegressionHead(name="sum")]
    )
    model = ex.MMoEEstimator(
        head,
        embedded("user", "page"),
        expert_units=[16],
        tower_units=[8],
        experts=experts,
        model_dir=tmp_path / "model",
        optimizer=ex.optimizers.Adagrad(0.2),
        config=config(),
    )
    labels = {"likes": LIKES, "sum": ((USERS + PAGES) / 7).astype(np.float32)}
    model.train(data(PAIRS, labels), steps=200)
    found = model.evaluate(data(PAIRS, labels))
    assert found["auc/likes"] > 0.9
    assert found["average_loss/sum"] < 0.1
    gates = [name for name in model.get_variable_names() if "_gate/" in name]
    assert bool(gates) == (experts > 1)


def test_the_logit_of_a_product_is_exact_at_both_ends():
    a = np.array([0.3, -40.0, 60.0], np.float32)
    b = np.array([-1.2, -40.0, 60.0], np.float32)
    p = 1 / (1 + np.exp(-0.3)) / (1 + np.exp(1.2))
    wanted = [np.log(p / (1 - p)), -80.0, 60.0 - np.log(2)]
    np.testing.assert_allclose(both_logit(a, b), wanted, rtol=1e-5)


def test_esmm_learns_the_rate_after_a_click_from_all_impressions(tmp_path):
    clicked = (RNG.random(ROWS) < np.where(USERS < 4, 0.8, 0.3)).astype(np.int64)
    rate = np.where(PAGES < 4, 0.9, 0.1)
    converted = clicked * (RNG.random(ROWS) < rate)
    model = ex.ESMMClassifier(
        [16],
        embedded("user", "page"),
        tmp_path / "model",
        optimizer=ex.optimizers.Adagrad(0.2),
        config=config(),
    )
    labels = {"click": clicked, "conversion": converted}
    model.train(data(PAIRS, labels), steps=200)
    found = one_batch(model, PAIRS)
    after = found["conversion", "given_click"][:, 0]
    assert after[PAGES < 4].mean() > 0.7
    assert after[PAGES >= 4].mean() < 0.3
    product = found["click", "logistic"][:, 0] * after
    np.testing.assert_allclose(found["conversion", "logistic"][:, 0], product, 1e-5)


def test_attention_does_not_see_past_the_end_of_a_history():
    rng = np.random.default_rng(5)
    candidate = rng.normal(size=(2, 3)).astype(np.float32)
    history = rng.normal(size=(2, 4, 3)).astype(np.float32)
    lengths = np.array([2, 0])
    layer = Attention([5])
    key = jax.random.key(0)
    found, made = layer.init_with_output(key, candidate, history, lengths)
    short = layer.apply(made, candidate, history[:, :2], lengths)
    np.testing.assert_allclose(found, short, rtol=1e-6)
    assert np.array_equal(found[1], np.zeros(3))


def test_din_finds_the_candidate_in_the_history(tmp_path):
    rng = np.random.default_rng(7)
    histories = [rng.integers(0, 8, rng.integers(0, 5)) for _ in range(ROWS)]
    items = rng.integers(0, 8, ROWS)
    seen = np.array([i in h for i, h in zip(items, histories, strict=True)], np.int64)
    item = fc.categorical_column_with_identity("item", 8)
    clicked = fc.sequence_categorical_column_with_identity("clicked", 8)
    pair = tuple(fc.shared_embeddings([item, clicked], 8))
    model = ex.DINClassifier(
        [16],
        [pair],
        [fc.numeric_column("age")],
        tmp_path / "model",
        optimizer=ex.optimizers.Adagrad(0.2),
        config=config(),
    )
    features = {
        "item": items,
        "clicked": ex.Sparse.of_rows(histories),
        "age": rng.normal(size=ROWS).astype(np.float32),
    }
    assert auc_after(model, features, seen, 300) > 0.9
    assert_exports_what_it_predicts(model, features, tmp_path)


def test_din_wants_pairs_of_a_candidate_and_a_sequence():
    user, page = embedded("user", "page")
    with pytest.raises(ValueError, match=r"got \('user_embedding', 'page_embedding'\)"):
        ex.DINClassifier([8], [(user, page)])


def test_din_wants_histories_that_have_the_same_steps(tmp_path):
    pairs = [
        fc.shared_embeddings(
            [
                fc.categorical_column_with_identity(key, 8),
                fc.sequence_categorical_column_with_identity(f"{key}s", 8),
            ],
            2,
        )
        for key in ("item", "shop")
    ]
    model = ex.DINClassifier([2], pairs, model_dir=tmp_path, config=config())
    features = {
        "item": [1, 2],
        "items": ex.Sparse.of_rows([[1, 2, 3], [4]]),
        "shop": [1, 2],
        "shops": ex.Sparse.of_rows([[1, 2, 3], [4, 5]]),
    }
    with pytest.raises(ValueError, match="'items' and 'shops' differ in length: row 1"):
        model.train(lambda: (features, np.array([0, 1])), steps=1)


def test_esmm_multiplies_at_full_precision_whatever_its_layers_compute_in(tmp_path):
    half = ex.RunConfig(tf_random_seed=1, save_summary_steps=None, precision="bfloat16")
    model = ex.ESMMClassifier([4], embedded("user", "page"), tmp_path, config=half)
    labels = {"click": LIKES, "conversion": LIKES}
    model.train(lambda: (PAIRS, labels), steps=1)
    found = one_batch(model, PAIRS)
    product = found["click", "logistic"] * found["conversion", "given_click"]
    np.testing.assert_allclose(found["conversion", "logistic"], product, rtol=1e-5)


def test_esmm_weighs_examples(tmp_path):
    model = ex.ESMMClassifier(
        [4], embedded("user"), tmp_path, weight_column="weight", config=config()
    )
    labels = {"click": np.array([1, 0]), "conversion": np.array([1, 0])}

    def losses(weight, rows):
        features = {"user": np.array([1, 2]), "weight": np.array(weight, np.float32)}
        given = {name: column[rows] for name, column in features.items()}
        wanted = {name: column[rows] for name, column in labels.items()}
        return model.evaluate(lambda: iter([(given, wanted)]))[
            "average_loss/conversion"
        ]

    both = {"user": np.array([1, 2]), "weight": np.ones(2, np.float32)}
    model.train(lambda: (both, labels), steps=1)
    assert losses([1, 0], slice(None)) == pytest.approx(losses([1, 1], slice(1)))


def test_mmoe_wants_the_heads_of_several_tasks():
    with pytest.raises(ValueError, match=r"MultiHead.*got BinaryClassHead"):
        ex.MMoEEstimator(ex.heads.BinaryClassHead(), embedded("user"))


def one_batch(model, features):
    rows = ex.input.Dataset.from_tensor_slices(features)
    batches = model.predict(lambda: rows.batch(ROWS), yield_single_examples=False)
    return next(iter(batches))


def assert_exports_what_it_predicts(model, features, folder):
    wanted = one_batch(model, features)["logistic"]
    bundle = ex.export.load(model.export_saved_model(folder / "export"))
    found = bundle.predict(features, signature="predict")["logistic"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
