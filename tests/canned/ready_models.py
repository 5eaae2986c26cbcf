"""One small model of every ready class, with features and labels for it."""

import numpy as np

import estimax as ex

fc = ex.feature_columns
RNG = np.random.default_rng(0)
B = 8
CITY = fc.categorical_column_with_identity("city", 11)
WIDE = [CITY, fc.numeric_column("x")]
DEEP = [fc.embedding_column(CITY, 2), fc.numeric_column("x")]
SIGN = fc.bucketized_column(fc.numeric_column("x"), [0.0])
FIELDS = [fc.embedding_column(CITY, 2), fc.embedding_column(SIGN, 2)]
NEXT = fc.sequence_categorical_column_with_identity("clicks", 11)
HISTORY = [fc.embedding_column(NEXT, 2)]
PAIR = tuple(fc.shared_embeddings([CITY, NEXT], 2))
FEATURES = {
    "city": RNG.integers(0, 11, B),
    "x": RNG.normal(size=B).astype(np.float32),
    "clicks": ex.Sparse.of_rows([[1, 2], [3], *[[4, 5, 6]] * (B - 2)]),
}
BINARY = RNG.integers(0, 2, B)
REAL = RNG.normal(size=B).astype(np.float32)
HEAD = ex.heads.BinaryClassHead
TASKS = ex.heads.MultiHead([HEAD(name="a"), ex.heads.RegressionHead(name="b")])
BOTH = {
    "linear_feature_columns": WIDE,
    "dnn_feature_columns": DEEP,
    "dnn_hidden_units": [4],
}
# Name of the class -> how to build one, and the labels that it takes.
MODELS = {
    "BaselineClassifier": (lambda c: ex.BaselineClassifier(config=c), BINARY),
    "BaselineEstimator": (lambda c: ex.BaselineEstimator(HEAD(), config=c), BINARY),
    "BaselineRegressor": (lambda c: ex.BaselineRegressor(config=c), REAL),
    "TabularClassifier": (lambda c: ex.TabularClassifier(WIDE, config=c), BINARY),
    "TabularEstimator": (
        lambda c: ex.TabularEstimator(HEAD(), WIDE, config=c),
        BINARY,
    ),
    "TabularRegressor": (lambda c: ex.TabularRegressor(WIDE, config=c), REAL),
    "DCNClassifier": (lambda c: ex.DCNClassifier([4], DEEP, config=c), BINARY),
    "DINClassifier": (
        lambda c: ex.DINClassifier([4], [PAIR], config=c),
        BINARY,
    ),
    "DNNClassifier": (
        lambda c: ex.DNNClassifier([4], DEEP, batch_norm=True, dropout=0.1, config=c),
        BINARY,
    ),
    "DNNEstimator": (lambda c: ex.DNNEstimator(HEAD(), [4], DEEP, config=c), BINARY),
    "DNNRegressor": (lambda c: ex.DNNRegressor([4], DEEP, config=c), REAL),
    "DNNLinearCombinedClassifier": (
        lambda c: ex.DNNLinearCombinedClassifier(**BOTH, config=c),
        BINARY,
    ),
    "DNNLinearCombinedEstimator": (
        lambda c: ex.DNNLinearCombinedEstimator(HEAD(), **BOTH, config=c),
        BINARY,
    ),
    "DNNLinearCombinedRegressor": (
        lambda c: ex.DNNLinearCombinedRegressor(**BOTH, config=c),
        REAL,
    ),
    "DeepFMClassifier": (
        lambda c: ex.DeepFMClassifier([4], FIELDS, config=c),
        BINARY,
    ),
    "ESMMClassifier": (
        lambda c: ex.ESMMClassifier([4], DEEP, config=c),
        {"click": BINARY, "conversion": BINARY * 0},
    ),
    "KMeans": (
        lambda c: ex.KMeans(2, feature_columns=[fc.numeric_column("x")], config=c),
        None,
    ),
    "LinearClassifier": (lambda c: ex.LinearClassifier(WIDE, config=c), BINARY),
    "LinearEstimator": (lambda c: ex.LinearEstimator(HEAD(), WIDE, config=c), BINARY),
    "LinearRegressor": (lambda c: ex.LinearRegressor(WIDE, config=c), REAL),
    "MMoEEstimator": (
        lambda c: ex.MMoEEstimator(
            TASKS, DEEP, expert_units=[4], tower_units=[4], experts=2, config=c
        ),
        {"a": BINARY, "b": REAL},
    ),
    "PerHeadEstimator": (
        lambda c: ex.PerHeadEstimator(
            {
                "a": ex.LinearEstimator(HEAD(), WIDE, config=c),
                "b": ex.DNNEstimator(ex.heads.RegressionHead(), [4], DEEP, config=c),
            }
        ),
        {"a": BINARY, "b": REAL},
    ),
    "RNNClassifier": (
        lambda c: ex.RNNClassifier(HISTORY, units=[4], cell_type="lstm", config=c),
        BINARY,
    ),
    "RNNEstimator": (
        lambda c: ex.RNNEstimator(
            HEAD(), HISTORY, units=[4], cell_type="gru", config=c
        ),
        BINARY,
    ),
}
# LightGBM trains these: they have no compiled training step.
TREES = {
    "BoostedTreesClassifier": (
        lambda c: ex.BoostedTreesClassifier(WIDE, config=c),
        BINARY,
    ),
    "BoostedTreesEstimator": (
        lambda c: ex.BoostedTreesEstimator(WIDE, head=HEAD(), config=c),
        BINARY,
    ),
    "BoostedTreesRegressor": (lambda c: ex.BoostedTreesRegressor(WIDE, config=c), REAL),
    "RandomForestClassifier": (
        lambda c: ex.RandomForestClassifier(WIDE, min_data_in_leaf=1, config=c),
        BINARY,
    ),
    "RandomForestEstimator": (
        lambda c: ex.RandomForestEstimator(WIDE, HEAD(), config=c),
        BINARY,
    ),
    "RandomForestRegressor": (lambda c: ex.RandomForestRegressor(WIDE, config=c), REAL),
}
