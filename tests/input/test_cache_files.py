"""Damaged cache files: an error that names them, never other data or a dead process."""

import copy
import gc
import json
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.input import Dataset
from estimax.input.streams.columns import Ragged
from estimax.native import checksum


def mixed():
    """Every kind of column, two chunks."""
    sparse = Sparse(np.array([[0, 0], [2, 1]]), np.array([1.5, 2.5]), (3, 2))
    ragged = Ragged(np.array([1, 2, 3]), (np.array([0, 2, 2, 3]),))
    tree = {"x": np.arange(3), "s": ["a", "", "cc"], "many": sparse, "ragged": ragged}
    return Dataset.from_tensors((tree, None, b"bytes")).repeat(2)


def read(prefix):
    return list(Dataset.range(0).cache(prefix))


@pytest.fixture
def prefix(tmp_path):
    list(mixed().cache(tmp_path / "c"))
    return tmp_path / "c"


def index_of(prefix):
    text, _ = prefix.with_suffix(".index").read_bytes().splitlines()
    return json.loads(text)


def write_index(prefix, text):
    """An index with the right checksum, as one who means harm would write it."""
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    line = b"crc32c %08x" % checksum.crc32c(text)
    prefix.with_suffix(".index").write_bytes(text + b"\n" + line + b"\n")


def test_a_cache_gives_back_what_was_put_in(prefix):
    (features, none, text), second = read(prefix)
    assert features["s"].tolist() == [b"a", b"", b"cc"]
    assert features["ragged"].tolist() == [[1, 2], [], [3]]
    assert features["many"].values.tolist() == [1.5, 2.5]
    assert none is None
    assert text == b"bytes"
    assert second[0]["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("suffix", [".data", ".index"])
def test_every_changed_byte_is_an_error_that_names_the_file(prefix, suffix):
    path = prefix.with_suffix(suffix)
    good = path.read_bytes()
    for at in range(len(good) - (suffix == ".index")):  # but the last line break
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises(
            InputError, match=r"Delete .*c.index and .*c.data"
        ) as caught:
            read(prefix)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".data", ".index"])
@pytest.mark.parametrize("cut", [1, 50, 10_000])
def test_a_cut_file_is_an_error(prefix, suffix, cut):
    path = prefix.with_suffix(suffix)
    path.write_bytes(path.read_bytes()[:-cut])
    if suffix == ".index" and cut == 1:  # the last line break
        assert len(read(prefix)) == 2
        return
    with pytest.raises(InputError, match="cannot be used as a cache"):
        read(prefix)


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path):
    prefix = tmp_path / "c"
    list(Dataset.range(100_000).cache(prefix))
    rows = iter(Dataset.range(0).cache(prefix))
    next(rows)
    with prefix.with_suffix(".data").open("r+b") as file:
        file.truncate(20_000)
    with pytest.raises(InputError, match=r"c\.data.*chunk \d+ lies at"):
        list(rows)


def test_a_cache_of_an_earlier_version_is_an_error_that_says_so(prefix):
    index = {"version": 1, "seed": 0, "bytes": 0, "states": [], "chunks": []}
    prefix.with_suffix(".index").write_text(json.dumps(index))
    with pytest.raises(InputError, match="earlier version wrote it, without checksums"):
        read(prefix)


def test_an_index_without_its_data_is_an_error(prefix):
    prefix.with_suffix(".data").unlink()
    with pytest.raises(InputError, match=r"c\.data"):
        read(prefix)


def tree_of(index):
    return dict(index["chunks"][0][3]["items"][0]["tuple"][0]["dict"])


DEEP = json.loads('{"tuple": [' * 200 + '{"none": true}' + "]}" * 200)
HARM = {
    "objects": lambda i: tree_of(i)["x"]["array"].__setitem__(0, "|O8"),
    "no dtype": lambda i: tree_of(i)["x"]["array"].__setitem__(0, "nonsense"),
    "a long array": lambda i: tree_of(i)["x"]["array"].__setitem__(1, [1 << 62, 8]),
    "a negative size": lambda i: tree_of(i)["x"]["array"].__setitem__(1, [-1]),
    "a negative start": lambda i: tree_of(i)["x"]["array"].__setitem__(2, -8),
    "text of two": lambda i: tree_of(i)["s"].__setitem__("shape", [9]),
    "wrong offsets": lambda i: tree_of(i)["s"]["text"].__setitem__(
        1, tree_of(i)["ragged"]["ragged"][0]
    ),
    "rows of sparse": lambda i: tree_of(i)["many"].__setitem__("shape", [1, 2]),
    "rank of sparse": lambda i: tree_of(i)["many"].__setitem__("shape", [3]),
    "splits": lambda i: tree_of(i)["ragged"]["ragged"].__setitem__(
        0, tree_of(i)["many"]["sparse"][1]
    ),
    "deep": lambda i: i["chunks"][0].__setitem__(3, {"items": [DEEP]}),
    "a chunk beyond": lambda i: i["chunks"][0].__setitem__(0, 1 << 70),
    "no description": lambda i: i["chunks"][0].__setitem__(3, 7),
    "no entry": lambda i: i["chunks"].__setitem__(0, "chunk"),
    "no positions": lambda i: i.__setitem__("states", []),
    "positions by name": lambda i: i.__setitem__("states", {"0": {}, "1": {}}),
    "a position of text": lambda i: i["states"].__setitem__(0, "position"),
    "a start of text": lambda i: i["chunks"][0].__setitem__(0, "0"),
    "a size with a fraction": lambda i: i["chunks"][0].__setitem__(1, 0.5),
    "a checksum of text": lambda i: i["chunks"][0].__setitem__(2, "crc"),
    "an infinite seed": lambda i: i.__setitem__("seed", float("inf")),
    "a seed of text": lambda i: i.__setitem__("seed", "7"),
    "no chunks": lambda i: i.pop("chunks"),
    "another version": lambda i: i.__setitem__("version", 3),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_hostile_index_is_refused_before_an_array_is_made(prefix, harm):
    index = copy.deepcopy(index_of(prefix))
    harm(index)
    write_index(prefix, index)
    with pytest.raises(InputError, match="cannot be used as a cache"):
        read(prefix)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"7", b"[]", b"", b"{}", b"\xff"], ids=range(6)
)
def test_what_is_no_index_is_refused(prefix, text):
    write_index(prefix, text)
    with pytest.raises(InputError, match="cannot be used as a cache"):
        read(prefix)


def test_the_first_complete_pass_stays(tmp_path):
    data = Dataset.range(9).cache(tmp_path / "c")
    first, second = iter(data), iter(data)
    next(first), next(second)
    list(first)
    inode = (tmp_path / "c.data").stat().st_ino
    list(second)
    assert (tmp_path / "c.data").stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == ["c.data", "c.index"]


def test_a_pass_that_was_killed_is_made_again(tmp_path):
    code = f"""
import os, signal
from estimax.input import Dataset
rows = iter(Dataset.range(9).cache({str(tmp_path / "c")!r}))
next(rows)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [int(x) for x in Dataset.range(9).cache(tmp_path / "c")] == list(range(9))
    assert len(read(tmp_path / "c")) == 9


@pytest.fixture(params=[1000, 300_000])
def small_files(request):
    """No file may grow beyond this: from its beginning on, or in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (request.param, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_named_and_leaves_nothing(tmp_path, small_files):
    with pytest.raises(OSError, match=r"File too large: '.*c\.data'"):
        list(Dataset.range(100_000).cache(tmp_path / "c"))
    gc.collect()  # closes the pass that was given up
    assert os.listdir(tmp_path) == []
