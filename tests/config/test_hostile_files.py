"""Run files that are damaged, or made to exhaust memory and time, are refused.

None of these tests measures a time. Without its limit each file here takes minutes, all
memory, or the whole stack.
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text, problems, spoiled, write

from estimax.config import RunFileError, load
from estimax.core.errors import ConfigError

TAG = (
    "is not supported: a run file holds plain YAML (text, numbers, lists, mappings); "
    "remove the tag"
)
DEEP = "lists and mappings are nested more than 50 deep; make the file smaller"
MANY = "the run expands to more than 250,000 values; make the file smaller or simpler"


def with_metadata(text: str) -> str:
    return f"{GOOD}metadata:\n  a: {text}\n"


def with_vars(*lines: str) -> str:
    listed = "".join(f"  {line}\n" for line in lines)
    return spoiled("name: small\n", f"name: ${{vars.v0}}\nvars:\n{listed}")


# ------------------------------------------------------------------- what expands


def alias_levels(count: int, width: int) -> str:
    lines = [f"  v0: &v0 [{', '.join('x' * width)}]"]
    for i in range(count):
        aliases = ", ".join([f"*v{i}"] * width)
        lines.append(f"  v{i + 1}: &v{i + 1} [{aliases}]")
    return "metadata:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(("count", "width"), [(6, 10), (30, 2), (20, 50)])
def test_aliases_of_aliases_are_refused_where_they_become_too_many(
    tmp_path, count, width
):
    (line,) = problems(tmp_path, GOOD + alias_levels(count, width))
    assert line.startswith("run.yaml:")
    assert line.endswith(MANY)
    row = int(line.split(":")[1])
    assert "&v" in (GOOD + alias_levels(count, width)).splitlines()[row - 1]


def test_aliases_of_a_long_text_are_refused(tmp_path):
    text = f"&a {'x' * 100_000}\n  b: [{', '.join(['*a'] * 1000)}]"
    (line,) = problems(tmp_path, with_metadata(text))
    assert line.startswith("run.yaml:19:")
    assert "the run expands to more than 16,000,000 characters of text" in line


def test_an_alias_may_not_nest_lists_too_deep(tmp_path):
    deep = "[" * 30 + "x" + "]" * 30
    text = with_metadata(f"&a {deep}\n  b: " + "[" * 30 + "*a" + "]" * 30)
    (line,) = problems(tmp_path, text)
    assert line.startswith("run.yaml:19:")
    assert DEEP in line


def test_a_few_aliases_are_welcome(tmp_path):
    text = spoiled("hidden_units: [8]", "hidden_units: &units [8]")
    run = load_text(tmp_path, text + "metadata: {same: *units, also: [*units]}\n").run
    assert run.metadata == {"same": [8], "also": [[8]]}


def test_files_that_include_each_other_twice_are_read_once(tmp_path):
    for i in range(60):
        again = f"include: [f{i + 1}.yaml, f{i + 1}.yaml]\n" if i < 59 else ""
        write(tmp_path, f"{again}metadata: {{a{i}: {i}}}\n", f"f{i}.yaml")
    lines = problems(tmp_path, spoiled("name: small", "name: a\ninclude: [f0.yaml]"))
    assert len(lines) == 1
    assert lines[0].endswith("include: more than 100 includes; merge some of the files")
    write(tmp_path, "metadata: {last: 1}\n", "f40.yaml")
    text = spoiled("name: small", "name: small\ninclude: [f0.yaml]")
    assert len(load_text(tmp_path, text).run.metadata) == 41


def test_a_circle_of_includes_is_reported_where_it_closes(tmp_path):
    write(tmp_path, "include: [c.yaml]\n", "b.yaml")
    write(tmp_path, "seed: 1\ninclude: [run.yaml]\n", "c.yaml")
    lines = problems(tmp_path, spoiled("name: small", "name: a\ninclude: [b.yaml]"))
    assert lines == ["c.yaml:2:11: include: run.yaml includes itself"]


def test_a_list_of_very_many_includes_is_refused(tmp_path):
    write(tmp_path, "seed: 1\n", "b.yaml")
    many = ", ".join(["b.yaml"] * 50_000)
    (line,) = problems(tmp_path, spoiled("name: small", f"name: a\ninclude: [{many}]"))
    assert line.endswith("include: more than 100 includes; merge some of the files")


@pytest.mark.parametrize(
    "text", ["${vars.v%d}${vars.v%d}", "[${vars.v%d}, ${vars.v%d}]"]
)
def test_references_that_double_at_each_level_are_refused(tmp_path, text):
    # Quoted inside brackets; 2 to the 19th of ten characters, or of values.
    text = text.replace("[${", '["${').replace("}, ${", '}", "${').replace("}]", '}"]')
    lines = [f"v{i}: " + text % (i + 1, i + 1) for i in range(19)]
    seed = "x" * 100 if text.startswith("$") else "[a, b]"
    found = problems(tmp_path, with_vars(*lines, f"v19: {seed}"))
    (line,) = (line for line in found if "references expand to more than" in line)
    assert line.startswith("run.yaml:")


def test_a_text_of_very_many_references_is_refused(tmp_path):
    text = "${vars.v1}" * 100_000
    found = problems(tmp_path, with_vars(f"v0: {text}", f"v1: {'x' * 1000}"))
    assert len(found) == 1
    assert "vars.v0: references expand to more than 16,000,000 characters" in found[0]


def test_a_long_chain_of_references_is_refused(tmp_path):
    lines = [f"v{i}: ${{vars.v{i + 1}}}" for i in range(500)]
    found = problems(tmp_path, with_vars(*lines, "v500: x"))
    assert "references lead through more than 20 others" in found[0]


def test_references_may_not_nest_lists_too_deep(tmp_path):
    lines = [f'v{i}: {"[" * 40}"${{vars.v{i + 1}}}"{"]" * 40}' for i in range(15)]
    found = problems(tmp_path, with_vars(*lines, "v15: x"))
    assert any(
        "references nest lists and mappings more than 50 deep" in f for f in found
    )


def test_a_text_full_of_open_references_is_refused(tmp_path):
    (line,) = problems(tmp_path, spoiled("name: small", f"name: {'${' * 300_000}"))
    assert line == "run.yaml:2:7: name: '${' without a closing '}'"


@pytest.mark.parametrize("name", ["\\e[31mred", "env:\\e[31mred", "x" * 90_000])
def test_a_strange_reference_is_shown_in_a_line(tmp_path, name):
    (line,) = problems(tmp_path, spoiled("name: small", f'name: "${{{name}}}"'))
    assert line.isprintable()
    assert len(line) < 300


# ------------------------------------------------------------------- what is large


def test_a_list_of_50_000_words_loads(tmp_path):
    words = ", ".join(f"word{i}" for i in range(50_000))
    text = spoiled(
        "{type: hashed, buckets: 100}", f"{{type: vocabulary, list: [{words}]}}"
    )
    feature = load_text(tmp_path, text).run.features["city"]
    assert feature.list_[-1] == "word49999"


def test_a_file_of_50_000_mistakes_reports_the_first_hundred(tmp_path):
    text = GOOD + "".join(f"key{i}: {i}\n" for i in range(50_000))
    with pytest.raises(RunFileError) as caught:
        load_text(tmp_path, text)
    assert len(caught.value.problems) == 100
    assert "100 errors in" in str(caught.value)
    assert "(there may be more: the rest was not checked)" in str(caught.value)


def test_a_file_of_too_many_values_is_refused(tmp_path):
    (line,) = problems(tmp_path, with_metadata("[" + "a," * 300_000 + "]"))
    assert line.startswith("run.yaml:18:")
    assert line.endswith(MANY)


def test_a_file_of_too_many_bytes_is_refused(tmp_path):
    (line,) = problems(tmp_path, GOOD + "#" * 9_000_000)
    assert "makes the files of this run larger than 8 MB" in line


def test_a_long_line_is_a_text_like_any_other(tmp_path):
    run = load_text(tmp_path, with_metadata("x" * 1_000_000)).run
    assert len(run.metadata["a"]) == 1_000_000


def test_a_long_value_is_cut_in_messages(tmp_path):
    (line,) = problems(tmp_path, spoiled("max_steps: 10", f"max_steps: {'x' * 90_000}"))
    assert line.startswith("run.yaml:16:20: train.max_steps: expected int or null, got")
    assert len(line) < 200


# ----------------------------------------------------------------- what is damaged

BROKEN_TEXT = [
    (b"name: small", b"name: sm\0all", "2:9: the control character U+0000 is not"),
    (b"name: small", b"name: sm\x1ball", "2:9: the control character U+001B is not"),
    (b"name: small", b"name: \xc2\x80", "2:7: the control character U+0080 is not"),
    (b"name: small", b"name: \xef\xbf\xbf", "2:7: the character U+FFFF is not allowed"),
    (b"name: small", b"name: caf\xe9", "2:10: the byte 0xE9 is not UTF-8; save the"),
    (b"name: small", b'name: "a\\0b"', "2:7: name: a text may not hold the character"),
    (b"name: small", b'name: "\\ud800"', "2:"),
    (b"name: small", b"name: small\n\tseed: 1", "3:1: not YAML: "),
    (
        b"\ntrain: {",
        b"\n---\ntrain: {",
        "16:1: not YAML: a second document begins here",
    ),
    (b"name: small", b"name: *none", "2:7: not YAML: there is no anchor &none before"),
    (b"name: small", b"name: [", ""),
    (b"name: small", b"name: !x!y z", "2:7: not YAML: "),
]


@pytest.mark.parametrize(("old", "new", "expected"), BROKEN_TEXT)
def test_a_damaged_text_is_reported_where_it_is(tmp_path, old, new, expected):
    data = GOOD.encode()
    assert data.count(old) == 1
    path = tmp_path / "run.yaml"
    path.write_bytes(data.replace(old, new))
    with pytest.raises(RunFileError) as caught:
        load(path)
    (line,) = map(str, caught.value.problems)
    assert line.startswith(f"{path}:{expected}")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
def test_another_encoding_is_refused(tmp_path, encoding):
    path = tmp_path / "run.yaml"
    path.write_bytes(GOOD.encode(encoding))
    with pytest.raises(RunFileError) as caught:
        load(path)
    text = str(caught.value)
    assert "save it as UTF-8" in text or "1:2: the control character U+0000" in text


def test_a_byte_order_mark_of_utf_8_is_not_part_of_the_text(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(path).run.schema == "estimax/run/v1"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\n\n"])
def test_a_file_without_content_lacks_its_sections(tmp_path, text):
    lines = problems(tmp_path, text)
    assert lines
    assert all("required key is missing" in line for line in lines)


def test_a_folder_is_not_a_run_file(tmp_path):
    with pytest.raises(
        ConfigError, match=r"expected a run file \(YAML\), found a fold"
    ):
        load(tmp_path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_reported(tmp_path):
    path = write(tmp_path, GOOD)
    path.chmod(0)
    with pytest.raises(RunFileError, match=r"cannot read .*: Permission denied"):
        load(path)


@pytest.mark.parametrize(
    "text", ["[" * 2000 + "]" * 2000, "{a: " * 2000, "[" * 200_000]
)
def test_deep_nesting_is_refused(tmp_path, text):
    (line,) = problems(tmp_path, with_metadata(text))
    assert line.startswith("run.yaml:18:")
    assert DEEP in line


def test_block_nesting_is_refused(tmp_path):
    lines = [f"{' ' * i}a:" for i in range(300)]
    (line,) = problems(tmp_path, GOOD + "metadata:\n " + "\n ".join(lines) + " 1\n")
    assert DEEP in line


# ----------------------------------------------------------------- numbers and tags

NOT_A_NUMBER = [
    ("9" * 5000, "expected a whole number of at most 64 bits, got one of 5,000 digits"),
    ("9" * 400, "expected a whole number of at most 64 bits, got one of 400 digits"),
    ("-9223372036854775809", "expected a whole number of at most 64 bits, got one of"),
    ("0x" + "f" * 9000, "expected a whole number of at most 64 bits, got one of 9,000"),
    (".inf", "must be a finite number, got inf"),
    ("-.inf", "must be a finite number, got -inf"),
    (".nan", "must be a finite number, got nan"),
    ("1e999", "expected a number of at most 1.8e308, got 1e999; infinity is written"),
    ("1e39", "must be between -3.4e38 and 3.4e38 (float32), got 1e+39"),
    ("1e-300", "must be >= 1.2e-38 (float32), got 1e-300"),
    ("!!float abc", "expected float after the tag !!float, got 'abc'"),
    ("!!binary aGk=", f"the tag !!binary {TAG}"),
]


@pytest.mark.parametrize(("text", "expected"), NOT_A_NUMBER)
def test_what_is_no_usable_number_is_refused(tmp_path, text, expected):
    given = f"optimizers: {{dnn: {{type: adam, learning_rate: {text}}}}}\n"
    (line,) = problems(tmp_path, GOOD + given)
    assert line.startswith(f"run.yaml:17:47: optimizers.dnn.learning_rate: {expected}")


@pytest.mark.parametrize(
    "text", ["9223372036854775807", "0" * 9000 + "7", "+5", "0o17"]
)
def test_whole_numbers_of_64_bits_are_read(tmp_path, text):
    run = load_text(tmp_path, with_metadata(text)).run
    assert run.metadata["a"] == int(text.replace("0o17", "15").lstrip("0+"))


TAGS = [
    ("!!python/tuple [1]", f"the tag !!python/tuple {TAG}"),
    ("!!python/object:os.x {b: 1}", f"the tag !!python/object:os.x {TAG}"),
    ("!!python/object/apply:os.system [ls]", "the tag !!python/object/apply:os.system"),
    ("!!python/name:os.system ''", f"the tag !!python/name:os.system {TAG}"),
    ("!!timestamp 2020-01-01", f"the tag !!timestamp {TAG}"),
    ("!!set {b}", f"the tag !!set {TAG}"),
    ("!!omap [b: 1]", f"the tag !!omap {TAG}"),
    ("!!seq {b: 1}", f"the tag !!seq {TAG}"),
    ("!!map [1]", f"the tag !!map {TAG}"),
    ("!mine [1]", f"the tag !mine {TAG}"),
    ("!<tag:example.com:x> 1", f"the tag tag:example.com:x {TAG}"),
    ("!!int x", "expected int after the tag !!int, got 'x'"),
]


@pytest.mark.parametrize(("text", "expected"), TAGS)
def test_a_tag_beyond_the_core_schema_is_refused(tmp_path, text, expected):
    (line,) = problems(tmp_path, with_metadata(text))
    assert line.startswith(f"run.yaml:18:6: metadata.a: {expected}")


def test_tags_of_the_core_schema_mean_what_they_say(tmp_path):
    given = "[!!str 5, !!int '5', !!float 5, !!bool true, !!null '', !!seq [], ! 5]"
    run = load_text(tmp_path, with_metadata(given)).run
    assert repr(run.metadata["a"]) == "['5', 5, 5.0, True, None, [], '5']"


def test_a_date_is_text(tmp_path):
    run = load_text(tmp_path, with_metadata("2020-01-01")).run
    assert run.metadata["a"] == "2020-01-01"


# ------------------------------------------------------------------ keys and aliases

KEYS = [
    ("{2013: x}", "18:7: metadata.a: a key must be text, got 2013; quote it: '2013'"),
    ("{true: x}", "18:7: metadata.a: a key must be text, got true; quote it: 'true'"),
    ("{null: x}", "18:7: metadata.a: a key must be text, got null; quote it: 'null'"),
    ("{[1]: x}", "18:7: metadata.a: a key must be a single word, got a list or map"),
    (
        "{'': x}",
        "18:7: metadata.a: a key must be 1 to 200 printable characters, got ''",
    ),
    ('{"a\\tb": x}', "18:7: metadata.a: a key must be 1 to 200 printable characters, "),
    ("{b: 1, 'b': 2}", "18:13: metadata.a.b: duplicate key; first on line 18"),
    ("{<<: {b: 1}}", "18:7: metadata.a: merge keys (<<) are not supported; write the"),
    ("&a [*a]", "18:10: metadata.a.0: the alias *a is inside the value that it names"),
    ("[&b 1, &b 2]", "18:13: metadata.a.1: the anchor &b is used before; rename one"),
]


@pytest.mark.parametrize(("text", "expected"), KEYS)
def test_odd_keys_and_anchors_are_refused(tmp_path, text, expected):
    (line,) = problems(tmp_path, with_metadata(text))
    assert line.startswith(f"run.yaml:{expected}")


def test_an_unusable_include_is_reported(tmp_path):
    (tmp_path / "folder").mkdir()
    names = ["folder", "n" * 5000, "a\\0b"]
    listed = ", ".join(f'"{name}"' for name in names)
    found = problems(tmp_path, spoiled("name: small", f"name: a\ninclude: [{listed}]"))
    assert [line.split(": ")[2][:9] for line in found] == [
        "a folder ",
        "no file '",
        "a text ma",
    ]


# --------------------------------------------------------------------- the command line

BAD_OVERRIDES = [
    ("metadata.a=!!python/tuple [1]", f"metadata.a: the tag !!python/tuple {TAG}"),
    (
        "metadata.a=" + "9" * 5000,
        "metadata.a: expected a whole number of at most 64 bi",
    ),
    ("metadata.a={b: 1, b: 2}", "metadata.a.b: duplicate key"),
    ("metadata.a=&a [*a]", "metadata.a.0: the alias *a is inside the value that it"),
    (
        "metadata.a=" + "[" * 2000 + "]" * 2000,
        "lists and mappings are nested more than",
    ),
    (
        "metadata.a=" + "[" + "a," * 300_000 + "]",
        "expands to more",
    ),
    ("metadata.a=\x07", "metadata.a: the control character U+0007 is not allowed"),
    ("metadata.a=\udcff", "metadata.a: the text is not UTF-8"),
    ("metadata." + "a." * 2000 + "b=1", "expected a PATH of at most 50 keys of 200"),
    (f"metadata.{'a' * 300}=1", "expected a PATH of at most 50 keys of 200"),
    (
        "model.dnn.hidden_units." + "1" * 150 + "=3",
        "expected an index from 0 to 0, got",
    ),
    ("include=[other.yaml]", "include: files are included before --set applies"),
    ("optimizers.dnn={type: adam, learning_rate: .inf}", "must be a finite number"),
]


@pytest.mark.parametrize(("override", "expected"), BAD_OVERRIDES)
def test_a_hostile_override_is_refused(tmp_path, override, expected):
    (line,) = problems(tmp_path, GOOD, override)
    assert line.startswith("--set ")
    assert expected in line
    assert len(line) < 600


@pytest.mark.parametrize(
    "text", ["*.csv", "[ab]*.csv", "#ff0000", "a: b: c", "@x", "%"]
)
def test_what_is_not_yaml_in_an_override_is_text(tmp_path, text):
    run = load_text(tmp_path, GOOD, f"metadata.a={text}").run
    assert run.metadata["a"] == text


@pytest.mark.parametrize("text", ["2013", "null", "~", "[a]", "a: b", "&x y", "!t z"])
def test_a_model_dir_is_text_whatever_it_looks_like(tmp_path, text):
    assert load(write(tmp_path, GOOD), model_dir=text).run.run.model_dir == text


def test_a_model_dir_that_is_not_utf_8_is_refused(tmp_path):
    with pytest.raises(RunFileError, match=r"run\.model_dir: the text is not UTF-8"):
        load(write(tmp_path, GOOD), model_dir="runs/\udcff")


def test_a_variable_of_the_environment_is_within_the_limits(tmp_path):
    text = spoiled("name: small", "name: small\nmetadata: {a: '${env:X}'}")
    value = "[" * 2000
    run = load_text(tmp_path, text, environment={"X": value}).run
    assert run.metadata["a"] == value
    with pytest.raises(RunFileError, match=r"metadata\.a: the text is not UTF-8"):
        load_text(tmp_path, text, environment={"X": "\udcff"})
