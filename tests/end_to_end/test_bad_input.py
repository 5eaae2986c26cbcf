"""A broken line in the data ends a run with its place, and costs no checkpoint."""

import shutil

from processes import differences

from estimax import checkpoints

LINE = 500  # reached in the first epoch, after some thirty steps


def test_broken_line_is_named_and_the_mended_run_ends_bit_identical(
    start_run, data, tmp_path, undisturbed, cache
):
    own = shutil.copytree(data, tmp_path / "data")
    file = own / "train-1.csv"
    whole = file.read_text()
    lines = whole.splitlines(keepends=True)
    lines[LINE - 1] = "41,Oslo,phone,maybe\n"
    file.write_text("".join(lines))

    run = start_run(data=own, env=cache)
    run.start()
    assert run.wait() == 1  # and does not hang
    problem = run.log.splitlines()[-1]
    assert "BadRowError" in problem
    byte = sum(map(len, lines[: LINE - 1]))
    place = f"train-1.csv, line {LINE} (byte {byte}): column 'clicked'"
    assert place in problem
    assert "'maybe'" in problem
    latest = checkpoints.restore_latest(run.model_dir)
    assert latest.step == run.newest_saved() > 0

    file.write_text(whole)
    run.start()
    assert run.wait() == 1
    problem = run.log.splitlines()[-1]
    assert "ChangedInputError" in problem
    assert '"unchecked" continues there' in problem

    run.finish("--resume-input", "unchecked")
    assert differences(run.model_dir, undisturbed) == []
