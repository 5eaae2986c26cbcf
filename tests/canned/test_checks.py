"""Wrong arguments of canned models are refused by the constructor."""

import pytest

import estimax as ex
from estimax import feature_columns as fc

X = fc.numeric_column("x")
WORDS = fc.categorical_column_with_hash_bucket("city", 10)
STEPS = fc.sequence_numeric_column("steps")
UNITS = "must be a list with the number of units of each hidden layer"

WRONG = {
    "hidden_units must be a list .* such as \\[8\\], got 8": lambda: ex.DNNClassifier(
        8, [X]
    ),
    f"hidden_units {UNITS}.*got '8'": lambda: ex.DNNRegressor("8", [X]),
    f"hidden_units {UNITS}.*got \\[0\\]": lambda: ex.DNNClassifier([0], [X]),
    f"hidden_units {UNITS}.*got \\[-1\\]": lambda: ex.DNNClassifier([-1], [X]),
    f"dnn_hidden_units {UNITS}": lambda: ex.DNNLinearCombinedClassifier(
        dnn_feature_columns=[X], dnn_hidden_units=8
    ),
    f"ESMMClassifier: hidden_units {UNITS}": lambda: ex.ESMMClassifier(8, [X]),
    f"RNN: units {UNITS}": lambda: ex.RNNClassifier([STEPS], units="8"),
    "n_classes must be an integer of at least 2, got 1": lambda: ex.DNNClassifier(
        [8], [X], n_classes=1
    ),
    "n_classes must be .*got '3'": lambda: ex.LinearClassifier([X], n_classes="3"),
    "got the column 'x'; put it in \\[\\]": lambda: ex.DNNClassifier([8], X),
    "feature_columns must be a list .* got 'x'": lambda: ex.DNNClassifier([8], "x"),
    "linear_feature_columns must be a list": lambda: ex.DNNLinearCombinedClassifier(
        linear_feature_columns=X
    ),
    "'x' \\(str\\) is no feature column": lambda: ex.DNNClassifier([8], ["x"]),
    "column 'city' is categorical.*Wrap it": lambda: ex.DNNClassifier([8], [WORDS]),
    "column 'x' is not a sequence column": lambda: ex.RNNClassifier([X], units=4),
    "unknown combiner 'avg'": lambda: ex.LinearClassifier(
        [WORDS], sparse_combiner="avg"
    ),
    "dropout is the share .* got 1.5": lambda: ex.DNNClassifier([8], [X], dropout=1.5),
    "dropout is the share .* got 'a'": lambda: ex.DCNClassifier([8], [X], dropout="a"),
    "unknown optimizer 'Adagrd'; did you mean 'adagrad'": lambda: ex.DNNClassifier(
        [8], [X], optimizer="Adagrd"
    ),
    "optimizer: expected an optimizer, got float": lambda: ex.LinearRegressor(
        [X], optimizer=0.1
    ),
    "activation_fn must be a function": lambda: ex.DNNClassifier(
        [8], [X], activation_fn="relu"
    ),
    "label_vocabulary must have 2 words": lambda: ex.DNNClassifier(
        [8], [X], label_vocabulary=["a", "b", "c"]
    ),
    "head must be a head .* got BinaryClassHead": lambda: ex.DNNEstimator(
        ex.heads.BinaryClassHead, [8], [X]
    ),
    "cross_layers must be an integer": lambda: ex.DCNClassifier(
        [8], [X], cross_layers=0
    ),
    "unknown cell_type 'ltsm'; did you mean 'lstm'": lambda: ex.RNNClassifier(
        [STEPS], units=4, cell_type="ltsm"
    ),
    "num_clusters must be an integer": lambda: ex.KMeans("3"),
    "model_dir must be a path, got 5": lambda: ex.DNNClassifier([8], [X], model_dir=5),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_refused_in_our_words(message):
    with pytest.raises(ex.EstimaxError, match=message):
        WRONG[message]()


def test_a_network_without_hidden_layers_is_allowed_as_in_tf_estimator():
    ex.DNNClassifier([], [X])
