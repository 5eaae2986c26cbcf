"""What the commands print fits the terminal."""

import io
import logging

import pytest
from rich.console import Console

from estimax.cli import console as cli_console

LINE = (
    "evaluation at step 2100 on 53991 examples: accuracy = 0.811, auc = 0.698, "
    "precision_recall = 0.4, saved in /home/somebody/runs/model.ckpt-2100"
)


def console(width, *, is_terminal):
    return Console(
        file=io.StringIO(),
        force_terminal=is_terminal,
        color_system=None,
        width=width,
    )


@pytest.fixture
def logger(monkeypatch):
    """The logger of estimax, as it was before once the test ends."""
    logger = logging.getLogger("estimax")
    for name in ("handlers", "level", "propagate"):
        monkeypatch.setattr(logger, name, getattr(logger, name))
    yield logger
    logger.manager._clear_cache()


def test_a_log_line_breaks_between_words_and_is_indented(logger):
    terminal = console(60, is_terminal=True)
    cli_console.log_to(terminal)
    logger.info(LINE)
    first, *rest = terminal.file.getvalue().splitlines()
    assert max(map(len, [first, *rest])) <= 60
    assert first == "evaluation at step 2100 on 53991 examples: accuracy = 0.811,"
    assert all(line.startswith("  ") for line in rest)
    assert rest[0] == "  auc = 0.698, precision_recall = 0.4, saved in"
    assert " ".join([first, *map(str.strip, rest)]) == LINE


def test_log_lines_in_a_file_have_less_than_160_characters(logger):
    file = console(60, is_terminal=False)
    cli_console.log_to(file)
    logger.info("short = 1")
    logger.info(f"{LINE} {LINE}")
    short, *lines = file.file.getvalue().splitlines()
    assert short == "short = 1"
    assert max(map(len, lines)) < 160
    assert " ".join(map(str.strip, lines)) == f"{LINE} {LINE}"


def test_a_table_of_metrics_shows_every_character_of_long_names():
    name = "multi_head/" + "very_long_name/" * 5 + "auc"
    terminal = console(40, is_terminal=True)
    terminal.print(cli_console.metrics_table({name: 0.5}, "a title"))
    lines = terminal.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    cells = [line.split("\u2502")[1].strip() for line in lines if "\u2502" in line]
    assert "".join(cells) == name
