"""`estimax schema KEY` and the page of keys have every key of a run file."""

import re
import sys
from pathlib import Path

import pytest

from estimax.cli.main import main
from estimax.config.key_reference import all_sections, entries_at, known_part
from estimax.config.schema import Run
from estimax.config.schema.section import fields_of, sections_below, tag_of

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from run_file_keys import key_page


def every_key(section, path=""):
    tag = tag_of(section)
    for key in fields_of(section):
        if tag is None or key != tag[0] or section is Run:
            yield f"{path}.{key}".strip(".")
    for here, below in sections_below(section, path):
        yield from every_key(below, here)


def test_every_address_has_an_entry_with_a_description():
    keys = set(every_key(Run))
    assert len(keys) > 1000
    for address in keys:
        own = [entry for entry in entries_at(address) if entry.is_key]
        assert own, address
        for entry in own:
            assert entry.keys[0].type, address
            assert entry.keys[0].description, address


def test_names_of_sections_are_distinct_so_that_the_page_can_link_to_them():
    names = [section.name.lower() for section in all_sections()]
    assert len(set(names)) == len(names)


def test_types_have_limits_and_choices():
    (batch_size,) = entries_at("data.sources.mine.batch_size")[0].keys
    assert batch_size.type.startswith("integer >= 1")
    (by,) = entries_at("data.sources.mine.split.by")[0].keys
    assert (by.type, by.default) == ("random or hash or time", '"random"')
    (rate,) = entries_at("optimizers.dnn.learning_rate")[0].keys
    assert rate.type.startswith("number > 0, or mapping with schedule: exponential or")


def test_items_of_lists_are_numbers_and_items_of_mappings_any_name():
    assert entries_at("export.0") == entries_at("export.<n>") != []
    assert entries_at("export.first") == []
    assert entries_at("features.0") == entries_at("features.age") != []


def test_python_names_are_those_that_users_write():
    adam = next(s for s in all_sections() if s.name == "Adam")
    assert adam.python == "ex.optimizers.Adam"
    assert next(s for s in all_sections() if s.name == "RunSection").python == (
        "ex.RunConfig"
    )


def test_the_longest_known_part_of_an_address():
    assert known_part("model.dnn.drpout") == "model.dnn"
    assert known_part("nothing") == ""


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["estimax", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    return end.value.code or 0, printed.out + printed.err


def test_a_key_is_described(monkeypatch, capsys):
    code, text = run(monkeypatch, capsys, "schema", "train.max_steps")
    assert code == 0
    assert text.startswith("train.max_steps: integer >= 1, or null; default null\n")


def test_an_unknown_key_is_an_error_with_advice(monkeypatch, capsys):
    code, text = run(monkeypatch, capsys, "schema", "optimizers.dn.learning_rate")
    assert code == 2
    assert "no run file has optimizers.dn; did you mean 'dnn'?" in text


def test_errors_of_a_file_say_how_to_look_up_a_key(monkeypatch, capsys, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("schema: estimax/run/v1\nname: x\ntrain: {max_stops: 3}\n")
    code, text = run(monkeypatch, capsys, "check", str(path))
    assert code == 2
    assert "Describe a key: estimax schema " in text
    address = text.rpartition("estimax schema ")[2].strip()
    assert run(monkeypatch, capsys, "schema", address)[0] == 0


def test_the_page_has_every_key_once_and_links_that_exist():
    page = key_page()
    anchors = re.findall(r'<a id="([^"]+)">', page)
    assert len(anchors) == sum(len(section.keys) for section in all_sections())
    assert len(set(anchors)) == len(anchors)
    headings = set(re.findall(r"\{#(\w+)\}$", page, re.M))
    assert set(re.findall(r"\]\(#(\w+)\)", page)) == headings
