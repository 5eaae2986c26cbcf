"""`estimax python` prints a script, or writes it to a file."""


def test_the_script_is_printed_or_written(cli, run_file, tmp_path):
    answer = cli("python", run_file, "--set", "train.max_steps=7")
    assert answer.code == 0, answer.err
    assert "import estimax as ex\n" in answer.out
    assert "ex.DNNLinearCombinedEstimator(" in answer.out
    assert "max_steps=7" in answer.out
    compile(answer.out, "train.py", "exec")
    path = tmp_path / "train.py"
    cli("python", run_file, "--set", "train.max_steps=7", "--output", path)
    assert path.read_text() == answer.out


def test_a_wrong_file_prints_its_errors_and_no_script(cli, run_file):
    answer = cli("python", run_file, "--set", "train.max_step=7")
    assert answer.code == 2
    assert "unknown key; did you mean 'max_steps'?" in answer.err
    assert answer.out == ""
