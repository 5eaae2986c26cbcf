"""Tasks are recognized from predictions and labels."""

import numpy as np

from estimax.core.strings import Strings
from estimax.inspection.report.tasks import tasks_of

LOGISTIC = np.array([[0.2], [0.9]])
WORDS = np.array([[b"no", b"yes"], [b"no", b"yes"]])


def test_two_classes_of_words():
    predictions = {"logistic": LOGISTIC, "all_classes": WORDS}
    (task,) = tasks_of(predictions, Strings.of(np.array([b"no", b"yes"], object)))
    assert (task.kind, task.classes) == ("binary", ("no", "yes"))
    assert task.labels.tolist() == [0, 1]
    assert task.guesses.tolist() == [False, True]
    np.testing.assert_allclose(task.losses, [-np.log(0.8), -np.log(0.9)])


def test_several_classes():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    (task,) = tasks_of({"probabilities": p}, np.array([[0], [1]]))
    assert task.kind == "multi_class"
    assert task.guesses.tolist() == [0, 2]
    assert [task.format_value(guess) for guess in task.guesses] == ["0", "2"]
    np.testing.assert_allclose(task.losses, [-np.log(0.7), -np.log(0.1)])


def test_every_head_is_a_task():
    predictions = {("click", "logistic"): LOGISTIC, ("price", "predictions"): LOGISTIC}
    labels = {"click": np.array([0, 1]), "price": np.array([0.0, 1.0])}
    tasks = tasks_of(predictions, labels)
    assert [(t.name, t.kind) for t in tasks] == [
        ("click", "binary"),
        ("price", "regression"),
    ]
    np.testing.assert_allclose(tasks[1].losses, [0.2, 0.1])


def test_every_number_of_a_regression_is_a_task():
    tasks = tasks_of({"predictions": np.ones((3, 2))}, np.zeros((3, 2)))
    assert [task.name for task in tasks] == ["[0]", "[1]"]


def test_predictions_of_no_head_are_no_task():
    assert tasks_of({"y": np.ones(3)}, np.ones(3)) == []
    assert tasks_of({"logistic": LOGISTIC}, np.array([0, 7])) == []
