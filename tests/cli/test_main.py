"""Every command starts, explains itself, and fails politely."""

import subprocess
import sys

import pytest

COMMANDS = [
    *(
        "init",
        "check",
        "train",
        "launch",
        "evaluate",
        "predict",
        "cv",
        "sweep",
        "export",
    ),
    *("run", "serve", "convert", "show", "report", "diff", "compare", "python"),
    *("schema", "port", "warm"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_explains_itself_with_an_example(cli, command):
    answer = cli(command, "--help")
    assert answer.code == 0
    assert f"estimax {command}" in answer.out.split("Usage:")[1]
    assert "Example" in answer.out


def test_the_help_lists_every_command(cli):
    answer = cli("--help")
    for command in COMMANDS:
        assert command in answer.out
    assert "Exit status" in answer.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["trian"], 2, "No such command"),
        (["train"], 2, "Missing argument"),
        (["train", "folder"], 2, "expected a run file"),
        (["train", "latin.yaml"], 2, "UTF-8"),
        (["init", "gone.csv"], 1, "there is no such file"),
        (["init", "empty.csv"], 1, "empty.csv"),
        (["init", "good.csv", "--label", "nmae"], 2, "did you mean 'name'?"),
        (["init", "good.csv", "--test", "gone.csv"], 1, "--test: there is no file"),
        (["show", "folder"], 1, "found no checkpoint"),
        (["diff", "folder", "gone"], 1, "expected a model directory"),
        (["compare", "gone"], 1, "found no folder"),
        (["export", "folder"], 1, "expected a run file, or a model directory"),
        (["export", "x", "--calibrate", "isotonc"], 2, "did you mean 'isotonic'?"),
        (["port", "gone.py"], 1, "there is no such file"),
        (["port", "good.csv"], 1, "this is not Python 3"),
        (["schema", "--output", "folder"], 1, "folder"),
        (["run", "folder", "--input", "good.csv"], 1, "folder"),
    ],
)
def test_a_mistake_has_a_message_and_no_traceback(
    cli, tmp_path, arguments, code, words
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "good.csv").write_text("name,x\na b,1\nc d,2\n")
    answer = cli(*arguments, cwd=tmp_path)
    assert (answer.code, "Traceback" in answer.err) == (code, False), answer.err
    assert words in answer.err


def test_the_version_is_told(process):
    assert process("--version").out.startswith("estimax 0.")


def test_a_wrong_run_file_ends_with_code_2_and_no_traceback(process, run_file):
    text = run_file.read_text().replace("max_steps", "max_step")
    run_file.write_text(text)
    line = 1 + text[: text.index("max_step")].count("\n")
    answer = process("check", run_file)
    assert answer.code == 2
    assert f"{run_file}:{line}:9: train.max_step: unknown key" in answer.err
    assert "Traceback" not in answer.err


def test_a_missing_run_file_ends_with_code_1(cli, tmp_path):
    answer = cli("train", tmp_path / "gone.yaml")
    assert answer.code == 1
    assert "there is no such run file" in answer.err


def test_missing_data_is_told_before_anything_starts(cli, run_file):
    (run_file.parent / "test.csv").unlink()
    answer = cli("train", run_file)
    assert answer.code == 1
    assert "data.sources.test.files: no file matches" in answer.err
    assert not (run_file.parent / "model").exists()


@pytest.mark.parametrize("command", [["check"], ["show"], ["schema"]])
def test_a_check_imports_nothing_heavy(command, run_file):
    arguments = [*command, *([] if command == ["schema"] else [str(run_file)])]
    code = (
        "import sys\n"
        f"sys.argv = ['estimax', *{arguments!r}]\n"
        "from estimax.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'jax', 'numpy', 'pyarrow', 'flax', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_file_is_refused_before_jax_is_imported(run_file):
    run_file.write_text(run_file.read_text().replace("max_steps", "max_step"))
    code = (
        "import sys\n"
        f"sys.argv = ['estimax', 'train', {str(run_file)!r}]\n"
        "from estimax.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 2\n"
        "assert 'jax' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
