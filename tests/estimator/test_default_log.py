import logging
import sys

import pytest
from tiny_models import data

from estimax.estimator import default_log
from estimax.estimator.default_log import shown_by_default

LOGGER = logging.getLogger("estimax")


@pytest.fixture
def unconfigured(monkeypatch):
    """unconfigured(): logging as a program finds it that has not touched it."""

    def unconfigured():  # pytest adds handlers of its own after the fixtures are made
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        monkeypatch.setattr(LOGGER, "handlers", [])  # other tests may have left some
        monkeypatch.setattr(LOGGER, "propagate", True)
        LOGGER.setLevel(logging.NOTSET)

    return unconfigured


def test_training_shows_its_start_loss_speed_checkpoints_and_end(
    make, unconfigured, capsys
):
    unconfigured()
    model = make(save_checkpoints_steps=100, log_step_count_steps=2)
    model.train(data(), steps=5)
    shown = capsys.readouterr().err
    for line in (
        f"INFO training starts at step 0 in {model.model_dir}, until step 5",
        "INFO loss = ",
        "INFO global_step/sec: ",
        f"INFO saved step 5 to {model.model_dir}/model.ckpt-5",
        "INFO training ended at step 5: loss = ",
    ):
        assert line in shown


def test_evaluation_is_shown_and_a_finished_training_says_so(
    make, unconfigured, capsys
):
    unconfigured()
    model = make().train(data(), max_steps=2)
    model.evaluate(data(), steps=1)
    assert "INFO evaluation at step 2 on " in capsys.readouterr().err
    model.train(data(), max_steps=2)
    assert (
        f"WARNING train: nothing to do: the model in {model.model_dir} has reached "
        "step 2, and max_steps is 2. Raise max_steps to train on"
    ) in capsys.readouterr().err


def test_nothing_stays_configured_afterwards(unconfigured):
    unconfigured()
    with shown_by_default(), shown_by_default():
        assert LOGGER.isEnabledFor(logging.INFO)
        assert len(LOGGER.handlers) == 1
    assert not LOGGER.isEnabledFor(logging.INFO)
    assert not LOGGER.handlers


@pytest.mark.parametrize("configured", ["handler", "level", "root", "root level"])
def test_a_program_that_configured_logging_sees_what_it_configured(
    unconfigured, monkeypatch, configured
):
    unconfigured()
    if configured == "handler":
        monkeypatch.setattr(LOGGER, "handlers", [logging.NullHandler()])
    elif configured == "level":
        monkeypatch.setattr(LOGGER, "level", logging.WARNING)
    elif configured == "root":
        monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    else:
        monkeypatch.setattr(logging.getLogger(), "level", logging.ERROR)
    before = list(LOGGER.handlers), LOGGER.level
    with shown_by_default():
        assert (LOGGER.handlers, LOGGER.level) == before


def test_a_root_handler_added_meanwhile_shows_no_line_twice(
    unconfigured, monkeypatch, capsys
):
    unconfigured()
    with shown_by_default():
        root = logging.StreamHandler(sys.stdout)
        monkeypatch.setattr(logging.getLogger(), "handlers", [root])
        LOGGER.info("a line")
    written = capsys.readouterr()
    assert written.out == "a line\n"
    assert written.err == ""


def test_lines_of_a_hook_are_shown_once_a_second(unconfigured):
    unconfigured()
    now = [0.0]
    handler = default_log.DefaultHandler(clock=lambda: now[0])

    def is_shown(**extra):
        record = logging.LogRecord("estimax", logging.INFO, "", 0, "line", (), None)
        vars(record).update(extra)
        return handler.filter(record)

    shown = [is_shown(hook="a"), is_shown(hook="a"), is_shown(hook="b"), is_shown()]
    assert shown == [True, False, True, True]
    now[0] = 1.0
    assert is_shown(hook="a")
