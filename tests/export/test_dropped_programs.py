"""Programs of bundles that are no longer loaded leave memory."""

import gc
import weakref

import numpy as np

from estimax.export import functions


def test_a_program_is_freed_when_the_next_one_is_loaded(tmp_path):
    programs = [_load(tmp_path / str(number), number) for number in range(3)]
    exported = [weakref.ref(program.exported) for program in programs]
    del programs[:]
    gc.collect()

    last = _load(tmp_path / "last", 3)
    gc.collect()

    assert [reference() for reference in exported] == [None] * 3
    np.testing.assert_allclose(_call(last), np.full(4, 4.0))


def test_a_loaded_program_answers_after_others_were_loaded(tmp_path):
    first = _load(tmp_path / "first", 10)
    for number in (11, 12):
        _load(tmp_path / str(number), number)

    np.testing.assert_allclose(_call(first), np.full(4, 11.0))
    np.testing.assert_allclose(_call(first, rows=7), np.full(7, 11.0))


def _load(folder, number):
    """Return a program that adds a number, read from files and called once."""
    folder.mkdir()
    inputs = {"x": functions.ArgumentSpec("float32", (functions.BATCH,))}
    exported = functions.export_function(
        lambda weights, inputs: {"y": inputs["x"] + float(number)},
        functions.abstract({}, inputs),
        ["cpu"],
    )
    functions.write_function(folder, "predict", exported)
    program = functions.load_program(
        lambda name: (folder / name).read_bytes(), "predict", f"adds {number}"
    )
    _call(program)
    return program


def _call(program, rows=4):
    return program.call({}, {"x": np.ones(rows, np.float32)})["y"]
