"""What the command line does with files that nobody has looked at."""

import os
import subprocess
import sys

import pytest

MODULE = """\
from pathlib import Path

Path(__file__).with_name("imported").touch()


class Mine:
    def __init__(self, depth: int, config, feature_columns): ...
"""


@pytest.fixture
def custom(run_file):
    """A run whose model is a class of the working directory."""
    (run_file.parent / "mine.py").write_text(MODULE)
    return with_model(run_file, '{class: "mine:Mine", params: {depth: 3}}')


def with_model(run_file, model):
    text = run_file.read_text()
    start, end = text.index("model:\n"), text.index("train: {max")
    run_file.write_text(f"{text[:start]}model: {model}\n{text[end:]}")
    return run_file


def test_a_check_imports_the_class_and_its_help_says_so(process, custom):
    assert process("check", custom, cwd=custom.parent).code == 0
    assert (custom.parent / "imported").exists()
    help_text = process("check", "--help").out
    assert "This runs the code of that module" in " ".join(help_text.split())


def test_a_check_without_import_runs_no_code_and_says_what_is_left(process, custom):
    answer = process("check", custom, "--no-import", cwd=custom.parent)
    assert answer.code == 0
    assert f"{custom}: ok, mine:Mine" in answer.out
    assert "model.class and model.params were not checked" in answer.out
    assert not (custom.parent / "imported").exists()


def test_a_check_without_import_checks_everything_else(process, custom):
    custom.write_text(custom.read_text().replace("max_steps", "max_step"))
    answer = process("check", custom, "--no-import", cwd=custom.parent)
    assert answer.code == 2
    assert "train.max_step: unknown key" in answer.err


def test_a_stock_model_is_checked_whole_without_import(cli, run_file):
    answer = cli("check", run_file, "--no-import")
    assert answer.code == 0
    assert "not checked" not in answer.out


@pytest.mark.parametrize("command", [["show"], ["show", "--yaml"], ["schema"]])
def test_looking_at_a_run_imports_no_code_of_the_user(process, custom, command):
    path = [] if command == ["schema"] else [custom]
    assert process(*command, *path, cwd=custom.parent).code == 0
    assert not (custom.parent / "imported").exists()


def test_running_a_bundle_imports_nothing_from_the_working_directory(trained):
    folder = trained[0].parent
    arguments = [
        *("run", str(folder / "model" / "export" / "best")),
        *("--input", str(folder / "test.csv"), "--output", str(folder / "out.csv")),
    ]
    code = (
        "import sys\n"
        f"sys.argv = ['estimax', *{arguments!r}]\n"
        "from estimax.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"own = [m for m in sys.modules.values() if (getattr(m, '__file__', '') or '')"
        f".startswith({str(folder)!r})]\n"
        "assert not own, own\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("def", "SyntaxError: "),
        ("from os import nothing", "ImportError: cannot import name 'nothing'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_an_error(process, custom, code, expected):
    (custom.parent / "mine.py").write_text(code)
    answer = process("check", custom, cwd=custom.parent)
    assert answer.code == 2
    assert f"model.class: cannot import 'mine': {expected}" in answer.err
    assert "mine.py" in answer.err
    assert "Traceback" not in answer.err


def test_a_class_without_a_signature_is_an_error(cli, run_file):
    answer = cli("check", with_model(run_file, '{class: "builtins:dict"}'))
    assert answer.code == 2
    assert "builtins:dict has no signature" in answer.err


def test_names_that_look_like_markup_are_printed_as_they_are(cli, run_file):
    text = run_file.read_text().replace("    test: {", "    '[/b]:smile:': {")
    run_file.write_text(text.replace("source: test", "source: '[/b]:smile:'"))
    answer = cli("check", run_file, "--data")
    assert answer.code == 0, answer.err
    assert "sources: train, [/b]:smile:; 40 steps" in answer.out


def test_words_that_look_like_markup_are_printed_as_they_are(cli, run_file):
    train = run_file.parent / "train.csv"
    train.write_text(train.read_text().replace("rome", "[/b]"))
    answer = cli("check", run_file, "--data")
    assert answer.code == 0, answer.err
    assert "[/b]" in answer.out


@pytest.mark.parametrize("value", ["99999999999999999999", "9" * 5000, "1e400", "nan"])
def test_numbers_that_no_column_can_hold_are_counted(cli, run_file, value):
    train = run_file.parent / "train.csv"
    lines = train.read_text().splitlines()
    train.write_text("\n".join([*lines, f"30,rome,{value},1"]) + "\n")
    feature = "features.plane={type: identity, buckets: 100}"
    cross = "features.age_x_city.keys=[age_buckets, city]"
    answer = cli("check", run_file, "--data", "--set", feature, "--set", cross)
    assert answer.code == 1
    assert "line 402: features.plane: expected a whole number, found" in answer.err


def test_a_file_name_that_is_not_utf_8_is_printed(process, tmp_path):
    answer = process("check", os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml"))
    assert answer.code == 1
    assert "there is no such run file" in answer.err
    assert "Traceback" not in answer.err


def test_an_override_that_is_not_utf_8_is_an_error(process, run_file):
    given = os.fsdecode(b"name=\xff")
    answer = process("check", run_file, "--set", given)
    assert answer.code == 2
    assert "name: the text is not UTF-8" in answer.err


def test_a_file_name_that_is_too_long_is_a_missing_file(cli, run_file):
    answer = cli("check", run_file, "--set", f"data.sources.test.files={'x' * 5000}")
    assert answer.code == 1
    assert "data.sources.test.files: no file matches 'xxx" in answer.err
