"""Every command starts, explains itself, and fails politely."""

import subprocess
import sys

import pytest

COMMANDS = ["train", "evaluate", "predict", "check", "show", "run", "schema"]


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


def test_the_version_is_told(process):
    assert process("--version").out.startswith("estimax 0.")


def test_a_wrong_run_file_ends_with_code_2_and_no_traceback(process, run_file):
    run_file.write_text(run_file.read_text().replace("max_steps", "max_step"))
    answer = process("check", run_file)
    assert answer.code == 2
    assert f"{run_file}:30:9: train.max_step: unknown key" in answer.err
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
