"""Bundles that somebody changed on purpose, hashes included: all are BundleErrors."""

import base64
import json
import os
import shutil
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest

from estimax import export
from estimax.core.errors import BundleError
from estimax.export.manifest import MANIFEST, _checksum, write_manifest

sys.path.insert(0, str(Path(__file__).parent))
import servables  # lies beside this file

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return export.write_bundle(servables.wide_servable(), folder, platforms=("cpu",))


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / whole.name))


def forge(folder, change):
    """Change the manifest's record and make its checksum fit again."""
    path = folder / MANIFEST
    record = json.loads(path.read_text())
    change(record)
    record["checksum"] = _checksum(record)
    path.write_text(json.dumps(record))


def rehash(folder):
    """Make the manifest agree with the files again."""
    path = folder / MANIFEST
    about = json.loads(path.read_text())
    path.unlink()
    write_manifest(
        folder, {k: about[k] for k in about if k not in ("files", "checksum")}
    )


def change_json(folder, name, change):
    path = folder / name
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    rehash(folder)


def check_refused(folder, match=r"."):
    tracemalloc.start()
    for verify in (True, False):
        with pytest.raises(BundleError, match=match):
            export.load(folder, verify=verify, self_test=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "a/../../outside", "", ".", "a//b", "a\\b"]
)
def test_names_elsewhere(copy, name):
    (copy.parent / "outside").write_text("s")
    entry = {"size": 1, "sha256": "0" * 64}
    forge(copy, lambda record: record["files"].update({name: entry}))
    check_refused(copy, r"manifest\.json")


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "signatures.json", MANIFEST, "functions", "assets"]
)
def test_links_that_leave_the_folder(copy, name):
    outside = copy.parent / "outside"
    (copy / name).rename(outside)
    (copy / name).symlink_to(outside)
    check_refused(copy, "leads out of the folder")


def test_a_vocabulary_that_is_not_listed_and_lies_elsewhere(copy):
    (words,) = (copy / "assets").iterdir()
    words.rename(copy.parent / "words.txt")
    rehash(copy)
    words.symlink_to(copy.parent / "words.txt")
    check_refused(copy, "leads out of the folder")


@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.json"])
def test_a_pipe(copy, name):
    (copy / name).unlink()
    os.mkfifo(copy / name)
    check_refused(copy)


def test_links_inside_a_folder_are_followed(copy):
    """As Kubernetes mounts volumes."""
    inside = copy / "..data"
    inside.mkdir()
    (copy / "weights.safetensors").rename(inside / "weights")
    (copy / "weights.safetensors").symlink_to("..data/weights")
    copy.parent.joinpath("link").symlink_to(copy)
    export.load(copy.parent / "link", self_test=True)


@pytest.mark.parametrize(
    "files",
    [[], "x", {"weights.safetensors": 3}, {"weights.safetensors": {"size": "8"}}, None],
    ids=str,
)
def test_lists_of_files_of_other_types(copy, files):
    forge(copy, lambda record: record.update(files=files))
    check_refused(copy, r"manifest\.json")


@pytest.mark.parametrize("platforms", ["cpu", 3, [1], None, {}], ids=str)
def test_platforms_of_other_types(copy, platforms):
    forge(copy, lambda record: record.update(platforms=platforms))
    check_refused(copy, r"manifest\.json")


@pytest.mark.parametrize(
    "name", [MANIFEST, "signatures.json", "transforms.json", "selftest.json"]
)
@pytest.mark.parametrize(
    "text", [DEEP, '{"a": 1, "a": 2}', "3", "[]", "null", '"x"', "{}", "\xff"]
)
def test_other_json(copy, name, text):
    (copy / name).write_text(text, encoding="latin-1")
    if name != MANIFEST:
        rehash(copy)
    check_refused(copy)


def setting(*path, to):
    def change(record):
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = to

    return change


PREDICT = ("predict", "outputs", "logits")


@pytest.mark.parametrize(
    "change",
    [
        *(setting(*PREDICT, "shape", to=s) for s in ([2**70, 2], [-1], "ab", 3, [1.5])),
        *(setting(*PREDICT, "shape", to=s) for s in ([None, 3], [None], [None, None])),
        *(setting(*PREDICT, "dtype", to=d) for d in ("object", "V9", "S99999999", 3)),
        *(setting(*PREDICT, "kind", to=k) for k in ("other", 3, None)),
        setting(*PREDICT, "compute_dtype", to="float64"),
        setting(*PREDICT, "vocabulary", to="text"),
        setting(*PREDICT, "vocabulary", to=[1, 2]),
        setting("predict", "outputs", "another", to={"dtype": "float32"}),
        lambda r: r["predict"]["outputs"].update(
            more=r["predict"]["outputs"]["logits"]
        ),
        lambda r: r["predict"]["inputs"].update(more=r["predict"]["inputs"]["age"]),
        lambda r: r["predict"]["inputs"].pop("age"),
        setting("predict", "inputs", "age", "shape", to=[-2]),
        setting("predict", "function", to="../../x"),
        setting("predict", "function", to=3),
        setting("predict", "method_name", to=["x"]),
        lambda record: record.clear(),
    ],
)
def test_signatures(copy, change):
    change_json(copy, "signatures.json", change)
    check_refused(copy)


@pytest.mark.parametrize(
    "change",
    [
        setting("raw", to=3),
        setting("raw", 0, "key", to=[1]),
        setting("calls", to={"a": 1}),
        setting("calls", 0, "transform", "type", to="unknown"),
        setting("calls", 0, "transform", "type", to=[]),
        setting("calls", 0, "transform", "source", to=3),
        setting("calls", 0, "transform", "source", "num_buckets", to=-1),
        setting("calls", 0, "transform", "source", "num_buckets", to="x"),
        setting("calls", 0, "inputs", to=[]),
        setting(
            "calls", 1, "transform", "source", "words", "file", to="../manifest.json"
        ),
        setting("calls", 1, "transform", "source", "words", "file", to=".."),
        setting("calls", 1, "transform", "source", "words", "file", to=3),
    ],
)
def test_transforms(copy, change):
    change_json(copy, "transforms.json", change)
    check_refused(copy)


@pytest.mark.parametrize(
    "change",
    [
        setting("example", 0, "dtype", to="U99999999"),
        setting("example", 0, "shape", to=[2**40]),
        setting("example", 0, "shape", to="x"),
        setting("example", 0, "form", to="other"),
        setting("example", 1, "values", to=[3]),
        setting("example", 2, "dense_shape", to=[2, -3]),
        setting("example", 2, "indices", to=[[0, 2**62], [1, 0], [1, 1], [1, 2]]),
        setting("example", 2, "indices", to=[[-1, 0], [1, 0], [1, 1], [1, 2]]),
        setting("answers", "unknown", to={}),
        setting("answers", to=[]),
        lambda record: record["example"].pop(),
    ],
)
def test_self_tests(copy, change):
    change_json(copy, "selftest.json", change)
    check_refused(copy)


def header(text, length=None):
    return struct.pack("<Q", len(text) if length is None else length) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header(b"{}", 2**62),
        header(b"{}", 2**20),
        header(DEEP.encode()),
        header(b'{"city":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4]}}')
        + bytes(4),
        header(b'{"city":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}')
        + bytes(4),
        header(b'{"city":{"dtype":"X","shape":[1],"data_offsets":[0,4]}}') + bytes(4),
        header(b'{"city":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}') + bytes(4),
    ],
    ids=range(8),
)
def test_weights(copy, data):
    (copy / "weights.safetensors").write_bytes(data)
    rehash(copy)
    check_refused(copy, r"weights")


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"\xff" * 64, os.urandom(4096)])
@pytest.mark.parametrize("suffix", ["jaxexport", "both"])
def test_functions(copy, data, suffix):
    for path in (copy / "functions").iterdir():
        if (suffix == "both" and path.suffix != ".json") or path.suffix == ".jaxexport":
            path.write_bytes(data)
    rehash(copy)
    if suffix == "both":
        check_refused(copy)
    else:
        export.load(copy, self_test=True)  # rebuilt from its StableHLO


def test_a_program_that_calls_a_kernel_of_ours_is_refused_and_not_run(copy, tmp_path):
    """In a process that has the kernel: it would crash."""
    from test_program_check import BAD_CALL, in_main, program

    stablehlo = program(in_main(f"%0 = {BAD_CALL}")).mlir_module_serialized
    for path in (copy / "functions").iterdir():
        if path.suffix == ".stablehlo":
            path.write_bytes(stablehlo)
        elif path.suffix == ".jaxexport":
            path.write_bytes(base64.b64decode("AAAA"))
    rehash(copy)
    check_refused(copy, "custom call of 'estimax_lay_rows'")


@pytest.mark.parametrize("words", [["yes"], []])
def test_a_vocabulary_with_fewer_words_than_classes(copy, words):
    def cut(record):
        for signature in record.values():
            signature["outputs"]["classes"]["vocabulary"] = words

    change_json(copy, "signatures.json", cut)
    with pytest.raises(BundleError, match=r"'classes': expected ids in \[0, "):
        export.load(copy).predict(servables.wide_request(5))
    with pytest.raises(BundleError, match="'classes': expected ids"):
        export.load(copy, self_test=True)
