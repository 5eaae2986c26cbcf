"""What an input_fn may return, and where a resumed run goes on in it."""

import logging

import numpy as np
import pytest
from tiny_models import (
    InterruptedTrainingError,
    InterruptsAt,
    Losses,
    X,
    echo_model_fn,
    features_only,
)

from estimax.core.errors import InputError


def batches(numbers):
    """A plain generator of one-row batches."""
    return ({"x": np.full((1, 1), n, np.float32)} for n in numbers)


class Counted:
    """An iterator that knows its place, and how often it was asked for a batch."""

    def __init__(self):
        self.at = 0
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        if self.at == 10:
            raise StopIteration
        self.at += 1
        return {"x": np.full((1, 1), self.at - 1, np.float32)}

    def get_state(self):
        return {"at": self.at}

    def set_state(self, state):
        self.at = state["at"]


def seen(model, input_fn, *, steps=None):
    losses = Losses()
    model.train(input_fn, hooks=[losses], steps=steps)
    return losses.seen


def interrupt(model, input_fn, *, at):
    with pytest.raises(InterruptedTrainingError):
        model.train(input_fn, hooks=[InterruptsAt(at + 1)])
    assert model.get_variable_value("global_step") == at


def test_a_plain_iterator_is_run_up_to_the_batch_after_an_interruption(make):
    model = make(echo_model_fn, save_checkpoints_steps=2)
    interrupt(model, lambda: batches(range(5)), at=2)
    assert seen(model, lambda: batches(range(5))) == [2, 3, 4]


def test_a_plain_iterator_starts_anew_after_a_normal_end(make, caplog):
    model = make(echo_model_fn)
    assert seen(model, lambda: batches(range(5)), steps=2) == [0, 1]
    with caplog.at_level(logging.INFO, "estimax"):
        assert seen(model, lambda: batches(range(7, 10))) == [7, 8, 9]
    assert "starts from its beginning: the input has no fingerprint" in caplog.text


def test_a_plain_iterator_that_had_ended_is_made_again(make):
    model = make(echo_model_fn)
    assert seen(model, lambda: batches(range(3))) == [0, 1, 2]
    assert seen(model, lambda: batches(range(3))) == [0, 1, 2]


def test_refuse_tells_of_a_plain_iterator_instead_of_running_up(make):
    model = make(echo_model_fn, resume_input="refuse")
    assert seen(model, lambda: batches(range(5)), steps=2) == [0, 1]
    with pytest.raises(InputError, match="plain iterator") as caught:
        seen(model, lambda: batches(range(5)))
    # In the words of who set it.
    assert 'RunConfig(resume_input="refuse")' in caught.value.__notes__[0]


def test_refuse_lets_an_input_that_knows_its_place_resume(make):
    model = make(echo_model_fn, resume_input="refuse")
    assert seen(model, features_only(), steps=3) == [0.5, 2.5, 4.5]
    assert seen(model, features_only(), steps=1) == [6.5]


def test_restart_begins_the_data_anew_at_every_call(make):
    model = make(echo_model_fn, resume_input="restart")
    assert seen(model, lambda: batches(range(5)), steps=2) == [0, 1]
    assert seen(model, lambda: batches(range(5)), steps=2) == [0, 1]


def test_an_iterator_with_a_state_is_put_back_and_not_run_up(make):
    model = make(echo_model_fn, save_checkpoints_steps=6)
    interrupt(model, Counted, at=6)
    again = Counted()
    assert seen(model, lambda: again, steps=2) == [6, 7]
    assert again.asked <= 5  # those from 6 on, and the end


def test_another_kind_of_input_starts_from_its_beginning(make, caplog):
    model = make(echo_model_fn, save_checkpoints_steps=3)
    interrupt(model, features_only(), at=3)
    with caplog.at_level(logging.WARNING, "estimax"):
        assert seen(model, lambda: batches(range(5)), steps=2) == [0, 1]
    assert "the data starts from its beginning" in caplog.text


def test_an_input_that_became_shorter_starts_from_its_beginning(make, caplog):
    model = make(echo_model_fn, save_checkpoints_steps=4)
    interrupt(model, lambda: batches(range(6)), at=4)
    with caplog.at_level(logging.WARNING, "estimax"):
        assert seen(model, lambda: batches(range(2))) == [0, 1]
    assert "Has the data changed?" in caplog.text


@pytest.mark.parametrize(
    "returned",
    [{"x": X[:1]}, ({"x": X[:1]}, None), [{"x": X[:1]}, None]],
    ids=["features", "pair", "list of two"],
)
def test_arrays_are_the_same_batch_at_every_step(make, returned):
    assert seen(make(echo_model_fn), lambda: returned, steps=2) == [0, 0]
